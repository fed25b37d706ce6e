"""Byte-level BPE: training, encoding, and the Hugging Face `tokenizer.json` (the plain form of Llama 3 and Qwen 2)."""

import collections
import functools
import heapq
import json
import math
import re

# The pattern of Qwen 2 (single digits); written for tokenizers that know \p{L} and \p{N}.
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")
_LETTER = r'[^\W\d_]'
_PIECES = re.compile(r"'(?i:s|t|re|ve|m|ll|d)|(?:(?![\r\n\d])[\W_])?" + _LETTER + r'+|\d| ?(?:(?!\s)[\W_])+[\r\n]*|\s*[\r\n]+'
                     r'|\s+(?!\S)|\s+')


@functools.lru_cache(None)
def byte_alphabet():
  """GPT-2's printable stand-in for each byte."""
  plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
  table, extra = {}, 0
  for b in range(256):
    if b in plain:
      table[b] = chr(b)
    else:
      table[b] = chr(256 + extra)
      extra += 1
  return table


def pieces(text):
  return _PIECES.findall(text)


def _symbols(piece):
  alphabet = byte_alphabet()
  return [alphabet[b] for b in piece.encode('utf-8')]


def train_merges(counts, merges_count):
  """counts: piece -> weight. The usual greedy merging; ties go to the smaller pair, so the result is deterministic."""
  words = [(_symbols(p), c) for p, c in sorted(counts.items())]
  merges = []
  pair_weight, where = collections.Counter(), collections.defaultdict(set)
  for i, (symbols, c) in enumerate(words):
    for pair in zip(symbols, symbols[1:]):
      pair_weight[pair] += c
      where[pair].add(i)
  heap = [(-w, p) for p, w in pair_weight.items()]
  heapq.heapify(heap)
  while len(merges) < merges_count and heap:
    weight, pair = heapq.heappop(heap)
    if pair_weight.get(pair, 0) != -weight:
      continue  # Stale: a newer entry of this pair is in the heap.
    if weight > -1e-9:
      break
    merges.append(pair)
    changed = set()
    for i in sorted(where[pair]):
      symbols, c = words[i]
      for old in zip(symbols, symbols[1:]):
        pair_weight[old] -= c
        changed.add(old)
      symbols = _merge(symbols, pair)
      words[i] = (symbols, c)
      for new in zip(symbols, symbols[1:]):
        pair_weight[new] += c
        where[new].add(i)
        changed.add(new)
    del pair_weight[pair]
    for p in changed - {pair}:
      pair_weight[p] = round(pair_weight[p], 6)
      heapq.heappush(heap, (-pair_weight[p], p))
  return merges


def _merge(symbols, pair):
  out, i = [], 0
  while i < len(symbols):
    if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
      out.append(symbols[i] + symbols[i + 1])
      i += 2
    else:
      out.append(symbols[i])
      i += 1
  return out


def count_pieces(texts):
  """Piece weights for training: square roots, so that rare words of the lexicon become tokens too."""
  counts = collections.Counter()
  for text in texts:
    counts.update(pieces(text))
  return {p: math.sqrt(c) for p, c in counts.items()}


class Tokenizer:

  def __init__(self, merges, special_tokens):
    self.merges = [tuple(m) for m in merges]
    self.special_tokens = list(special_tokens)
    alphabet = [byte_alphabet()[b] for b in range(256)]
    self.vocab = {s: i for i, s in enumerate(alphabet + [a + b for a, b in self.merges])}
    self.special = {s: len(self.vocab) + i for i, s in enumerate(self.special_tokens)}
    self.size = len(self.vocab) + len(self.special)
    self._ranks = {m: i for i, m in enumerate(self.merges)}
    self._text_of = {i: s for s, i in self.vocab.items()}
    self._byte_of = {c: b for b, c in byte_alphabet().items()}
    self._cache = {}

  def _encode_piece(self, piece):
    symbols = _symbols(piece)
    while len(symbols) > 1:
      pair = min(zip(symbols, symbols[1:]), key=lambda p: self._ranks.get(p, 1 << 30))
      if pair not in self._ranks:
        break
      symbols = _merge(symbols, pair)
    return [self.vocab[s] for s in symbols]

  def encode(self, text):
    """Ids of plain text; special tokens are not recognised."""
    ids, cache = [], self._cache
    for piece in pieces(text):
      got = cache.get(piece)
      if got is None:
        got = self._encode_piece(piece)
        if len(cache) < 200000:
          cache[piece] = got
      ids += got
    return ids

  def encode_segments(self, segments):
    """(text, weight) segments -> (ids, weights); a segment that is a special token's text is that token."""
    ids, weights = [], []
    for text, weight in segments:
      got = [self.special[text]] if text in self.special else self.encode(text)
      ids += got
      weights += [weight] * len(got)
    return ids, weights

  def decode(self, ids):
    names = {i: s for s, i in self.special.items()}
    out = b''.join(names[i].encode() if i in names else bytes(self._byte_of[c] for c in self._text_of[i]) for i in ids)
    return out.decode('utf-8', 'replace')

  def to_json(self):
    """The first special token opens every text that is encoded with special tokens."""
    begin, begin_id = self.special_tokens[0], self.special[self.special_tokens[0]]
    opening = {'type': 'TemplateProcessing',
               'single': [{'SpecialToken': {'id': begin, 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}}],
               'pair': [{'SpecialToken': {'id': begin, 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}},
                        {'Sequence': {'id': 'B', 'type_id': 1}}],
               'special_tokens': {begin: {'id': begin, 'ids': [begin_id], 'tokens': [begin]}}}
    added = [{'id': i, 'content': s, 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False,
              'special': True} for s, i in self.special.items()]
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': False}
    split = {'type': 'Split', 'pattern': {'Regex': PATTERN}, 'behavior': 'Isolated', 'invert': False}
    return {
        'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': added, 'normalizer': None,
        'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [split, byte_level]},
        'post_processor': opening,
        'decoder': {'type': 'ByteLevel', 'add_prefix_space': True, 'trim_offsets': True, 'use_regex': True},
        'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': None,
                  'end_of_word_suffix': None, 'fuse_unk': False, 'byte_fallback': False, 'ignore_merges': False,
                  'vocab': self.vocab, 'merges': [f'{a} {b}' for a, b in self.merges]},
    }

  @staticmethod
  def from_json(data):
    merges = [tuple(m.split(' ')) if isinstance(m, str) else tuple(m) for m in data['model']['merges']]
    return Tokenizer(merges, [t['content'] for t in sorted(data['added_tokens'], key=lambda t: t['id'])])


def load(path):
  with open(path, encoding='utf-8') as f:
    return Tokenizer.from_json(json.load(f))
