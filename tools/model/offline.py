"""Answers evaluation items with the torch model, without a server."""

import torch

import evaluation
import fast_cpu
import generator
import model

TOGETHER = 4  # Items of one pass.


@torch.no_grad()
def say_exactly(fast, weights, tok, items):
  """Of each item, whether greedy decoding yields the expected answer and then ends: one pass over prompts and answers."""
  prompts = [evaluation.prompt_ids(tok, item.messages) for item in items]
  answers = [tok.encode(item.expected) + [tok.special[generator.END]] for item in items]
  hidden = fast.forward(weights, [p + a for p, a in zip(prompts, answers)])
  head = weights['embed'].bfloat16().t()
  return [(h[len(p) - 1:-1] @ head).float().argmax(-1).tolist() == a for p, a, h in zip(prompts, answers, hidden)]


@torch.no_grad()
def generate(weights, config, tok, ids, tokens_max):
  """Greedy decoding. Returns (text, whether the model ended by itself)."""
  cache, out, end = [], [], tok.special[generator.END]
  hidden = model.forward(weights, config, torch.tensor([ids]), cache)
  for position in range(len(ids), len(ids) + tokens_max):
    token = (hidden[0, -1] @ weights['embed'].t()).argmax().item()
    if token == end:
      return tok.decode(out), True
    out.append(token)
    hidden = model.forward(weights, config, torch.tensor([[token]]), cache, position)
  return tok.decode(out), False


def evaluate(weights, config, tok, items):
  """(item, right) for each item."""
  fast, results = fast_cpu.FastCpu(config), {}
  others = [i for i, item in enumerate(items) if item.kind != 'story']
  for first in range(0, len(others), TOGETHER):
    part = others[first:first + TOGETHER]
    results |= zip(part, say_exactly(fast, weights, tok, [items[i] for i in part]))
  for i, item in enumerate(items):
    if item.kind == 'story':
      text, ended = generate(weights, config, tok, evaluation.prompt_ids(tok, item.messages), 300)
      results[i] = evaluation.is_right(item, text, ended)
  return [(item, results[i]) for i, item in enumerate(items)]
