"""Short stories in the past or the present tense, each with a beginning, a problem and a proper end."""

import lexicon as lex

# (past, present) of each verb that a story uses.
VERBS = {
    'be': ('was', 'is'), 'live': ('lived', 'lives'), 'love': ('loved', 'loves'), 'go': ('went', 'goes'),
    'see': ('saw', 'sees'), 'lose': ('lost', 'loses'), 'look': ('looked', 'looks'), 'find': ('found', 'finds'),
    'ask': ('asked', 'asks'), 'say': ('said', 'says'), 'help': ('helped', 'helps'), 'give': ('gave', 'gives'),
    'take': ('took', 'takes'), 'run': ('ran', 'runs'), 'smile': ('smiled', 'smiles'), 'walk': ('walked', 'walks'),
    'make': ('made', 'makes'), 'feel': ('felt', 'feels'), 'come': ('came', 'comes'), 'hear': ('heard', 'hears'),
    'want': ('wanted', 'wants'), 'can': ('could', 'can'), 'cry': ('cried', 'cries'), 'share': ('shared', 'shares'),
    'thank': ('thanked', 'thanks'), 'fall': ('fell', 'falls'), 'open': ('opened', 'opens'),
    'sleep': ('slept', 'sleeps'), 'have': ('had', 'has'), 'bring': ('brought', 'brings'), 'are': ('were', 'are'),
    'play': ('played', 'play'), 'eat': ('ate', 'eat'), 'become': ('became', 'become'), 'laugh': ('laughed', 'laugh'),
    'do': ('did', 'does'),
}
FEELINGS = 'happy sad proud tired brave glad calm hungry'.split()
WEATHERS = 'sunny rainy windy cold warm quiet'.split()


class Cast:
  """The words of one story; `verb(word)` is in the story's tense."""

  def __init__(self, rng, hero=None, past=None):
    self.past = rng.random() < 0.6 if past is None else past
    self.hero = hero or rng.choice(lex.NAMES)
    self.friend = rng.choice([n for n in lex.NAMES if n != self.hero])
    self.she, self.her = lex.PRONOUN.get(self.hero, ('they', 'their'))
    self.adjective, self.object = rng.choice(lex.ADJECTIVES), rng.choice(lex.OBJECTS)
    self.place, self.other_place = rng.sample(lex.PLACES, 2)
    self.animal, self.food, self.pet = rng.choice(lex.ANIMALS), rng.choice(lex.FOODS), rng.choice(lex.PETS)
    self.weather = rng.choice(WEATHERS)

  def verb(self, word):
    return VERBS[word][0 if self.past else 1]


def _opening(rng, c):
  v, a = c.verb, lex.article(c.adjective)
  job = rng.choice(lex.JOBS)
  start = 'Once' if c.past else 'Here'
  return rng.choice((
      f'{start} there {v("be")} {lex.article(job)} {job} called {c.hero}.',
      f'{c.hero} {v("live")} near the {c.place}.',
      f'It {v("be")} a {c.weather} day, and {c.hero} {v("be")} at the {c.place}.',
      f'{c.hero} {v("have")} {a} {c.adjective} {c.object}.',
      f'One {c.weather} morning {c.hero} {v("go")} to the {c.place}.'))


def _lost(rng, c):
  v = c.verb
  helper = rng.choice((c.friend, f'an old {c.animal}'))
  return [
      f'{c.hero} {v("love")} {c.her} {c.adjective} {c.object}.',
      f'One day {c.she} {v("lose")} the {c.object} at the {c.place}.',
      rng.choice((f'{c.hero} {v("look")} behind the {rng.choice(lex.FURNITURE)}, but it {v("be")} not there.',
                  f'{c.hero} {v("be")} very sad and {v("cry")}.')),
      f'Then {helper} {v("come")} along. "Can I help you?" {v("ask")} {helper}.',
      f'"I lost my {c.adjective} {c.object}," {v("say")} {c.hero}.',
      f'Together they {"looked" if c.past else "look"} in the {c.other_place}, and there it {v("be")}!',
      f'{c.hero} {v("thank")} {helper}.']


def _animal(rng, c):
  v = c.verb
  return [
      f'On the way {c.she} {v("hear")} a small sound.',
      f'It {v("be")} {lex.article(c.animal)} {c.animal}. The {c.animal} {v("be")} {rng.choice(("cold", "hungry", "sad"))}.',
      f'{c.hero} {v("give")} the {c.animal} some {c.food} and {v("take")} it to the {c.other_place}.',
      rng.choice((f'"I will call you {c.pet}," {v("say")} {c.hero}.',
                  f'{c.friend} {v("bring")} a warm blanket for the {c.animal}.')),
      f'Soon the {c.animal} {v("feel")} much better.']


def _gift(rng, c):
  v = c.verb
  return [
      f'{c.hero} {v("want")} to make a gift for {c.friend}.',
      f'{c.hero} {v("make")} {lex.article(c.adjective)} {c.adjective} {c.object} and {v("take")} it to the {c.other_place}.',
      rng.choice((f'But the {c.object} {v("fall")} on the stones, and it {v("be")} broken.',
                  f'But {c.friend} {v("be")} not at home.')),
      f'"Do not worry," {v("say")} {rng.choice(("a kind", "an old"))} {rng.choice(lex.JOBS)}. "We can try again."',
      f'So {c.she} {v("do")}, and {c.friend} {v("love")} the {c.object}.']


def _journey(rng, c):
  v = c.verb
  return [
      f'{c.hero} and {c.friend} {v("are")} on the road to {rng.choice(lex.TOWNS)}.',
      f'At the {c.place} they {"met" if c.past else "meet"} {lex.article(c.animal)} {c.animal} with {lex.article(c.adjective)} {c.adjective} {c.object}.',
      f'"Where do you want to go?" {v("ask")} the {c.animal}.',
      f'"To the {c.other_place}," {v("say")} {c.friend}.',
      f'The {c.animal} {v("walk")} with them until the sun {"went" if c.past else "goes"} down.',
      rng.choice((f'There they {"shared" if c.past else "share"} some {c.food} and {v("laugh")}.',
                  f'{c.hero} {v("give")} the {c.animal} some {c.food}.'))]


def _ending(rng, c):
  v = c.verb
  feeling = rng.choice(FEELINGS[:1] + FEELINGS[2:3] + FEELINGS[5:6])
  return rng.choice((
      [f'{c.hero} {v("be")} {feeling}.', 'The end.'],
      [f'That night {c.hero} {v("sleep")} well.', 'The end.'],
      [f'{c.hero} and {c.friend} {v("are")} friends for ever.', 'The end.'],
      [f'{c.hero} {v("smile")} and {v("walk")} home.', 'The end.']))


def story(rng, hero=None, past=None):
  """Returns (sentences, cast)."""
  c = Cast(rng, hero, past)
  middle = rng.choice((_lost, _animal, _gift, _journey))(rng, c)
  return [_opening(rng, c)] + middle + _ending(rng, c), c
