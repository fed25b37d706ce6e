#!/usr/bin/env python3
"""The BPE: round trips, determinism, and the form of its tokenizer.json."""

import json
import os
import random
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import generator
import tokenizer


def small_tokenizer():
  rng = random.Random(3)
  texts = [t for _ in range(200) for t, _ in generator.document(rng, 200) if t not in generator.SPECIAL_TOKENS]
  return tokenizer.Tokenizer(tokenizer.train_merges(tokenizer.count_pieces(texts), 300), generator.SPECIAL_TOKENS)


class TokenizerTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    cls.tok = small_tokenizer()

  def test_any_text_comes_back(self):
    for text in ("Ana's red kite.", 'Grüße, été, 数据, \U0001f426', '  two  spaces\n\n\ttabs\r\n', "it's 1234 we'LL", '', '_a__b'):
      self.assertEqual(self.tok.decode(self.tok.encode(text)), text)
      self.assertEqual(''.join(tokenizer.pieces(text)), text)

  def test_pieces(self):
    self.assertEqual(tokenizer.pieces("Ana's kite, 42\nx"), ['Ana', "'s", ' kite', ',', ' ', '4', '2', '\n', 'x'])
    self.assertEqual(tokenizer.pieces('"The end.\nNext'), ['"The', ' end', '.\n', 'Next'])

  def test_segments_encode_as_the_whole(self):
    rng = random.Random(4)
    for i in range(200):
      segments = generator.document(rng, 200, stage=i % 4)
      ids, weights = self.tok.encode_segments(segments)
      self.assertEqual(len(ids), len(weights))
      whole, run = [], ''
      for text, _ in segments + [(generator.END, 0)]:
        if text in self.tok.special:
          whole += self.tok.encode(run) + [self.tok.special[text]]
          run = ''
        else:
          run += text
      self.assertEqual(ids, whole[:-1])

  def test_training_is_deterministic(self):
    self.assertEqual(self.tok.merges, small_tokenizer().merges)

  def test_json_form(self):
    data = json.loads(json.dumps(self.tok.to_json()))
    self.assertEqual(data['model']['type'], 'BPE')
    self.assertEqual(data['decoder']['type'], 'ByteLevel')
    self.assertEqual([p['type'] for p in data['pre_tokenizer']['pretokenizers']], ['Split', 'ByteLevel'])
    self.assertEqual(sorted(list(data['model']['vocab'].values()) + [t['id'] for t in data['added_tokens']]),
                     list(range(self.tok.size)))
    for merge in data['model']['merges']:
      self.assertIn(merge.replace(' ', ''), data['model']['vocab'])
    again = tokenizer.Tokenizer.from_json(data)
    self.assertEqual(again.encode("Where is Ana's red kite?"), self.tok.encode("Where is Ana's red kite?"))


if __name__ == '__main__':
  unittest.main()
