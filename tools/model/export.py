"""Writes a checkpoint as a Hugging Face folder (Llama, bf16 safetensors), and reads such a folder back."""

import argparse
import json
import os
import struct

import torch

import generator
import model
import tokenizer
import trainer_options

CHAT_TEMPLATE = ("{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + "
                 "'<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")
POSITIONS_MAX = 4096


def _layer_names(config, i):
  """(name in the file, name here, first row, rows) of one layer's matrices."""
  q, kv, m = config.heads * config.head_dim, config.kv_heads * config.head_dim, config.intermediate
  p = f'model.layers.{i}.'
  return [(p + 'self_attn.q_proj', f'{i}.qkv', 0, q), (p + 'self_attn.k_proj', f'{i}.qkv', q, kv),
          (p + 'self_attn.v_proj', f'{i}.qkv', q + kv, kv), (p + 'self_attn.o_proj', f'{i}.o', 0, config.hidden),
          (p + 'mlp.gate_proj', f'{i}.gate_up', 0, m), (p + 'mlp.up_proj', f'{i}.gate_up', m, m),
          (p + 'mlp.down_proj', f'{i}.down', 0, config.hidden), (p + 'input_layernorm', f'{i}.norm1', 0, config.hidden),
          (p + 'post_attention_layernorm', f'{i}.norm2', 0, config.hidden)]


def _names(config):
  names = [('model.embed_tokens', 'embed', 0, config.vocab_size), ('model.norm', 'norm', 0, config.hidden)]
  for i in range(config.layers):
    names += _layer_names(config, i)
  return [(file_name + '.weight', *rest) for file_name, *rest in names]


def write_safetensors(path, tensors):
  """tensors: name -> bf16 tensor. The format: u64 header length, JSON header, the data."""
  header, data, offset = {'__metadata__': {'format': 'pt'}}, [], 0
  for name, tensor in tensors.items():
    raw = tensor.contiguous().view(torch.int16).numpy().tobytes()
    header[name] = {'dtype': 'BF16', 'shape': list(tensor.shape), 'data_offsets': [offset, offset + len(raw)]}
    data.append(raw)
    offset += len(raw)
  text = json.dumps(header, separators=(',', ':')).encode()
  text += b' ' * (-len(text) % 8)
  with open(path, 'wb') as f:
    f.write(struct.pack('<Q', len(text)) + text + b''.join(data))


def read_safetensors(path):
  """name -> f32 tensor, for bf16 files."""
  with open(path, 'rb') as f:
    raw = f.read()
  header_size = struct.unpack('<Q', raw[:8])[0]
  header, base, out = json.loads(raw[8:8 + header_size]), 8 + header_size, {}
  for name, entry in header.items():
    if name != '__metadata__':
      first, last = entry['data_offsets']
      halves = torch.frombuffer(bytearray(raw[base + first:base + last]), dtype=torch.bfloat16)
      out[name] = halves.reshape(entry['shape']).float()
  return out


def hugging_face_config(config, tok):
  return {
      'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': config.hidden,
      'intermediate_size': config.intermediate, 'num_hidden_layers': config.layers,
      'num_attention_heads': config.heads, 'num_key_value_heads': config.kv_heads, 'head_dim': config.head_dim,
      'vocab_size': config.vocab_size, 'max_position_embeddings': POSITIONS_MAX, 'rms_norm_eps': config.eps,
      'rope_theta': config.rope_theta, 'rope_scaling': None, 'hidden_act': 'silu', 'tie_word_embeddings': True,
      'attention_bias': False, 'mlp_bias': False, 'bos_token_id': tok.special[generator.BEGIN],
      'eos_token_id': tok.special[generator.END], 'torch_dtype': 'bfloat16',
  }


def tokenizer_config(tok):
  added = {str(i): {'content': s, 'lstrip': False, 'normalized': False, 'rstrip': False, 'single_word': False,
                    'special': True} for s, i in tok.special.items()}
  return {
      'added_tokens_decoder': added, 'bos_token': generator.BEGIN, 'eos_token': generator.END, 'pad_token': None,
      'add_bos_token': True, 'add_eos_token': False, 'chat_template': CHAT_TEMPLATE, 'clean_up_tokenization_spaces': False,
      'model_max_length': POSITIONS_MAX, 'tokenizer_class': 'PreTrainedTokenizerFast',
  }


def _write_json(folder, name, data):
  with open(os.path.join(folder, name), 'w', encoding='utf-8') as f:
    json.dump(data, f, ensure_ascii=False, indent=1)
    f.write('\n')


def write_folder(folder, weights, config, tok):
  os.makedirs(folder, exist_ok=True)
  tensors = {file_name: weights[name][row:row + rows].cpu().bfloat16() for file_name, name, row, rows in _names(config)}
  write_safetensors(os.path.join(folder, 'model.safetensors'), tensors)
  _write_json(folder, 'config.json', hugging_face_config(config, tok))
  _write_json(folder, 'tokenizer_config.json', tokenizer_config(tok))
  _write_json(folder, 'generation_config.json', {
      'bos_token_id': tok.special[generator.BEGIN], 'eos_token_id': [tok.special[generator.END]], 'do_sample': False,
      'max_new_tokens': 512})
  _write_json(folder, 'tokenizer.json', tok.to_json())


def read_folder(folder):
  """(weights, config, tokenizer) of an exported folder, in the trainer's form."""
  with open(os.path.join(folder, 'config.json'), encoding='utf-8') as f:
    c = json.load(f)
  config = model.Config(vocab_size=c['vocab_size'], hidden=c['hidden_size'], intermediate=c['intermediate_size'],
                        layers=c['num_hidden_layers'], heads=c['num_attention_heads'], kv_heads=c['num_key_value_heads'],
                        head_dim=c['head_dim'], rope_theta=c['rope_theta'], eps=c['rms_norm_eps'])
  tensors, weights = read_safetensors(os.path.join(folder, 'model.safetensors')), {}
  for file_name, name, _, _ in _names(config):
    weights.setdefault(name, []).append(tensors[file_name])
  weights = {name: torch.cat(parts) for name, parts in weights.items()}
  return weights, config, tokenizer.load(os.path.join(folder, 'tokenizer.json'))


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--train-folder', default=trainer_options.default_folder())
  parser.add_argument('--checkpoint', default='checkpoint.pt', help='checkpoint.pt or annealed.pt')
  parser.add_argument('out')
  options = parser.parse_args()
  saved = torch.load(os.path.join(options.train_folder, options.checkpoint), map_location='cpu')
  tok = tokenizer.load(os.path.join(options.train_folder, 'tokenizer.json'))
  write_folder(options.out, saved['averaged'], model.Config(**saved['config']), tok)
  print(f"exported step {saved['step']}, {saved['tokens_seen']} tokens")


if __name__ == '__main__':
  main()
