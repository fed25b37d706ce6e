"""Inserts a layer before the others of a checkpoint, so that training continues with more capacity instead of from the start.

The new layer writes nothing at first (its output matrices are zero): the model says what it said. Its heads look FAR back
(model.py), past the words that the old first layer sees, and read there what that layer's look-back heads read.
"""

import argparse
import os
import random

import torch

import generator
import model
import tokenizer
import trainer
import trainer_options


def common_direction(embed, eps, tok):
  """The direction whose product with the normalised embedding of any token of the generator's text is nearest to 1."""
  counts = torch.zeros(embed.shape[0])
  for i in range(300):
    ids, _ = tok.encode_segments(generator.document(random.Random(f'{trainer.SEED}:grow:{i}'), 300))
    counts.index_add_(0, torch.tensor(ids), torch.ones(len(ids)))
  used = counts > 0
  root = (counts[used] + 5).sqrt()[:, None]
  inputs = model.rms_norm(embed[used], torch.ones(embed.shape[1]), eps)
  return torch.linalg.lstsq(inputs * root, root).solution[:, 0]


def new_layer(weights, config, tok):
  """Weights of a layer 0 that initially changes nothing."""
  layer = {k: v for k, v in model.init_weights(config, trainer.SEED + 1).items() if k.startswith('2.')}
  layer = {'0.' + k[2:]: v for k, v in layer.items()}  # Of a layer without look-back heads.
  d, values = config.head_dim, (config.heads + config.kv_heads) * config.head_dim
  old = weights['0.qkv'][values:] * weights['0.norm1']
  for n in range(config.kv_heads):
    layer['0.qkv'][values + n * d:values + (n + 1) * d] = torch.nn.functional.normalize(old[n % 2 * d:(n % 2 + 1) * d])
  model.look_back(config, layer['0.qkv'], model.FAR, common_direction(weights['embed'], config.eps, tok), model.LOOK_BACK_GAIN)
  return layer


def grown(tensors, layer):
  """The layers of `tensors` shifted by one, with `layer` first."""
  out = {}
  for name, tensor in tensors.items():
    place, _, rest = name.partition('.')
    out[f'{int(place) + 1}.{rest}' if rest else name] = tensor
  return {k: v for k, v in out.items() if not k[0].isdigit()} | layer | {k: v for k, v in out.items() if k[0].isdigit()}


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('checkpoint', help='a file that the trainer wrote')
  parser.add_argument('out', help='the new file')
  parser.add_argument('--train-folder', default=trainer_options.default_folder(), help='where tokenizer.json lies')
  options = parser.parse_args()
  saved = torch.load(options.checkpoint, map_location='cpu')
  config = model.Config(**{**saved['config'], 'layers': saved['config']['layers'] + 1})
  tok = tokenizer.load(os.path.join(options.train_folder, 'tokenizer.json'))
  layer = new_layer(saved['weights'], config, tok)
  zeros = {k: torch.zeros_like(v) for k, v in layer.items()}
  norms = {k: v.clone() for k, v in zeros.items() if 'norm' in k}
  saved['config'] = vars(config)
  for name in ('weights', 'averaged'):
    saved[name] = grown(saved[name], {k: v.clone() for k, v in layer.items()})
  saved['optimizer'] |= {'first': grown(saved['optimizer']['first'], zeros), 'second': grown(saved['optimizer']['second'], norms)}
  saved['warm_from'] = saved['step']
  torch.save(saved, options.out)


if __name__ == '__main__':
  main()
