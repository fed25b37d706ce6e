#!/usr/bin/env python3
"""The generator is deterministic, and its answers can be read off its texts."""

import os
import random
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import evaluation
import facts
import generator
import tokenizer


class GeneratorTest(unittest.TestCase):

  def test_same_seed_same_documents(self):
    make = lambda: [generator.document(random.Random(f'7:{i}'), 300) for i in range(50)]
    self.assertEqual(make(), make())

  def test_keys_of_a_world_are_distinct(self):
    for seed in range(50):
      world = facts.world(random.Random(seed), 60, 0.3)
      self.assertEqual(len({f.key for f in world}), len(world))
      self.assertGreater(len(world), 1)

  def test_a_question_has_one_answer(self):
    for seed in range(100):
      answers = {}
      for question, answer in generator.fact_context(random.Random(seed), 40, 0.3).pairs:
        self.assertEqual(answers.setdefault(question, answer), answer)

  def test_the_value_of_an_answer_stands_in_the_context(self):
    for seed in range(100):
      rng = random.Random(seed)
      for context in (generator.fact_context(rng, 20, 0.3), generator.lookup_context(rng, 20), generator.quote_context(rng, 8)):
        for _, answer in context.pairs:
          value = answer.rstrip('.').split()[-1]
          self.assertIn(value.lower(), context.text.lower())

  def test_sums_and_counts_are_right(self):
    rng = random.Random(1)
    for _ in range(200):
      left, right = generator.sum_pair(rng)[1].split(' = ')
      self.assertEqual(eval(left), int(right))  # "a + b" or "a - b" of our own making.

  def test_weights_mark_only_what_the_assistant_says(self):
    rng = random.Random(2)
    for _ in range(100):
      segments = generator.document(rng, 300)
      self.assertTrue(any(w for _, w in segments))
      for (before, _), (_, weight) in zip(segments, segments[1:]):
        if before in (generator.USER, generator.SYSTEM):
          self.assertEqual(weight, 0)

  def test_evaluation_prompts_have_the_wanted_length_and_are_held_out(self):
    tok = tokenizer.Tokenizer([], generator.SPECIAL_TOKENS)
    for depth in range(evaluation.DEPTHS):
      item = evaluation.context_item(tok, 'x', 'facts', 2048, depth)
      tokens = len(evaluation.prompt_ids(tok, item.messages))
      self.assertLessEqual(tokens, 2048)
      self.assertGreater(tokens, 1024)
    self.assertEqual(evaluation.items(tok, 2), evaluation.items(tok, 2))


if __name__ == '__main__':
  unittest.main()
