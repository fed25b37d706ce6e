"""Trains fledgling, from a seed, on a CPU or a GPU; stops and resumes at any step with the same result.

The learning rate is constant, so that a run may go on as long as there is time; `--decay` lowers it to zero over the last so
many of `--tokens` (Hu et al. 2024, MiniCPM, section 4: warm-up, stable, decay). `--anneal` does that beside the run: it starts
from the newest checkpoint and writes `annealed.pt`. A running average of the weights is what is evaluated and exported. The data of step n depends on
the seed and n alone.
"""

import bisect
import datetime
import json
import os
import random
import sys
import time

import torch

import fast_cpu
import generator
import model
import optimizer
import tokenizer
import trainer_options

SEED = 20260731
# (tokens seen so far, longest document, tokens a step, stage of the generator)
CURRICULUM = ((0, 96, 4096, 0), (1_250_000, 160, 4096, 0), (2_500_000, 320, 4096, 1), (4_750_000, 640, 6144, 1),
              (7_500_000, 1100, 6144, 1), (10_000_000, 2200, 8192, 1), (42_800_000, 2200, 4096, 3))
WARM_UP_STEPS = 100
AVERAGE_DECAY = 0.985


def make_tokenizer(folder, size):
  """Trains the tokenizer once on the generator's text; later starts load it."""
  path = os.path.join(folder, 'tokenizer.json')
  if not os.path.exists(path):
    rng = random.Random(f'{SEED}:tokenizer')
    documents = [generator.document(rng, rng.choice((100, 200, 400))) for _ in range(12000)]
    counts = tokenizer.count_pieces(t for d in documents for t, _ in d if t not in generator.SPECIAL_TOKENS)
    merges = tokenizer.train_merges(counts, size - 256 - len(generator.SPECIAL_TOKENS))
    with open(path, 'w', encoding='utf-8') as f:
      json.dump(tokenizer.Tokenizer(merges, generator.SPECIAL_TOKENS).to_json(), f, ensure_ascii=False, indent=1)
  return tokenizer.load(path)


def phase(tokens_seen):
  return CURRICULUM[bisect.bisect([c[0] for c in CURRICULUM], tokens_seen) - 1]


def target_length(rng, longest, stage):
  """Tokens of a document. The hard stage has mostly short ones: many answers a second."""
  if stage < generator.HARD_STAGE:
    return 48 * (longest / 48)**rng.random()**0.7
  low, high = (160, 640) if rng.random() < 0.93 else (640, longest)
  return low * (high / low)**rng.random()


def batch(tok, step, tokens_seen, stage=None, seed=SEED):
  """Documents of one step: lengths spread evenly over their logarithm, cut at the phase's longest. `stage` overrides the
  phase's own."""
  _, longest, tokens_a_step, of_phase = phase(tokens_seen)
  stage = of_phase if stage is None else stage
  rng = random.Random(f'{seed}:{step}')
  documents, total = [], 0
  while total < tokens_a_step:
    target = target_length(rng, longest, stage)
    ids, weights = tok.encode_segments(generator.document(rng, target, stage))
    ids, weights = ids[:longest], weights[:longest]
    if sum(weights):
      documents.append((ids, weights))
      total += len(ids)
  return documents, total


class Run:
  """The state of a training run: weights, optimizer, step and tokens seen."""

  def __init__(self, config, folder, device, threads=2):
    self.config, self.folder, self.device = config, folder, device
    self.weights = {k: v.to(device) for k, v in model.init_weights(config, SEED).items()}
    self.optimizer = optimizer.Optimizer(self.weights, config)
    self.averaged = {k: v.clone() for k, v in self.weights.items()}
    self.step = self.tokens_seen = self.warm_from = 0
    self._fast = fast_cpu.FastCpu(config, threads) if device.type == 'cpu' else None

  def load(self, path):
    saved = torch.load(path, map_location=self.device)
    self.weights, self.averaged, self.optimizer.state = saved['weights'], saved['averaged'], saved['optimizer']
    self.step, self.tokens_seen, self.warm_from = saved['step'], saved['tokens_seen'], saved.get('warm_from', 0)

  def save(self, name):
    path = os.path.join(self.folder, name)
    torch.save({'weights': self.weights, 'averaged': self.averaged, 'optimizer': self.optimizer.state, 'step': self.step,
                'tokens_seen': self.tokens_seen, 'warm_from': self.warm_from, 'config': vars(self.config)}, path + '.new')
    os.replace(path + '.new', path)

  def train_step(self, documents, total, rate):
    if self._fast:
      loss, right, gradients = self._fast.loss_and_gradients(self.weights, documents)
    else:
      loss, right, gradients = model.loss_and_gradients(self.weights, self.config, documents, self.device)
    self.optimizer.step(self.weights, gradients, rate, self._fast.pool.map if self._fast else map)
    for name, average in self.averaged.items():
      average.lerp_(self.weights[name], 1 - AVERAGE_DECAY)
    self.step += 1
    self.tokens_seen += total
    return loss, right


def now():
  return datetime.datetime.utcnow().strftime('%H:%M:%S')


def train(run, tok, options):
  """Steps until the wanted tokens are seen; a line of log each 20 steps, a checkpoint each few minutes. Returns whether all were seen."""
  start = run.tokens_seen
  end = start + options.anneal if options.anneal else options.tokens
  name = 'annealed.pt' if options.anneal else 'checkpoint.pt'
  log = open(os.path.join(run.folder, 'anneal.log' if options.anneal else 'loss.log'), 'a', buffering=1)
  losses, rights, started, first = [], [], time.monotonic(), run.tokens_seen
  saved_at = began = started
  while run.tokens_seen < end and time.monotonic() - started < options.seconds:
    rate = options.rate * min(1.0, (run.step - run.warm_from + 1) / WARM_UP_STEPS, (end - run.tokens_seen) / max(1, options.decay))
    if options.anneal:
      rate = options.rate * max(0.0, 1 - (run.tokens_seen - start) / options.anneal)
    documents, total = batch(tok, run.step, run.tokens_seen, options.stage)
    loss, right = run.train_step(documents, total, rate)
    losses.append(loss)
    rights.append(right)
    if run.step % 20 == 0:
      speed = (run.tokens_seen - first) / (time.monotonic() - began)
      log.write(f'{now()} step {run.step} tokens {run.tokens_seen} longest {phase(run.tokens_seen)[1]} '
                f'loss {sum(losses) / len(losses):.4f} right {sum(rights) / len(rights):.4f} rate {rate:.3f} '
                f'tokens/s {speed:.0f}\n')
      losses, rights, began, first = [], [], time.monotonic(), run.tokens_seen
    if time.monotonic() - saved_at > options.save_every_s:
      run.save(name)
      saved_at = time.monotonic()
  run.save(name)
  return run.tokens_seen >= end


def main():
  options = trainer_options.parse(__doc__)
  os.makedirs(options.folder, exist_ok=True)
  torch.manual_seed(SEED)
  checkpoint = os.path.join(options.folder, options.start)
  shape = {'hidden': options.hidden, 'layers': options.layers, 'intermediate': options.intermediate}
  if os.path.exists(checkpoint):
    shape = torch.load(checkpoint, map_location='cpu')['config']
  config = model.Config(**shape)
  tok = make_tokenizer(options.folder, config.vocab_size)
  run = Run(config, options.folder, torch.device('cuda' if torch.cuda.is_available() else 'cpu'),
            options.threads)
  if os.path.exists(checkpoint):
    run.load(checkpoint)
  if not train(run, tok, options):
    sys.exit(f'stopped at {run.tokens_seen} tokens; the same command goes on')


if __name__ == '__main__':
  main()
