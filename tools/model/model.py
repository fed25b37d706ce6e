"""The Llama architecture in plain torch: what runs on a GPU, and the oracle of fast_cpu.py."""

import dataclasses

import torch
import torch.nn.functional as F


# Tokens that the heads of layers 0 and 1 look back at first.
FAR, NEAR, LOOK_BACK_GAIN = (5, 6, 7, 8, 9, 10, 11, 12), (1, 2, 3, 4), 11.0


@dataclasses.dataclass(frozen=True)
class Config:
  vocab_size: int = 2048
  hidden: int = 256
  intermediate: int = 640
  layers: int = 5
  heads: int = 8
  kv_heads: int = 4
  head_dim: int = 32
  rope_theta: float = 1e6
  eps: float = 1e-5
  context: int = 4096

  @property
  def qkv_width(self):
    return (self.heads + 2 * self.kv_heads) * self.head_dim


def look_back(config, qkv, distances, direction, gain):
  """Makes head n attend to the token distances[n] places back; two query heads share a KV head.

  `direction` is what the layer's normalised input has in common at all tokens: its product with any of them is near 1, times
  `gain` a logit that leaves no doubt. Query and key read it into the four fastest rotary pairs, the query turned back by the
  distance. Induction (look up what followed the same words before) needs such heads and is slow to find them by itself
  (Olsson et al. 2022, In-context Learning and Induction Heads).
  """
  half, pairs = config.head_dim // 2, 4
  inverse = config.rope_theta**(-torch.arange(pairs) * 2 / config.head_dim)
  group = config.heads // config.kv_heads
  for n, distance in enumerate(distances):
    q, k = n * config.head_dim, (config.heads + n // group) * config.head_dim
    qkv[q:q + config.head_dim] *= 0.3
    if n % group == 0:
      qkv[k:k + config.head_dim] *= 0.3
      qkv[k:k + pairs] += gain * direction
    qkv[q:q + pairs] += gain * torch.cos(distance * inverse)[:, None] * direction
    qkv[q + half:q + half + pairs] -= gain * torch.sin(distance * inverse)[:, None] * direction


def init_weights(config, seed):
  """name -> f32 tensor. qkv and gate_up are stored fused; the head is the embedding, transposed."""
  g = torch.Generator().manual_seed(seed)
  c = config
  normal = lambda rows, columns, std: torch.randn(rows, columns, generator=g) * std
  weights = {'embed': normal(c.vocab_size, c.hidden, c.hidden**-0.5), 'norm': torch.ones(c.hidden)}
  for i in range(c.layers):
    weights |= {
        f'{i}.norm1': torch.ones(c.hidden), f'{i}.norm2': torch.ones(c.hidden),
        f'{i}.qkv': normal(c.qkv_width, c.hidden, c.hidden**-0.5),
        f'{i}.o': torch.zeros(c.hidden, c.heads * c.head_dim),
        f'{i}.gate_up': normal(2 * c.intermediate, c.hidden, c.hidden**-0.5),
        f'{i}.down': torch.zeros(c.hidden, c.intermediate),
    }
  common = torch.zeros(c.hidden)  # Column 0 of the embedding is a constant at first; a norm leaves it near 1 / common[0].
  common[0] = 0.25
  weights['embed'][:, 0] = 4 * c.hidden**-0.5
  for layer, distances in ((0, FAR), (1, NEAR)):
    look_back(c, weights[f'{layer}.qkv'], distances, common, LOOK_BACK_GAIN)
  return weights


def rope_tables(config, length, device=None):
  """cos, sin: [length][head_dim / 2]."""
  inverse = config.rope_theta**(-torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
  angles = torch.arange(length, dtype=torch.float64)[:, None] * inverse[None]
  return angles.cos().float().to(device), angles.sin().float().to(device)


def rms_norm(x, weight, eps):
  return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, cos, sin):
  """x: [batch][heads][length][head_dim], rotate-half form."""
  a, b = x.chunk(2, -1)
  return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention(q, k, v):
  """Causal; [batch][heads][length][head_dim], kv already repeated."""
  if hasattr(F, 'scaled_dot_product_attention'):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
  length = q.shape[2]
  scores = q @ k.transpose(2, 3) * q.shape[3]**-0.5
  mask = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
  return scores.masked_fill(mask, float('-inf')).softmax(-1) @ v


def forward(weights, config, ids, cache=None, position=0, low=torch.float32):
  """ids: [batch][length] (padded at the end) -> hidden states [batch][length][hidden] after the last norm, f32.

  Matrix products and attention run in `low`, the residual stream, norms and rotations in f32. With `cache` (a list, one
  [k, v] per layer, filled here) ids are one further token at `position`.
  """
  c = config
  times = lambda x, name: x.to(low) @ weights[name].to(low).t()
  batch, length = ids.shape
  cos, sin = rope_tables(c, position + length, ids.device)
  cos, sin = cos[position:], sin[position:]
  x = weights['embed'][ids]
  for i in range(c.layers):
    h = rms_norm(x, weights[f'{i}.norm1'], c.eps)
    qkv = times(h, f'{i}.qkv').view(batch, length, -1, c.head_dim).transpose(1, 2)
    q, k, v = qkv.split((c.heads, c.kv_heads, c.kv_heads), 1)
    q, k = rotate(q.float(), cos, sin).to(low), rotate(k.float(), cos, sin).to(low)
    if cache is not None:
      if position:
        k, v = torch.cat((cache[i][0], k), 2), torch.cat((cache[i][1], v), 2)
        cache[i] = [k, v]
      else:
        cache.append([k, v])
    repeat = c.heads // c.kv_heads
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    if position:
      a = (q @ k.transpose(2, 3) * c.head_dim**-0.5).softmax(-1) @ v
    else:
      a = attention(q, k, v)
    x = x + times(a.transpose(1, 2).reshape(batch, length, -1), f'{i}.o')
    h = rms_norm(x, weights[f'{i}.norm2'], c.eps)
    gate, up = times(h, f'{i}.gate_up').chunk(2, -1)
    x = x + times(F.silu(gate) * up, f'{i}.down')
  return rms_norm(x, weights['norm'], c.eps)


def loss_and_gradients(weights, config, documents, device):
  """documents: list of (ids, weights) lists. Returns (mean loss, share of right tokens, gradients by name)."""
  longest = max(len(ids) for ids, _ in documents)
  ids = torch.zeros(len(documents), longest, dtype=torch.long)
  wanted = torch.zeros(len(documents), longest)
  for n, (tokens, token_weights) in enumerate(documents):
    ids[n, :len(tokens)] = torch.tensor(tokens)
    wanted[n, :len(tokens)] = torch.tensor(token_weights, dtype=torch.float)
  ids, wanted = ids.to(device), wanted.to(device)
  leaves = {k: v.detach().requires_grad_(True) for k, v in weights.items()}
  low = torch.bfloat16 if device.type == 'cuda' else torch.float32
  hidden = forward(leaves, config, ids, low=low)[:, :-1]
  chosen = wanted[:, 1:] > 0
  logits = (hidden[chosen].to(low) @ leaves['embed'].to(low).t()).float()
  targets, w = ids[:, 1:][chosen], wanted[:, 1:][chosen]
  losses = F.cross_entropy(logits, targets, reduction='none')
  loss = (losses * w).sum() / w.sum()
  loss.backward()
  right = (logits.argmax(-1) == targets).float().mean()
  return loss.item(), right.item(), {k: v.grad for k, v in leaves.items()}
