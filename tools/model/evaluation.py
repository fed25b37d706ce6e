"""Held-out questions with their right answers, and the table of results. Only the standard library."""

import collections
import random

import generator

EVAL_SEED = 'held-out'  # Training seeds are `<number>:<step>`; no stream of theirs is this one.
LENGTHS = (256, 512, 1024, 2048)
DEPTHS = 5
NEEDS_CONTEXT = ('facts', 'lookup', 'quote')
SHORT_KINDS = ('copy', 'count', 'sum', 'story')

# messages: [{'role', 'content'}]; length: tokens of the rendered prompt, 0 for short kinds; depth: 0 (start) .. DEPTHS - 1.
Item = collections.namedtuple('Item', 'kind length depth messages expected')


def render(messages):
  """The chat template: text of the prompt up to where the assistant speaks, as segments."""
  roles = {'system': generator.SYSTEM, 'user': generator.USER, 'assistant': generator.ASSISTANT}
  segments = [(generator.BEGIN, 0)]
  for m in messages:
    segments += [(roles[m['role']], 0), (m['content'], 0), (generator.END, 0)]
  return segments + [(generator.ASSISTANT, 0)]


def prompt_ids(tok, messages):
  return tok.encode_segments(render(messages))[0]


def _context(rng, kind, count):
  if kind == 'facts':
    return generator.fact_context(rng, count, rng.choice((0, 0, 0.3)))
  return (generator.lookup_context if kind == 'lookup' else generator.quote_context)(rng, count)


def _messages(rng, context, question):
  question = rng.choice(generator.ASKS) + question
  if rng.random() < 0.3:
    return [{'role': 'system', 'content': context}, {'role': 'user', 'content': question}]
  return [{'role': 'user', 'content': rng.choice(generator.LEADS) + context + '\n' + question}]


def context_item(tok, seed, kind, length, depth):
  """A question whose prompt has at most `length` tokens and, but for small worlds, at least nine tenths of them."""
  count, best = max(2, length // 14), None
  for attempt in range(12):
    rng = random.Random(f'{seed}:{kind}:{length}:{depth}:{attempt % 3}')
    context = _context(rng, kind, count)
    low = len(context.pairs) * depth // DEPTHS
    high = max(low + 1, len(context.pairs) * (depth + 1) // DEPTHS)
    question, answer = context.pairs[rng.randrange(low, min(high, len(context.pairs)))]
    messages = _messages(rng, context.text, question)
    tokens = len(prompt_ids(tok, messages))
    if tokens <= length and (best is None or tokens > best[0]):
      best = (tokens, Item(kind, length, depth, messages, answer))
    if 0.9 * length <= tokens <= length:
      break
    count = max(2, int(count * 0.96 * length / tokens))
  return best[1]


def short_item(seed, kind):
  rng = random.Random(f'{seed}:{kind}')
  pair = {'copy': generator.copy_pair, 'count': generator.count_pair, 'sum': generator.sum_pair,
          'story': generator.story_pair}[kind](rng)
  return Item(kind, 0, 0, [{'role': 'user', 'content': pair[0]}], pair[1])


def cells(lengths=LENGTHS):
  """Kinds and lengths of the questions; length 0 for short kinds."""
  long_ones = [(kind, n) for kind in NEEDS_CONTEXT for n in lengths if n <= (512 if kind == 'quote' else max(lengths))]
  return long_ones + [(kind, 0) for kind in SHORT_KINDS]


def item(tok, kind, length, i, seed=EVAL_SEED):
  """The i-th item of a kind and length, depths alternate."""
  return context_item(tok, f'{seed}:{i}', kind, length, i % DEPTHS) if length else short_item(f'{seed}:{i}', kind)


def items(tok, count, seed=EVAL_SEED, lengths=LENGTHS):
  """`count` items of each kind and length."""
  return [item(tok, kind, length, i, seed) for kind, length in cells(lengths) for i in range(count)]


def is_right(item, text, ended):
  """Whether `text` answers the item; `ended`: the model stopped by itself."""
  if item.kind == 'story':
    return ended and text.endswith('The end.') and text.count('.') >= 5
  return ended and text == item.expected


def table(results):
  """results: (item, right) pairs -> lines of text: one per kind and length, with the share of correct answers by depth."""
  cells = collections.defaultdict(list)
  for item, right in results:
    cells[item.kind, item.length].append((item.depth, right))
  lines = ['| kind | tokens | n | right | by depth, start to end |', '|---|---|---|---|---|']
  for (kind, length), rows in cells.items():
    depths = ''
    if length:
      by_depth = [[r for d, r in rows if d == depth] for depth in range(DEPTHS)]
      depths = ' '.join(f'{100 * sum(r) / len(r):.0f}' if r else '-' for r in by_depth)
    share = 100 * sum(r for _, r in rows) / len(rows)
    lines.append(f'| {kind} | {length or "short"} | {len(rows)} | {share:.1f} % | {depths} |')
  return '\n'.join(lines)
