"""Plain NumPy loops of methods whose clients step by Adam or Muon.

Each is written from its paper's box with the conventions of reference.py.
Nothing here comes from the package or from JAX.
"""

import copy

import numpy as np

from tests.reference import descend, mean

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # Jordan's


def orthogonalized(matrix, eps=1e-8):
  """Five steps of Jordan's quintic Newton-Schulz iteration."""
  a, b, c = COEFFICIENTS
  x = matrix / (np.linalg.norm(matrix) + eps)
  for _ in range(5):
    x = a * x + b * (x @ x.T) @ x + c * (x @ x.T) @ (x @ x.T) @ x
  return x


class Muon:
  """Muon on one matrix, AdamW on all other coordinates, both with Nesterov.

  The momenta are M = b M + (1 - b) G, looked ahead by one step: what is
  orthogonalized is b M' + (1 - b) G', where M' and G' are divided as Adam's
  moments are, M' as of one step later. The step of a matrix of n rows and m
  columns is multiplied with sqrt(max(1, m / n)).

  Args:
    lr: of both.
    beta: b of the matrix; of the rest it is 0.9.
    weight_decay: times lr, of both.
    kernel: a slice, the coordinates of the matrix; None if there is none.
    shape: of the matrix.
  """

  def __init__(self, lr, beta, weight_decay, kernel=None, shape=None):
    self.lr, self.beta, self.weight_decay = lr, beta, weight_decay
    self.kernel, self.shape = kernel, shape
    self.m, self.v, self.t = 0.0, 0.0, 0

  def step(self, x, loss, grad, objective):
    del loss, objective
    b = np.full(len(x), 0.9)
    if self.kernel is not None:
      b[self.kernel] = self.beta
    self.t += 1
    self.m = b * self.m + (1 - b) * grad
    self.v = 0.999 * self.v + 0.001 * grad**2
    ahead = b * self.m / (1 - b ** (self.t + 1))
    ahead = ahead + (1 - b) * grad / (1 - b**self.t)
    direction = ahead / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)
    if self.kernel is not None:
      rows, columns = self.shape
      whole = orthogonalized(ahead[self.kernel].reshape(self.shape))
      whole = whole * np.sqrt(max(1, columns / rows))
      direction[self.kernel] = whole.ravel()
    return x - self.lr * (direction + self.weight_decay * x)


def averaging_rule(problem, rounds, rule, names, record):
  """FedAvg whose clients share their rule: its fields are averaged too.

  Args:
    problem: see reference.py.
    rounds: see there.
    rule: in its first state; its `t`, the number of steps, becomes the mean,
      rounded.
    names: of the other fields that are averaged.
    record: `rule -> value`, what is returned of it.

  Returns:
    xs, and the record after each round.
  """
  x, xs, records = problem.x0, [], []
  for _, batches, weights in rounds:
    ends, rules = [], []
    for steps in batches:
      rules.append(copy.deepcopy(rule))
      ends.append(descend(x, problem.gradient, steps, rules[-1]).xs[-1])
    x = mean(ends, weights)
    for name in names:
      setattr(rule, name, mean([getattr(r, name) for r in rules], weights))
    rule.t = round(mean([r.t for r in rules], weights))
    xs.append(x)
    records.append(record(rule))
  return xs, records


def fed_adamw(
  problem,
  rounds,
  rate,
  alpha,
  b1,
  b2,
  eps,
  decay,
  blocks,
  by_entry=False,
  shared_count=False,
):
  """xs, the directions of all, the shared second moments, and the counts.

  Liu et al., 2025, Algorithm 2. The shared moment has a number for each of the
  blocks, which are slices; `by_entry` it has one for each coordinate. With
  `shared_count` the first moment is corrected for all steps since round 0. K
  and t go by the weighted mean of the clients' numbers of steps.
  """
  x, kept = problem.x0, []
  pull, done = np.zeros_like(x), 0.0
  shared = np.zeros(len(x) if by_entry else len(blocks))
  for r, (_, batches, weights) in enumerate(rounds):
    moved, moments = [], []
    for steps in batches:
      y, m, v = x, np.zeros_like(x), np.empty_like(x)
      if by_entry:
        v[:] = shared
      if not by_entry:
        for block, value in zip(blocks, shared, strict=True):
          v[block] = value
      for k, rows in enumerate(steps, 1):
        g = problem.gradient(y, rows)[1]
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        m_hat = m / (1 - b1 ** (done + k if shared_count else k))
        v_hat = v / (1 - b2 ** (done + k))
        adam = m_hat / (np.sqrt(v_hat) + eps)
        y = y - rate(r) * (adam + alpha * pull + decay * y)
      moved.append(y - x)
      moments.append(v if by_entry else [v[block].mean() for block in blocks])
    k = mean(list(map(len, batches)), weights)
    pull = -mean(moved, weights) / (k * rate(r))
    x = x + mean(moved, weights)
    shared = mean(list(map(np.array, moments)), weights)
    done = done + k
    kept.append((x, pull, shared, [done]))
  return tuple(map(list, zip(*kept, strict=True)))


def fed_lada(
  problem, rounds, rate, server_rate, alpha, b1, b2, eps, amsgrad=True
):
  """xs, the amended directions, and the shared second moments.

  Sun et al., 2023; without `amsgrad` as Adam without corrections.
  """
  x, kept = problem.x0, []
  amended = np.zeros_like(x)
  shared = np.full_like(x, eps * eps if amsgrad else 0.0)
  for r, (_, batches, weights) in enumerate(rounds):
    ends, moments = [], []
    for steps in batches:
      y, m, v, largest = x, np.zeros_like(x), shared, shared
      for rows in steps:
        g = problem.gradient(y, rows)[1]
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        largest = np.maximum(largest, v)
        root = np.sqrt(largest) if amsgrad else np.sqrt(v) + eps
        y = y - rate(r) * (alpha * m / root + (1 - alpha) * amended)
      ends.append(y)
      moments.append(largest if amsgrad else v)
    k = mean(list(map(len, batches)), weights)
    away = x - mean(ends, weights)
    amended = away / (rate(r) * k)
    x = x - server_rate * away
    shared = mean(moments, weights)
    kept.append((x, amended, shared))
  return tuple(map(list, zip(*kept, strict=True)))
