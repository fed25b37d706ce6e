#!/usr/bin/env python3
"""The hand-written CPU step against torch's autograd, and an export read back. Bazel skips it where torch is not installed."""

import contextlib
import os
import random
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import torch
import export
import fast_cpu
import generator
import model
import tokenizer

CONFIG = model.Config(vocab_size=300, hidden=64, intermediate=128, layers=2)


def random_weights():
  torch.manual_seed(5)
  weights = model.init_weights(CONFIG, 5)
  for name in weights:
    if name.endswith(('.o', '.down')):
      weights[name] = 0.1 * torch.randn_like(weights[name])
    elif 'norm' in name:
      weights[name] = 1 + 0.1 * torch.randn_like(weights[name])
  return weights


# How far the fast step may be from the exact one, in what the exact one itself moves by when its weights, and what its norms
# and rotations give, are rounded to bf16 (the look-back heads' scores of 90 magnify that, so it is not one number for all).
# The fast step rounds in as many places again on the way back.
ROUNDINGS = 4


def bf16(x):
  return x + (x.bfloat16().float() - x).detach()


@contextlib.contextmanager
def rounding():
  """model.py's norms and rotations round what they give to bf16, gradients pass."""
  norm, rotate = model.rms_norm, model.rotate
  model.rms_norm = lambda *arguments: bf16(norm(*arguments))
  model.rotate = lambda x, cos, sin: bf16(rotate(bf16(x), cos, sin))
  try:
    yield
  finally:
    model.rms_norm, model.rotate = norm, rotate


def distance(a, b):
  return ((a.float() - b).norm() / b.norm()).item()


class FastCpuTest(unittest.TestCase):

  def test_loss_and_gradients_match_autograd(self):
    rng = random.Random(5)
    documents = [([rng.randrange(CONFIG.vocab_size) for _ in range(n)], [int(rng.random() < 0.5) for _ in range(n)])
                 for n in (2, 7, 31, 33, 64, 90)]
    weights = random_weights()
    want_loss, _, want = model.loss_and_gradients(weights, CONFIG, documents, torch.device('cpu'))
    loss, _, got = fast_cpu.FastCpu(CONFIG).loss_and_gradients(weights, documents)
    self.assertAlmostEqual(loss, want_loss, delta=0.01)
    self.assertEqual(got.keys(), want.keys())
    with rounding():
      rounded = {name: bf16(weight) for name, weight in weights.items()}
      _, _, moved = model.loss_and_gradients(rounded, CONFIG, documents, torch.device('cpu'))
    for name in want:
      bound = ROUNDINGS * distance(moved[name], want[name])
      self.assertLess(bound, 0.5, name)  # A wrong term is of order 1.
      self.assertLess(distance(got[name], want[name]), bound, name)

  def test_hidden_states_match(self):
    weights, fast = random_weights(), fast_cpu.FastCpu(CONFIG)
    documents = [[(7 * i + n) % CONFIG.vocab_size for i in range(n)] for n in (3, 40)]
    for ids, got in zip(documents, fast.forward(weights, documents)):
      want = model.forward(weights, CONFIG, torch.tensor([ids]))[0]
      with rounding():
        moved = model.forward({name: bf16(weight) for name, weight in weights.items()}, CONFIG, torch.tensor([ids]))[0]
      self.assertLess(distance(got, want), ROUNDINGS * distance(moved, want))

  def test_the_cache_changes_nothing(self):
    weights, ids = random_weights(), torch.arange(20)[None] * 7 % CONFIG.vocab_size
    whole, cache = model.forward(weights, CONFIG, ids), []
    model.forward(weights, CONFIG, ids[:, :12], cache)
    for position in range(12, 20):
      last = model.forward(weights, CONFIG, ids[:, position:position + 1], cache, position)
    self.assertLess((last[0, 0] - whole[0, -1]).abs().max().item(), 1e-4)

  def test_export_reads_back(self):
    tok = tokenizer.Tokenizer([('a', 'b')], generator.SPECIAL_TOKENS)
    config = model.Config(vocab_size=tok.size, hidden=64, intermediate=128, layers=2)
    weights = model.init_weights(config, 1)
    with tempfile.TemporaryDirectory() as folder:
      export.write_folder(folder, weights, config, tok)
      got, got_config, got_tok = export.read_folder(folder)
    self.assertEqual(got_config, config)
    self.assertEqual(got_tok.vocab, tok.vocab)
    for name, weight in weights.items():
      self.assertTrue(torch.equal(got[name], weight.bfloat16().float()), name)


if __name__ == '__main__':
  unittest.main()
