"""Writes the model card of an exported folder: shape, curriculum, loss curve and the table of bench/model/eval."""

import argparse
import os
import re
import textwrap

import export
import trainer
import trainer_options

DEMONSTRATION = ("Ana's red kite is in the barn. Ben's red kite is under the bed. Ana's blue kite is at the lake. Mia put her "
                 "old drum behind the church. Ben's favourite food is cheese.\nWhere is Ana's red kite?")
DEMONSTRATION_ANSWER = "Ana's red kite is in the barn."

CARD = """# fledgling

A small language model of our own, so that a fresh clone answers truly without a download. Llama architecture, {parameters:.2f} M
parameters, bf16. It was trained from scratch on text that `tools/model/generator.py` writes, and on nothing else.

It answers questions about facts that stand in the prompt (with distractors that share words of the question), looks up values
in `key: value` lines, repeats quoted lines, counts, adds and subtracts small numbers, and tells short stories. It knows nothing
of the world, and words outside its lexicon are spelled in pieces.

| | |
|---|---|
| layers, hidden, intermediate | {config.layers}, {config.hidden}, {config.intermediate} |
| query heads, KV heads, head_dim | {config.heads}, {config.kv_heads}, {config.head_dim} |
| vocabulary | {config.vocab_size}, byte-level BPE, the pattern of Qwen 2 |
| RoPE theta | {config.rope_theta:.0f} |
| positions | {positions} in the configuration, trained to {longest} |
| embeddings | tied |

## A question to try

```
{question}
```

The answer, with temperature 0, is `{answer}`

`eval_sample.json` holds held-out questions that this model answers right with room in its logits (`tools/model/export_sample.py`);
`bench/model/eval --url http://127.0.0.1:8000 --sample deploy/models/fledgling/eval_sample.json` asks them all.

## Quality

Held-out questions, greedy; an answer counts when it is right to the letter and ended by the model. Made with
`{command}`:

{table}

{distance}

## Training

Seed {seed}, {tokens:.1f} M tokens in {steps} steps: Muon for the matrices, Adam for the rest, constant rate, running average of the
weights{anneal}. Loss falls only on what the assistant says. The heads of the first two layers start by looking 1 to 12 tokens
back (`tools/model/model.py`). `tools/model/make FOLDER` makes such a model from nothing, on a CPU or a GPU: it trains (and goes on
where it was stopped), exports, asks, and writes the sample and the card.
{note}
Curriculum (a document's length is drawn evenly on a logarithmic scale up to the longest):

| from token | longest document | tokens a step |
|---|---|---|
{curriculum}

Loss and share of right tokens among those that carry loss, mean of 20 steps (each longer phase is a harder task):

| tokens seen | loss | right |
|---|---|---|
{curve}
"""

# The target for a kind at a length, in percent correct.
WANTED = {('facts', '256'): 99, ('facts', '512'): 99, ('facts', '1024'): 97, ('facts', '2048'): 97, ('lookup', '256'): 99,
          ('lookup', '512'): 99, ('lookup', '1024'): 97, ('lookup', '2048'): 97, ('quote', '256'): 99, ('quote', '512'): 99,
          ('copy', 'short'): 99, ('story', 'short'): 95}
_ROW = re.compile(r'\| (\w+) \| (\w+) \| \d+ \| ([\d.]+) % \|')
_LINE = re.compile(r'step (\d+) tokens (\d+) longest \d+ loss ([\d.]+) right ([\d.]+)')


def distance(table):
  """Shows for each row of bench/model/eval's table the distance from its target."""
  short = [f'{kind} at {length} {right} % ({WANTED[kind, length] - float(right):.1f} points short of {WANTED[kind, length]} %)'
           for kind, length, right in _ROW.findall(table)
           if (kind, length) in WANTED and float(right) < WANTED[kind, length]]
  wanted = ('Wanted: 99 % of facts, look-ups and quotes at 256 and 512 tokens, 97 % of facts and look-ups at 1,024 and 2,048, 99 % of '
            'copies, 95 % of stories.')
  return textwrap.fill(f'{wanted} Short of that: {"; ".join(short)}.' if short else f'{wanted} All of it is reached.', 130)


def read_log(path):
  """(step, tokens, loss, right) of each line; after a resumed run, the newer lines count."""
  rows = {}
  if os.path.exists(path):
    with open(path, encoding='utf-8') as f:
      for step, tokens, loss, right in _LINE.findall(f.read()):
        rows[int(step)] = (int(tokens), float(loss), float(right))
  return [(step, *row) for step, row in sorted(rows.items())]


def curve(rows, lines_max=24):
  """At most this many rows, evenly spaced, including the last."""
  every = max(1, -(-len(rows) // lines_max))
  chosen = rows[every - 1::every]
  if rows and chosen[-1] != rows[-1]:
    chosen.append(rows[-1])
  return '\n'.join(f'| {tokens / 1e6:.2f} M | {loss:.3f} | {100 * right:.1f} % |' for _, tokens, loss, right in chosen)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('folder')
  parser.add_argument('--train-folder', default=trainer_options.default_folder())
  parser.add_argument('--tokens', type=int, required=True, help='tokens seen by the exported checkpoint')
  parser.add_argument('--annealed', action='store_true')
  parser.add_argument('--table', required=True, help='output of bench/model/eval')
  parser.add_argument('--command', required=True, help='the command that made it')
  parser.add_argument('--note', default='', help='what else there is to say of the training')
  options = parser.parse_args()
  weights, config, _ = export.read_folder(options.folder)
  rows = [r for r in read_log(os.path.join(options.train_folder, 'loss.log')) if r[1] <= options.tokens]
  if options.annealed:
    rows += [r for r in read_log(os.path.join(options.train_folder, 'anneal.log')) if r[0] > rows[-1][0]]
  with open(options.table, encoding='utf-8') as f:
    table = '\n'.join(line for line in f.read().splitlines() if line.startswith('|'))
  text = CARD.format(
      parameters=sum(w.numel() for w in weights.values()) / 1e6, config=config, positions=export.POSITIONS_MAX,
      longest=trainer.phase(options.tokens)[1], question=DEMONSTRATION, answer=DEMONSTRATION_ANSWER,
      command=options.command, table=table, distance=distance(table), seed=trainer.SEED, tokens=options.tokens / 1e6,
      steps=rows[-1][0], anneal=', the rate lowered to zero at the end' if options.annealed else '',
      curriculum='\n'.join(f'| {first / 1e6:g} M | {longest} | {a_step} |' for first, longest, a_step, _ in trainer.CURRICULUM),
      curve=curve(rows), note=f'\n{options.note}\n' if options.note else '')
  with open(os.path.join(options.folder, 'README.md'), 'w', encoding='utf-8') as f:
    f.write(text)


if __name__ == '__main__':
  main()
