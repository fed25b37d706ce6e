"""Loss and gradients of the model on a CPU: bf16 matrix products of torch (oneDNN), everything between them in kernels.c.

Written forward and backward by hand; tests/fast_cpu_test.py holds it against model.py.
"""

import concurrent.futures
import ctypes
import hashlib
import os
import subprocess

import torch

import model

_PART_TOKENS = 1536  # tokens per turn of a thread; its buffers fit the second-level cache


def _library(head_dim):
  """Builds kernels.c for this machine once; the object lies in the cache folder under the hash of its source."""
  source = os.path.join(os.path.dirname(os.path.realpath(__file__)), 'kernels.c')
  flags = ['-O3', '-march=native', '-ffast-math', '-fPIC', '-shared', '-std=gnu11', '-Wall', '-Werror',
           f'-DHEAD_DIM={head_dim}']
  with open(source, 'rb') as f:
    digest = hashlib.sha256(f.read() + ' '.join(flags).encode()).hexdigest()[:16]
  folder = os.environ.get('TEST_TMPDIR') or os.path.join(
      os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'skein', 'train', 'kernels')
  os.makedirs(folder, exist_ok=True)
  path = os.path.join(folder, f'kernels-{digest}.so')
  if not os.path.exists(path):
    subprocess.run(['gcc', *flags, source, '-o', path + f'.{os.getpid()}', '-lm'], check=True)
    os.rename(path + f'.{os.getpid()}', path)
  return ctypes.CDLL(path)


def _pointer(tensor):
  return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)


class FastCpu:
  """Holds the kernels, the RoPE tables and the threads. Each thread takes whole documents, so that threads meet once a step
  and a core that other work slows down holds up nobody."""

  def __init__(self, config, threads=2):
    torch.set_num_threads(1)
    self.pool = concurrent.futures.ThreadPoolExecutor(threads)
    self._c = config
    self._lib = _library(config.head_dim)
    self._cos, self._sin = (t.contiguous() for t in model.rope_tables(config, config.context))

  def _norm(self, x, add, weight):
    y = torch.empty(x.shape, dtype=torch.bfloat16)
    scale = torch.empty(x.shape[0])
    self._lib.AddRmsNormForward(_pointer(x), _pointer(add), _pointer(weight), ctypes.c_float(self._c.eps), x.shape[0],
                                x.shape[1], _pointer(y), _pointer(scale))
    return y, scale

  def _norm_backward(self, dy, y, weight, scale, dx):
    low = torch.empty(dx.shape, dtype=torch.bfloat16)
    dweight = torch.zeros(dx.shape[1])
    self._lib.RmsNormBackward(_pointer(dy), _pointer(y), _pointer(weight), _pointer(scale), dx.shape[0], dx.shape[1],
                              _pointer(dx), _pointer(low), _pointer(dweight))
    return low, dweight

  def _attention_arguments(self, qkv, starts):
    return (_pointer(qkv), _pointer(starts), _pointer(self._cos), _pointer(self._sin), len(starts) - 1, self._c.heads,
            self._c.kv_heads, qkv.shape[0])

  def _layer(self, i, x, add, low, weights, starts):
    """Runs layer i; returns (what is to be added to x, what the backward pass needs)."""
    c, tokens = self._c, x.shape[0]
    h1, scale1 = self._norm(x, add, weights[f'{i}.norm1'])
    qkv = h1 @ low[f'{i}.qkv'].t()
    a, lse = torch.empty(tokens, c.heads * c.head_dim, dtype=torch.bfloat16), torch.empty(c.heads, tokens)
    self._lib.AttentionForward(*self._attention_arguments(qkv, starts), _pointer(a), _pointer(lse))
    h2, scale2 = self._norm(x, a @ low[f'{i}.o'].t(), weights[f'{i}.norm2'])
    gate_up = h2 @ low[f'{i}.gate_up'].t()
    m = torch.empty(tokens, c.intermediate, dtype=torch.bfloat16)
    self._lib.SwiGluForward(_pointer(gate_up), tokens, c.intermediate, _pointer(m))
    return m @ low[f'{i}.down'].t(), (h1, scale1, qkv, a, lse, h2, scale2, gate_up, m)

  def _layer_backward(self, i, dx, dx_low, low, weights, starts, saved, gradients):
    """dx: f32 gradient of the layer's result, becomes that of its input. Returns its bf16 copy."""
    h1, scale1, qkv, a, lse, h2, scale2, gate_up, m = saved
    c, tokens = self._c, dx.shape[0]
    gradients[f'{i}.down'] = (dx_low.t() @ m).float()
    dm, dgate_up = dx_low @ low[f'{i}.down'], torch.empty_like(gate_up)
    self._lib.SwiGluBackward(_pointer(gate_up), _pointer(dm), tokens, c.intermediate, _pointer(dgate_up))
    gradients[f'{i}.gate_up'] = (dgate_up.t() @ h2).float()
    dx_low, gradients[f'{i}.norm2'] = self._norm_backward(dgate_up @ low[f'{i}.gate_up'], h2, weights[f'{i}.norm2'],
                                                          scale2, dx)
    gradients[f'{i}.o'] = (dx_low.t() @ a).float()
    da, dqkv = dx_low @ low[f'{i}.o'], torch.empty_like(qkv)
    self._lib.AttentionBackward(*self._attention_arguments(qkv, starts), _pointer(a), _pointer(da), _pointer(lse),
                                _pointer(dqkv))
    gradients[f'{i}.qkv'] = (dqkv.t() @ h1).float()
    dx_low, gradients[f'{i}.norm1'] = self._norm_backward(dqkv @ low[f'{i}.qkv'], h1, weights[f'{i}.norm1'], scale1, dx)
    return dx_low

  @torch.no_grad()
  def forward(self, weights, documents):
    """documents: lists of ids -> bf16 hidden states after the last norm, one tensor [length][hidden] a document."""
    low = {k: v.bfloat16() for k, v in weights.items() if v.dim() == 2}
    lengths = [len(ids) for ids in documents]
    starts = torch.tensor([0] + lengths).cumsum(0).int()
    x, add = weights['embed'][torch.tensor([t for ids in documents for t in ids])], None
    for i in range(self._c.layers):
      add, _ = self._layer(i, x, add, low, weights, starts)
    return self._norm(x, add, weights['norm'])[0].split(lengths)

  def _head(self, y, low, ids, chosen, token_weights, gradients):
    """Loss of the chosen rows. Returns (weighted loss, right tokens, gradient of y)."""
    rows, targets, w = y[chosen], ids[chosen + 1].contiguous(), token_weights[chosen + 1].contiguous()
    logits = rows @ low['embed'].t()
    losses, hits = torch.empty(len(chosen)), torch.empty(len(chosen))
    self._lib.CrossEntropy(_pointer(logits), _pointer(targets), _pointer(w), len(chosen), logits.shape[1],
                           _pointer(losses), _pointer(hits))
    gradients['embed'] = (logits.t() @ rows).float()
    dy = torch.zeros_like(y)
    dy[chosen] = logits @ low['embed']
    return (losses * w).sum().item(), hits.sum().item(), dy

  @torch.no_grad()
  def _part(self, weights, low, documents, weight_sum):
    """Forward and backward of some documents of a step; the sums are shares of the whole step's."""
    c, gradients = self._c, {}
    ids = torch.tensor([t for tokens, _ in documents for t in tokens])
    token_weights = torch.tensor([w / weight_sum for _, ws in documents for w in ws])
    starts = torch.tensor([0] + [len(tokens) for tokens, _ in documents]).cumsum(0).int()
    token_weights[starts[:-1].long()] = 0
    chosen = (token_weights[1:] > 0).nonzero()[:, 0]
    x, add, saved = weights['embed'][ids], None, []
    for i in range(c.layers):
      add, kept = self._layer(i, x, add, low, weights, starts)
      saved.append(kept)
    y, scale = self._norm(x, add, weights['norm'])
    loss, right, dy = self._head(y, low, ids, chosen, token_weights, gradients)
    dx = torch.zeros_like(x)
    dx_low, gradients['norm'] = self._norm_backward(dy, y, weights['norm'], scale, dx)
    for i in reversed(range(c.layers)):
      dx_low = self._layer_backward(i, dx, dx_low, low, weights, starts, saved.pop(), gradients)
    gradients['embed'].index_add_(0, ids, dx)
    return loss, right, len(chosen), gradients

  def loss_and_gradients(self, weights, documents):
    """As model.loss_and_gradients, without padding; the parts of a step run side by side and are added in order."""
    low = {k: v.bfloat16() for k, v in weights.items() if v.dim() == 2}
    weight_sum = float(sum(sum(ws[1:]) for _, ws in documents))
    parts = [[]]
    for document in sorted(documents, key=lambda d: len(d[0])):
      if parts[-1] and sum(len(d[0]) for d in parts[-1]) + len(document[0]) > _PART_TOKENS:
        parts.append([])
      parts[-1].append(document)
    results = list(self.pool.map(lambda part: self._part(weights, low, part, weight_sum), parts))
    loss, right, chosen, gradients = results[0]
    for other in results[1:]:
      loss, right, chosen = loss + other[0], right + other[1], chosen + other[2]
      for name, gradient in other[3].items():
        gradients[name] += gradient
    return loss, right / chosen, gradients
