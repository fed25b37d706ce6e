"""Answers evaluation items with the torch model, without a server."""

import torch

import evaluation
import generator
import model


@torch.no_grad()
def says_exactly(weights, config, tok, item):
  """Whether greedy decoding yields the expected answer and then ends: one forward pass over prompt and answer."""
  prompt = evaluation.prompt_ids(tok, item.messages)
  answer = tok.encode(item.expected) + [tok.special[generator.END]]
  hidden = model.forward(weights, config, torch.tensor([prompt + answer]))[0, len(prompt) - 1:-1]
  return (hidden @ weights['embed'].t()).argmax(-1).tolist() == answer


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
  results = []
  for item in items:
    if item.kind == 'story':
      text, ended = generate(weights, config, tok, evaluation.prompt_ids(tok, item.messages), 300)
      results.append((item, evaluation.is_right(item, text, ended)))
    else:
      results.append((item, says_exactly(weights, config, tok, item)))
  return results
