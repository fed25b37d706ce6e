"""Muon for the matrices of the layers, Adam for the embedding and the norms.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): the momentum of a matrix is replaced by the nearest
orthogonal matrix, found by five steps of a quintic Newton-Schulz iteration, so every direction learns at the same rate.
"""

import torch

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalised(matrix):
  a, b, c = _NEWTON_SCHULZ
  x = (matrix / (matrix.norm() + 1e-7)).bfloat16()
  tall = x.shape[0] > x.shape[1]
  x = x.t().contiguous() if tall else x
  for _ in range(5):
    square = x @ x.t()
    x = a * x + (b * square + c * (square @ square)) @ x
  return (x.t() if tall else x).float()


def parts(name, config):
  """Row counts of the matrices that are stored fused under `name`."""
  if name.endswith('.qkv'):
    kv = config.kv_heads * config.head_dim
    return [config.heads * config.head_dim, kv, kv]
  return [config.intermediate] * 2 if name.endswith('.gate_up') else None


class Optimizer:
  """Updates weights in place; `state` is plain tensors for a checkpoint."""

  def __init__(self, weights, config, matrix_rate=0.02, other_rate=0.003):
    self._config, self._rates = config, (matrix_rate, other_rate)
    self.state = {'step': 0, 'first': {k: torch.zeros_like(v) for k, v in weights.items()},
                  'second': {k: torch.zeros_like(v) for k, v in weights.items() if not self._is_matrix(k)}}

  @staticmethod
  def _is_matrix(name):
    return name.endswith(('.qkv', '.o', '.gate_up', '.down'))

  def step(self, weights, gradients, rate, run_all=map):
    """rate scales both learning rates, 0..1; run_all may be a thread pool's map."""
    self.state['step'] += 1
    list(run_all(lambda name: self._update(name, weights[name], gradients[name], rate), weights))

  @torch.no_grad()
  def _update(self, name, weight, gradient, rate):
    if self._is_matrix(name):
      self._muon(name, weight, gradient, rate * self._rates[0])
    else:
      self._adam(name, weight, gradient, rate * self._rates[1])

  def _muon(self, name, weight, gradient, rate, momentum=0.95):
    first = self.state['first'][name]
    first.mul_(momentum).add_(gradient, alpha=1 - momentum)
    update = gradient.lerp(first, momentum)
    rows = parts(name, self._config) or [update.shape[0]]
    for w, u in zip(weight.split(rows), update.split(rows)):
      w.mul_(1 - 0.02 * rate).add_(orthogonalised(u), alpha=-rate * max(1.0, w.shape[0] / w.shape[1])**0.5)

  def _adam(self, name, weight, gradient, rate, beta1=0.9, beta2=0.98):
    first, second, step = self.state['first'][name], self.state['second'][name], self.state['step']
    first.mul_(beta1).add_(gradient, alpha=1 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    scale = (second / (1 - beta2**step)).sqrt_().add_(1e-10)
    weight.addcdiv_(first / (1 - beta1**step), scale, value=-rate)
