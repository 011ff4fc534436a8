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
