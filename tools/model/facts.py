"""Facts: a statement, the question that asks for it and the one right answer.

Every answer restates its question's key words before the value, so that reading the value is a look-up of the nearest
matching words. Distractors share parts of the key: a world draws all its facts from few names, things and words.
"""

import collections

import lexicon as lex

# `key` is unique in a world; `question` and `answer` are final text.
Fact = collections.namedtuple('Fact', 'key statement question answer')


class Pools:
  """The small vocabulary of one world's facts, so that its facts resemble each other."""

  def __init__(self, rng, facts_count):
    share = rng.uniform(1.0, 3.0)
    size = lambda low, words: max(low, min(len(words), int(low + share * facts_count**0.5)))
    self.names = rng.sample(lex.NAMES, size(2, lex.NAMES))
    for _ in range(facts_count // 12 if rng.random() < 0.5 else 0):
      self.names.append(lex.invented_word(rng).capitalize())
    self.adjectives = rng.sample(lex.ADJECTIVES, size(2, lex.ADJECTIVES))
    self.objects = rng.sample(lex.OBJECTS, size(2, lex.OBJECTS))
    self.animals = rng.sample(lex.ANIMALS, size(3, lex.ANIMALS))

  def place(self, rng):
    return place(rng)


def place(rng):
  if rng.random() < 0.7:
    return rng.choice(lex.PREPOSITIONS_PLACE) + ' the ' + rng.choice(lex.PLACES)
  return rng.choice(lex.PREPOSITIONS_FURNITURE) + ' the ' + rng.choice(lex.FURNITURE)


class HardPools(Pools):
  """Barely more combinations of words than facts, so that most keys share all but one word with others; places share their
  prepositions."""

  def __init__(self, rng, facts_count, key_words):
    side = lambda words: max(2, round((rng.uniform(1.5, 2.5) * facts_count)**(1 / words) * rng.uniform(0.8, 1.3)))
    some = lambda words, count: rng.sample(words, min(len(words), count))
    names_count = side(3) if key_words == 3 else max(side(2), facts_count // 4)
    if rng.random() < 0.3:
      stems = [lex.invented_word(rng) for _ in range(2 + names_count // 6)]
      self.names = [(rng.choice(stems) + lex.invented_word(rng)).capitalize() for _ in range(names_count)]
    else:
      self.names = some(lex.NAMES, names_count)
    self.adjectives, self.objects = some(lex.ADJECTIVES, side(key_words)), some(lex.OBJECTS, side(key_words))
    self.animals = some(lex.ANIMALS, max(3, len(self.objects)))
    self._prepositions = rng.sample(lex.PREPOSITIONS_PLACE, rng.randint(1, 3))
    self._places = some(lex.PLACES + lex.FURNITURE, rng.choice((6, 12, 99)))

  def place(self, rng):
    return f'{rng.choice(self._prepositions)} the {rng.choice(self._places)}'


def _pronouns(name):
  return lex.PRONOUN.get(name, ('they', 'their'))


def where_is(rng, pools, value_first):
  n, a, o, p = (rng.choice(pools.names), rng.choice(pools.adjectives), rng.choice(pools.objects), pools.place(rng))
  his = _pronouns(n)[1]
  if value_first:
    statement = rng.choice((f'{p.capitalize()} is {n}\'s {a} {o}.', f'{p.capitalize()} lies {n}\'s {a} {o}.',
                            f'{p.capitalize()} you can find {n}\'s {a} {o}.'))
  else:
    statement = rng.choice((f'{n}\'s {a} {o} is {p}.', f'{n}\'s {a} {o} is {p}.', f'{n}\'s {a} {o} lies {p}.',
                            f'{n} left the {a} {o} {p}.', f'{n} put {his} {a} {o} {p}.',
                            f'{n} keeps {his} {a} {o} {p}.', f'{n} hid the {a} {o} {p}.',
                            f'Yesterday {n} lost {his} {a} {o} {p}.', f'The {a} {o} of {n} is {p}.'))
  question = rng.choice((f'Where is {n}\'s {a} {o}?', f'Where is {n}\'s {a} {o}?', f'Where is the {a} {o} of {n}?',
                         f'Where can I find {n}\'s {a} {o}?', f'Do you know where {n}\'s {a} {o} is?'))
  return Fact((n, a, o), statement, question, f'{n}\'s {a} {o} is {p}.')


def favourite(rng, pools, value_first):
  n, s = rng.choice(pools.names), rng.choice(lex.SUBJECTS)
  value = {'colour': lex.COLOURS, 'food': lex.FOODS, 'animal': lex.ANIMALS, 'sport': lex.SPORTS, 'day': lex.DAYS,
           'number': [str(i) for i in range(1, 100)]}[s]
  v = rng.choice(value)
  likes = _pronouns(n)[1]
  if value_first:
    statement = f'{v.capitalize()} is {n}\'s favourite {s}.'
  else:
    statement = rng.choice((f'{n}\'s favourite {s} is {v}.', f'The favourite {s} of {n} is {v}.',
                            f'{n} says that {likes} favourite {s} is {v}.'))
  question = rng.choice((f'What is {n}\'s favourite {s}?', f'Which {s} is {n}\'s favourite?',
                         f'What is the favourite {s} of {n}?'))
  return Fact((n, s), statement, question, f'{n}\'s favourite {s} is {v}.')


def age(rng, pools, value_first):
  n, v = rng.choice(pools.names), rng.randint(2, 99)
  statement = rng.choice((f'{n} is {v} years old.', f'{n} turned {v} years old.'))
  return Fact((n, 'age'), statement, rng.choice((f'How old is {n}?', f'What is the age of {n}?')), f'{n} is {v} years old.')


def job(rng, pools, value_first):
  n, v = rng.choice(pools.names), rng.choice(lex.JOBS)
  statement = rng.choice((f'{n} works as {lex.article(v)} {v}.', f'{n} is {lex.article(v)} {v}.',
                          f'{n} became {lex.article(v)} {v}.'))
  if value_first:
    statement = rng.choice((f'The {v} is called {n}.', f'The name of the {v} is {n}.'))
  return Fact((n, 'job'), statement, rng.choice((f'What is the job of {n}?', f'What does {n} work as?')),
              f'{n} works as {lex.article(v)} {v}.')


def home(rng, pools, value_first):
  n, v = rng.choice(pools.names), rng.choice(lex.TOWNS)
  statement = rng.choice((f'{n} lives in {v}.', f'{n} moved to {v}.', f'{n} has a house in {v}.'))
  if value_first:
    statement = f'In {v} lives {n}.'
  return Fact((n, 'home'), statement, rng.choice((f'Where does {n} live?', f'In which town does {n} live?')),
              f'{n} lives in {v}.')


def gave(rng, pools, value_first):
  n, a, o, m = (rng.choice(pools.names), rng.choice(pools.adjectives), rng.choice(pools.objects),
                rng.choice(lex.NAMES))
  statement = rng.choice((f'{n} gave the {a} {o} to {m}.', f'{n} sold the {a} {o} to {m}.',
                          f'{n} sent the {a} {o} to {m}.'))
  if value_first:
    statement = f'{m} got the {a} {o} from {n}.'
  return Fact((n, a, o, 'gave'), statement,
              rng.choice((f'Who got the {a} {o} from {n}?', f'To whom did {n} give the {a} {o}?')),
              f'{n} gave the {a} {o} to {m}.')


def price(rng, pools, value_first):
  a, o, v = rng.choice(pools.adjectives), rng.choice(pools.objects), rng.randint(2, 99)
  statement = rng.choice((f'The {a} {o} costs {v} coins.', f'The {a} {o} was sold for {v} coins.',
                          f'You can buy the {a} {o} for {v} coins.'))
  return Fact((a, o, 'price'), statement,
              rng.choice((f'How much does the {a} {o} cost?', f'What is the price of the {a} {o}?')),
              f'The {a} {o} costs {v} coins.')


def called(rng, pools, value_first):
  a, o, v = rng.choice(pools.adjectives), rng.choice(pools.animals), rng.choice(lex.PETS)
  statement = rng.choice((f'The {a} {o} is called {v}.', f'The name of the {a} {o} is {v}.',
                          f'They named the {a} {o} {v}.'))
  if value_first:
    statement = f'{v} is the {a} {o}.'
  return Fact((a, o, 'called'), statement,
              rng.choice((f'What is the {a} {o} called?', f'What is the name of the {a} {o}?')),
              f'The {a} {o} is called {v}.')


def meeting(rng, pools, value_first):
  n, m, p, d = rng.choice(pools.names), rng.choice(pools.names), pools.place(rng), rng.choice(lex.DAYS)
  statement = rng.choice((f'{n} will meet {m} {p} on {d}.', f'{n} will visit {m} {p} on {d}.'))
  if value_first:
    statement = f'On {d} {n} will meet {m} {p}.'
  if rng.random() < 0.5:
    return Fact((n, m, 'meet'), statement, rng.choice((f'Where will {n} meet {m}?', f'Where does {n} meet {m}?')),
                f'{n} will meet {m} {p}.')
  return Fact((n, m, 'meet'), statement, rng.choice((f'When will {n} meet {m}?', f'On which day will {n} meet {m}?')),
              f'{n} will meet {m} on {d}.')


KINDS = (where_is, where_is, where_is, where_is, favourite, favourite, age, job, home, gave, gave, price, called, meeting)


def world(rng, facts_count, value_first_share=0.0):
  """At most `facts_count` facts with distinct keys (fewer when the pools run out)."""
  pools = Pools(rng, facts_count)
  kinds = [rng.choice(KINDS)] if rng.random() < 0.3 else KINDS
  if rng.random() < 0.35:
    kinds = (where_is,)
  return _draw(rng, pools, kinds, facts_count, value_first_share)


# Kinds of one hard world, with the words of their keys; sampled with these weights.
HARD_KINDS = (((where_is,), 3), ((gave,), 3), ((where_is, gave), 3), ((price,), 2), ((called,), 2), ((favourite,), 2),
              ((meeting,), 2), (KINDS, 2))
HARD_WEIGHTS = (8, 2, 2, 1, 1, 3, 1, 4)


def hard_world(rng, facts_count, value_first_share=0.0):
  """Like world, with facts that are hard to distinguish."""
  kinds, key_words = rng.choices(HARD_KINDS, HARD_WEIGHTS)[0]
  return _draw(rng, HardPools(rng, facts_count, key_words), kinds, facts_count, value_first_share)


def _draw(rng, pools, kinds, facts_count, value_first_share):
  facts, keys = [], set()
  for _ in range(3 * facts_count):
    if len(facts) == facts_count:
      break
    fact = rng.choice(kinds)(rng, pools, rng.random() < value_first_share)
    if fact.key not in keys:
      keys.add(fact.key)
      facts.append(fact)
  return facts
