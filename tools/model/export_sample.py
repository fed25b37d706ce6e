"""Picks the fixed sample that tests/run asks over REST: held-out items that the exported model answers right with room.

An item is taken when every token of its answer leads the runner-up by at least MARGIN in the logits, so that a correct engine
cannot differ from it by rounding. How often the model is right at all stands in the table of the model card, not here.
"""

import argparse
import json

import torch

import evaluation
import export
import fast_cpu
import generator

SAMPLE_SEED = 'sample'
MARGIN = 1.0
VECTOR_TEXTS = ("Where is Ana's red kite?", 'Ana\nBen  \n\n x: 1234\tend. \r\n', 'Gr\u00fc\u00dfe, \u6570\u636e \U0001f426 it\'S "q"', '  two',
                'k7m2: zarnoosh (plum)!?\n- next')


@torch.no_grad()
def margin(fast, weights, tok, item):
  """The smallest margin of the expected tokens over all others; negative if the answer is wrong."""
  prompt = evaluation.prompt_ids(tok, item.messages)
  answer = torch.tensor(tok.encode(item.expected) + [tok.special[generator.END]])
  hidden = fast.forward(weights, [prompt + answer.tolist()])[0][len(prompt) - 1:-1]
  logits = hidden.float() @ weights['embed'].t()
  want = logits.gather(1, answer[:, None])
  others = logits.scatter(1, answer[:, None], float('-inf')).max(1, keepdim=True).values
  return (want - others).min().item()


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('folder', help='an exported model; eval_sample.json is written into it')
  parser.add_argument('--count', type=int, default=5, help='items of each kind and length')
  options = parser.parse_args()
  weights, config, tok = export.read_folder(options.folder)
  fast, chosen, taken = fast_cpu.FastCpu(config), [], {}
  for cell in evaluation.cells():
    for i in range(0 if cell[0] == 'story' else 6 * options.count):
      item = evaluation.item(tok, *cell, i, SAMPLE_SEED)
      if margin(fast, weights, tok, item) > MARGIN:
        taken[cell] = taken.get(cell, 0) + 1
        chosen.append(item._asdict())
      if taken.get(cell, 0) == options.count:
        break
  with open(f'{options.folder}/eval_sample.json', 'w', encoding='utf-8') as f:
    vectors = [{'text': t, 'ids': tok.encode(t)} for t in VECTOR_TEXTS]
    json.dump({'seed': SAMPLE_SEED, 'margin': MARGIN, 'items': chosen, 'tokenizer_vectors': vectors}, f, ensure_ascii=False, indent=1)
    f.write('\n')
  print(taken)


if __name__ == '__main__':
  main()
