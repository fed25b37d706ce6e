#!/usr/bin/env python3
"""The hand-written CPU step against torch's autograd, and an export read back. Skips where torch is not installed."""

import os
import random
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
try:
  import torch
except ImportError:
  print('skipped: needs torch (tools/model/install_deps)')
  sys.exit(0)
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
    elif name.endswith('.qkv'):
      weights[name] *= 0.5  # Scores as large as the look-back heads' would magnify what bf16 rounds.
    elif 'norm' in name:
      weights[name] = 1 + 0.1 * torch.randn_like(weights[name])
  return weights


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
    for name in want:
      error = (got[name] - want[name]).norm() / want[name].norm()
      self.assertLess(error, 0.1, name)  # bf16 rounds each product to 8 bits; a wrong term is of order 1.

  def test_hidden_states_match(self):
    weights, fast = random_weights(), fast_cpu.FastCpu(CONFIG)
    documents = [[(7 * i + n) % CONFIG.vocab_size for i in range(n)] for n in (3, 40)]
    for ids, got in zip(documents, fast.forward(weights, documents)):
      want = model.forward(weights, CONFIG, torch.tensor([ids]))[0]
      self.assertLess((got.float() - want).norm() / want.norm(), 0.03)

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
