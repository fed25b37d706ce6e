#!/usr/bin/env python3
"""The generator is deterministic, and its answers follow from its texts."""

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

  def test_hard_facts_share_the_words_of_their_keys(self):
    shared = 0
    for seed in range(50):
      keys = [f.key for f in facts.hard_world(random.Random(seed), 30)]
      self.assertEqual(len(set(keys)), len(keys))
      self.assertGreater(len(keys), 1)
      near = lambda a: any(a != b and len(a) == len(b) and sum(x != y for x, y in zip(a, b)) == 1 for b in keys)
      shared += sum(near(key) for key in keys) / len(keys)
    self.assertGreater(shared / 50, 0.8)

  def test_recalled_values_are_the_answers(self):
    for seed in range(50):
      lines = ''.join(t for t, _ in generator.recall_document(random.Random(seed), 300, 3)[1:]).split('\n')
      rng = random.Random(seed)
      _, pairs = generator.mixed_context(rng, max(24, 300 * rng.uniform(0.35, 0.7)), 3)
      wanted = [answer for _, answer in pairs if generator.recall_key(answer)]
      self.assertEqual(lines[-1 - len(wanted):-1], wanted)

  def test_a_question_has_one_answer(self):
    for seed in range(100):
      answers = {}
      world = (facts.world, facts.hard_world)[seed % 2]
      for question, answer in generator.fact_context(random.Random(seed), 40, 0.3, world).pairs:
        self.assertEqual(answers.setdefault(question, answer), answer)

  def test_the_value_of_an_answer_stands_in_the_context(self):
    for seed in range(100):
      rng = random.Random(seed)
      for context in (generator.fact_context(rng, 20, 0.3), generator.lookup_context(rng, 20), generator.quote_context(rng, 8),
                      generator.fact_context(rng, 20, 0.3, facts.hard_world), generator.hard_lookup_context(rng, 20)):
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
      segments = generator.document(rng, 300, rng.randrange(4))
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
