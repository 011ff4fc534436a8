"""Plain NumPy loops of methods in which clients have models of their own.

Ditto, FedPer and FedRep, each written from its paper's box with the conventions
of reference.py. Nothing here comes from the package or from JAX. Each loop
returns what the server has after every round, and what the clients have,
[M, ...]; a client that has not taken part has the initial values.
"""

import numpy as np

from tests.reference import Sgd, descend, mean


def ditto(problem, rounds, lr, lam):
  """xs [R, d], and vs [R, M, d], the models of the clients."""
  x, xs, vs = problem.x0, [], []
  v = np.tile(x, (len(problem.client_rows), 1))
  for clients, batches, weights in rounds:
    ends = []
    for client, steps in zip(clients, batches, strict=True):
      ends.append(descend(x, problem.gradient, steps, Sgd(lr)).xs[-1])
      for rows in steps:
        own = v[client]
        grad = problem.gradient(own, rows)[1]
        v[client] = own - lr * (grad + lam * (own - x))
    x = mean(ends, weights)
    xs.append(x)
    vs.append(v.copy())
  return xs, vs


def fed_per(problem, rounds, lr, personal, shared_steps=None):
  """xs [R, d - p], and hs [R, M, p], the personal coordinates.

  `personal` are the numbers of the p personal coordinates. FedRep, if
  `shared_steps` is given: a function from the number of local steps to how many
  of them, the last ones, move what is shared; the steps before move the rest.
  """
  everything = np.arange(len(problem.x0))
  shared = np.setdiff1d(everything, personal)
  x, h = problem.x0[shared], problem.x0[personal]
  h, xs, hs = np.tile(h, (len(problem.client_rows), 1)), [], []
  for clients, batches, weights in rounds:
    ends = []
    for client, steps in zip(clients, batches, strict=True):
      y = np.empty_like(problem.x0)
      y[shared], y[personal] = x, h[client]
      for k, rows in enumerate(steps):
        moved = everything
        if shared_steps is not None:
          is_first = k < len(steps) - shared_steps(len(steps))
          moved = personal if is_first else shared
        step = problem.gradient(y, rows)[1]
        y[moved] = y[moved] - lr * step[moved]
      ends.append(y[shared])
      h[client] = y[personal]
    x = mean(ends, weights)
    xs.append(x)
    hs.append(h.copy())
  return xs, hs
