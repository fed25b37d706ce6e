"""Training and evaluation documents: chats and plain texts, from a seed. No outside text.

A document is a list of (text, weight) segments; weight 1 marks what the model must say, 0 what it is given. Segment
borders are always token borders, so encoding segment by segment equals encoding the whole.
"""

import collections
import re

import facts
import lexicon as lex
import stories

BEGIN, END = '<|begin|>', '<|end|>'
SYSTEM, USER, ASSISTANT = '<|system|>', '<|user|>', '<|assistant|>'
SPECIAL_TOKENS = (BEGIN, END, SYSTEM, USER, ASSISTANT)

# `text` is given, `pairs` are (question, answer) that it determines, in the order of the text.
Context = collections.namedtuple('Context', 'text pairs')

SYSTEM_PROMPTS = ('You are a careful assistant.', 'Answer from the text.', 'You are Fledgling, a small model.',
                  'Be brief and exact.', 'Read the text and answer.', 'You are a helpful assistant.')
LEADS = ('', '', '', 'Read this. ', 'Here is what I know. ', 'Some notes: ', 'Please read. ')
ASKS = ('', '', '', '', 'Tell me: ', 'Question: ', 'I forgot. ', 'Please answer. ')


# Of a world's statements, how many name the value before the key, by stage; a world draws one of these.
VALUE_FIRST_SHARES = ((0.0,), (0.0, 0.0, 0.3), (0.0, 0.3, 0.6), (0.0, 0.3, 0.6))
# Of the documents, how many are skills (copying, counting, sums) and how many are stories, by stage.
SKILLS_SHARES, STORY_SHARES = (0.135, 0.135, 0.09, 0.07), (0.025, 0.025, 0.09, 0.03)
# From stage 3 on: of the contexts, how many are made of things hard to tell apart; of the documents that ask about a context,
# how many recall its values without questions.
HARD_STAGE, HARD_SHARE, RECALL_SHARE = 3, 0.6, 0.45


# Contexts


def fact_context(rng, count, value_first_share=0.0, world=facts.world):
  items = world(rng, count, value_first_share)
  separator = rng.choice((' ', ' ', ' ', '\n', '\n- '))
  lines = []
  for item in items:
    lines.append(item.statement)
    if rng.random() < 0.04:
      lines.append(rng.choice(lex.WEATHER))
  return Context(separator.join(lines), [(f.question, f.answer) for f in items])


def _key(rng, kind):
  return {'object': lambda: rng.choice(lex.OBJECTS), 'name': lambda: rng.choice(lex.NAMES),
          'pair': lambda: f'{rng.choice(lex.ADJECTIVES)} {rng.choice(lex.OBJECTS)}',
          'code': lambda: lex.code(rng), 'invented': lambda: lex.invented_word(rng),
          'number': lambda: str(rng.randint(1, 999))}[kind]()


def _value(rng, kind):
  return {'number': lambda: str(rng.randint(10, 9999)), 'word': lambda: rng.choice(lex.OBJECTS + lex.PLACES + lex.FOODS),
          'pair': lambda: f'{rng.choice(lex.ADJECTIVES)} {rng.choice(lex.ANIMALS)}', 'code': lambda: lex.code(rng),
          'place': lambda: facts.place(rng)}[kind]()


def lookup_context(rng, count):
  """Lines of `key: value`."""
  keys = rng.choices(('object', 'name', 'pair', 'code', 'invented', 'number'), (2, 2, 4, 2, 1, 2), k=rng.choice((1, 1, 2)))
  values = rng.choices(('number', 'word', 'pair', 'code', 'place'), (3, 3, 2, 2, 1), k=rng.choice((1, 1, 2)))
  table = {}
  for _ in range(2 * count):
    if len(table) < count:
      table.setdefault(_key(rng, rng.choice(keys)), _value(rng, rng.choice(values)))
  return _table_context(rng, table)


def _table_context(rng, table):
  lines = [f'{k}: {v}' for k, v in table.items()]
  pairs = [(rng.choice((f'What is the value of {k}?', f'Look up {k}.', f'Find the line of {k}.', f'What is {k}?')), f'{k}: {v}')
           for k, v in table.items()]
  return Context(rng.choice(('', 'A list:\n', 'Here are some values.\n')) + '\n'.join(lines), pairs)


def hard_lookup_context(rng, count):
  """Lines of `key: value` whose keys are of one kind and share their parts."""
  side = round((rng.uniform(1.5, 2.5) * count)**0.5) + 1
  adjectives = rng.sample(lex.ADJECTIVES, min(len(lex.ADJECTIVES), side))
  objects = rng.sample(lex.OBJECTS, min(len(lex.OBJECTS), side))
  letters, digits = rng.sample('abcdefghjkmnpqrstuvwxyz', 6), rng.sample('0123456789', 5)
  stems = [lex.invented_word(rng) for _ in range(2 + count // 8)]
  first = rng.randint(1, 900)
  draw = rng.choice((lambda: f'{rng.choice(adjectives)} {rng.choice(objects)}',
                     lambda: f'{rng.choice(adjectives)} {rng.choice(objects)}',
                     lambda: ''.join(rng.choice(letters) + rng.choice(digits) for _ in range(rng.choice((2, 2, 3)))),
                     lambda: rng.choice(stems) + lex.invented_word(rng), lambda: lex.invented_word(rng),
                     lambda: str(first + rng.randrange(2 * count))))
  values = rng.choices(('number', 'word', 'pair', 'code', 'place'), (3, 2, 3, 3, 2), k=rng.choice((1, 1, 2)))
  table = {}
  for _ in range(2 * count):
    if len(table) < count:
      table.setdefault(draw(), _value(rng, rng.choice(values)))
  return _table_context(rng, table)


def random_line(rng, words_count):
  """Something to copy: a fact, a sentence of a story, or words in no order."""
  if rng.random() < 0.3:
    return ' '.join(f.statement for f in facts.world(rng, max(1, words_count // 8)))
  if rng.random() < 0.2:
    return rng.choice(stories.story(rng)[0]).replace('"', '')
  words = []
  for _ in range(words_count):
    words.append(rng.choice((rng.choice(lex.OBJECTS), rng.choice(lex.PLACES), rng.choice(lex.ADJECTIVES),
                             rng.choice(lex.NAMES), rng.choice(lex.FOODS), str(rng.randint(0, 999)),
                             rng.choice(('the', 'and', 'is', 'in', 'of', 'a', 'to')))))
    if rng.random() < 0.06:
      words[-1] = lex.invented_word(rng)
  return ' '.join(words) + rng.choice(('', '.', '!', '?'))


def quote_context(rng, count):
  """A dialogue: who said what."""
  speakers = rng.sample(lex.NAMES, min(count, 24))
  said = [(n, random_line(rng, rng.randint(3, 9))) for n in speakers]
  return Context(rng.choice((' ', '\n')).join(f'{n} said: "{line}"' for n, line in said),
                 [(rng.choice((f'What did {n} say?', f'Repeat what {n} said.')), f'{n} said: "{line}"') for n, line in said])


# Pairs that need no context


def copy_pair(rng, words_max=20):
  line = random_line(rng, rng.randint(2, words_max))
  ask = rng.choice(('Repeat this line: "%s"', 'Copy: "%s"', 'Say exactly this: "%s"', 'Please copy this line: "%s"'))
  return ask % line, line


def sum_pair(rng):
  a, b = rng.randint(0, 10), rng.randint(0, 10)
  if rng.random() < 0.3:
    a, b = max(a, b), min(a, b)
    return rng.choice((f'What is {a} - {b}?', f'{a} - {b} =')), f'{a} - {b} = {a - b}'
  if rng.random() < 0.3:
    n, m = rng.sample(lex.NAMES, 2)
    o = lex.plural(rng.choice(lex.OBJECTS + lex.FOODS))
    return f'{n} has {a} {o} and {m} has {b} {o}. How many {o} do they have together?', f'{a} + {b} = {a + b}'
  return rng.choice((f'What is {a} + {b}?', f'{a} + {b} =', f'Add {a} and {b}.')), f'{a} + {b} = {a + b}'


def count_pair(rng):
  if rng.random() < 0.4:
    a = rng.randint(0, 30)
    b = a + rng.randint(2, 9)
    return f'Count from {a} to {b}.', ', '.join(str(i) for i in range(a, b + 1)) + '.'
  words = rng.sample(rng.choice((lex.OBJECTS, lex.FOODS, lex.ANIMALS, lex.PLACES)), rng.randint(1, 10))
  answer = ', '.join(f'{i + 1} {w}' for i, w in enumerate(words))
  return (rng.choice(('Count these: %s.', 'How many things are in this list: %s?', 'Count the words: %s.'))
          % ', '.join(words), f'{answer}. The count is {len(words)}.')


def story_pair(rng):
  sentences, cast = stories.story(rng)
  tense = 'in the past' if cast.past else 'in the present'
  ask = rng.choice((f'Tell me a story about {cast.hero}.', f'Tell me a story about {cast.hero} {tense}.',
                    f'Write a short story about {cast.hero} and {cast.friend}.', 'Tell me a short story.'))
  return ask, ' '.join(sentences)


# Documents


def _chat(rng, context, pairs):
  """A chat about `context` (None for none): the text stands in the system message or before the first question."""
  segments, lead = [(BEGIN, 0)], ''
  if context is not None and rng.random() < 0.3:
    segments += [(SYSTEM, 0), (rng.choice(LEADS) + context, 0), (END, 0)]
  else:
    if rng.random() < 0.3:
      segments += [(SYSTEM, 0), (rng.choice(SYSTEM_PROMPTS), 0), (END, 0)]
    if context is not None:
      lead = rng.choice(LEADS) + context + rng.choice((' ', '\n', '\n', '\n\n'))
  for question, answer in pairs:
    segments += [(USER, 0), (lead + rng.choice(ASKS) + question, 0), (END, 0), (ASSISTANT, 0), (answer, 1), (END, 1)]
    lead = ''
  return segments


def _plain(rng, context, pairs):
  """The same without chat roles, as for a completion endpoint."""
  head, tail = rng.choice((('Question:', 'Answer:'), ('Q:', 'A:')))
  segments = [(BEGIN, 0)] + ([(context + '\n', 0)] if context else [])
  for question, answer in pairs:
    segments += [(f'{head} {question}\n{tail}', 0), (f' {answer}\n', 1)]
  return segments


def mixed_context(rng, tokens, stage):
  """Contexts of one or several kinds of about `tokens` tokens together."""
  parts_count = 1 if tokens < 200 or rng.random() < 0.7 else rng.randint(2, 4)
  texts, pairs = [], []
  kinds = rng.sample(('facts', 'lookup', 'quote', 'facts2'), parts_count) if parts_count > 1 else None
  for i in range(parts_count):
    part = tokens / parts_count
    kind = kinds[i] if kinds else rng.choices(('facts', 'lookup', 'quote'), (64, 24, 12))[0]
    hard = stage >= HARD_STAGE and rng.random() < HARD_SHARE
    if kind == 'lookup':
      context = (hard_lookup_context if hard else lookup_context)(rng, max(2, int(part / 8)))
    elif kind == 'quote':
      context = quote_context(rng, max(2, int(part / 14)))
    else:
      context = fact_context(rng, max(2, int(part / 11.5)), rng.choice(VALUE_FIRST_SHARES[stage]),
                             facts.hard_world if hard else facts.world)
    texts.append(context.text)
    pairs += context.pairs
  rng.shuffle(pairs)
  return '\n'.join(texts), pairs


def retrieval_document(rng, tokens, stage):
  """A context and many questions about it."""
  asked_tokens = max(60, tokens * rng.uniform(0.4, 0.7))
  context, pairs = mixed_context(rng, max(24, tokens - asked_tokens), stage)
  pairs = pairs[:max(1, int(asked_tokens / 27))]
  return (_plain if rng.random() < 0.1 else _chat)(rng, context, pairs)


_KEY = re.compile(r'(?:[^:"]+? (?:is called|is|works as|lives in|costs|said:)|\w+ gave .+ to|[^: ]+(?: [^: ]+)?:)(?= )')


def recall_key(answer):
  """The answer up to where its value begins; '' if the words before it do not tell which value is meant."""
  key = _KEY.match(answer)
  return key.group() if key else ''


def recall_document(rng, tokens, stage):
  """A context, then its answers in another order without questions; only the values are to be said. Of the tokens, more carry
  loss than with questions."""
  context, pairs = mixed_context(rng, max(24, tokens * rng.uniform(0.35, 0.7)), stage)
  segments = [(BEGIN, 0), (context + '\n', 0)]
  for _, answer in pairs:
    key = recall_key(answer)
    if key:
      segments += [(key, 0), (answer[len(key):] + '\n', 1)]
  return segments


def skills_document(rng, tokens):
  """Copying, counting and sums in one chat."""
  pairs, left = [], tokens
  while left > 0:
    pair = rng.choice((copy_pair, copy_pair, sum_pair, sum_pair, count_pair))(rng)
    pairs.append(pair)
    left -= (len(pair[0]) + len(pair[1])) / 3.5 + 4
  return (_plain if rng.random() < 0.1 else _chat)(rng, None, pairs)


def story_document(rng):
  ask, text = story_pair(rng)
  if rng.random() < 0.3:
    return [(BEGIN, 0), (text, 1), (END, 1)]
  return _chat(rng, None, [(ask, text)])


def echo_document(rng, tokens):
  """Random words, then the same again: the simplest look-up."""
  words = [' ' + (rng.choice(lex.NAMES + lex.OBJECTS + lex.PLACES + lex.ADJECTIVES + lex.FOODS) if rng.random() < 0.9
                  else str(rng.randint(0, 99))) for _ in range(max(4, int(tokens / 2.2)))]
  start = rng.randrange(len(words) // 2)
  return [(BEGIN, 0), (''.join(words), 0), (words[start], 0), (''.join(words[start + 1:]), 1)]


def document(rng, tokens, stage=1):
  """One training document of about `tokens` tokens (stories have their own length). stage: 0 begins, 1 widens, 2 ends with
  more of what is learnt last, 3 tells alike things apart."""
  kind = rng.random()
  if stage == 0 and kind < 0.4:
    return echo_document(rng, tokens)
  if kind < 1 - SKILLS_SHARES[stage] - STORY_SHARES[stage]:
    if stage >= HARD_STAGE and rng.random() < RECALL_SHARE:
      return recall_document(rng, tokens, stage)
    return retrieval_document(rng, tokens, stage)
  return skills_document(rng, min(tokens, 300)) if kind < 1 - STORY_SHARES[stage] else story_document(rng)
