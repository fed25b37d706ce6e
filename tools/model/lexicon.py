"""The words that the generator combines. Most become one token each (tokenizer.py)."""

NAMES_F = ('Ana Mia Zoe Lena Nora Ida Ruth Vera Rosa Ella Iris Jane Kate Lily Maya Nina Olga Petra '
           'Sara Tina Una Wanda Alma Clara Dora Edith Flora Greta Hanna Ines Julia Lucy Marta Paula '
           'Rita Sofia Thea Yara Zara Emma').split()
NAMES_M = ('Ben Tom Max Leo Sam Jack Hugo Karl Luis Mark Nico Oscar Paul Ravi Simon Theo Umar Victor '
           'Will Yusuf Adam Bruno Carlo David Emil Felix Georg Henry Ivan Jonas Kofi Lars Milan Noah '
           'Omar Pedro Rolf Stefan Tariq Walter').split()
NAMES = NAMES_F + NAMES_M
PRONOUN = {n: ('she', 'her') for n in NAMES_F} | {n: ('he', 'his') for n in NAMES_M}

COLOURS = ('red blue green yellow black white brown pink grey purple orange silver golden').split()
ADJECTIVES = COLOURS + ('old new small big round heavy tiny broken shiny wooden striped soft '
                        'dusty square').split()

OBJECTS = ('kite drum lamp book ball cup coat hat key map ring boat bell box chair clock coin comb '
           'doll fan flag flute fork glove hammer jar jug kettle ladder mirror mug needle pan pen '
           'pillow plate pot purse rope rug saddle scarf shell shoe spoon stone sword table tent '
           'torch towel toy umbrella vase violin wagon wheel whistle basket bottle brush bucket '
           'candle carpet guitar blanket bicycle camera letter').split()

PLACES = ('barn mill garden kitchen attic cellar market station library school church castle '
          'harbour forest meadow tower bakery museum hospital hotel office palace park pool port '
          'shop stable studio temple theatre tunnel village workshop yard zoo cave camp cottage '
          'farm hall hut inn lake orchard garage valley bridge river field').split()

FURNITURE = ('bed bench cupboard desk door fence hedge oven piano shelf sofa stairs stove tree wall '
             'window gate drawer').split()

PREPOSITIONS_PLACE = ('in', 'at', 'near', 'behind', 'outside')
PREPOSITIONS_FURNITURE = ('under', 'behind', 'beside', 'on', 'near')

ANIMALS = ('dog cat horse cow goat sheep hen duck goose fox wolf bear rabbit mouse owl crow parrot '
           'pony donkey pig frog turtle').split()
PETS = ('Comet Biscuit Pepper Shadow Rusty Daisy Ginger Lucky Misty Patch Snowy Tiger Willow Storm '
        'Maple Pebble').split()
FOODS = ('apple pear plum cherry bread cheese soup rice honey cake fish butter corn carrot bean nut '
         'lemon peach grape melon pie salad pasta yogurt').split()
JOBS = ('baker farmer teacher doctor sailor painter tailor miller nurse pilot cook writer singer '
        'dancer gardener builder hunter judge barber driver weaver potter').split()
TOWNS = ('Ashford Bexley Calder Dunmore Elmwood Fairhaven Glenby Harwick Ironvale Kelso Lorne '
         'Marlow Norwell Oakham Penrith Redcliff Selby Thorne Upton Westbrook').split()
DAYS = 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split()
SPORTS = 'chess tennis football swimming rowing skating running dancing fishing painting'.split()
SUBJECTS = ('colour', 'food', 'animal', 'sport', 'day', 'number')

WEATHER = ('The sun is warm today.', 'It rained all night.', 'The wind is cold.',
           'Birds sing in the trees.', 'The street is quiet now.', 'A cart rolls down the road.',
           'Clouds drift over the hills.', 'The bell rings at noon.', 'Snow fell in the morning.',
           'Someone laughs outside.', 'The tea is getting cold.', 'Nobody is in a hurry.')

ONSETS = ('b br c ch d dr f g gr h j k kl l m n p pr qu r s sh sk st t tr v w z').split()
VOWELS = 'a e i o u ai ea oo'.split()
CODAS = ['', '', 'l', 'n', 'r', 's', 'k', 't', 'm', 'nd', 'x']


def plural(noun):
  irregular = {'mouse': 'mice', 'sheep': 'sheep', 'fish': 'fish', 'goose': 'geese', 'wolf': 'wolves',
               'fox': 'foxes', 'box': 'boxes', 'torch': 'torches', 'brush': 'brushes',
               'cherry': 'cherries', 'pony': 'ponies', 'peach': 'peaches', 'donkey': 'donkeys'}
  return irregular.get(noun, noun + 's')


def article(word):
  return 'an' if word[0].lower() in 'aeiou' else 'a'


def invented_word(rng):
  """A word that is in no list, so that copying must work for any spelling."""
  return ''.join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
                 for _ in range(rng.choice((1, 2, 2, 3))))


def code(rng):
  """A short code of letters and digits such as `k7m2`."""
  return ''.join(rng.choice('abcdefghjkmnpqrstuvwxyz') + rng.choice('0123456789')
                 for _ in range(rng.choice((1, 2, 2, 3))))
