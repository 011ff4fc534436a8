"""Plain NumPy loops of methods in which clients have models of their own.

Ditto, FedPer and FedRep, each written from its paper's box, with the arguments
of reference_methods.py. Nothing here comes from the package or from JAX. Each
loop returns what the server has after every round, and what the clients have,
[M, ...]; a client that has not taken part has the initial values.
"""

import numpy as np

from tests.reference_methods import mean


def ditto(x0, gradient, cohorts, batches, weights, lr, lam, num_clients):
  """xs [R, d], and vs [R, M, d], the models of the clients."""
  x, v, xs, vs = x0, np.tile(x0, (num_clients, 1)), [], []
  for r, cohort in enumerate(cohorts):
    ends = []
    for i, client in enumerate(cohort):
      y = x
      for rows in batches[r][i]:
        y = y - lr * gradient(y, rows)[1]
      ends.append(y)
      for rows in batches[r][i]:
        own = v[client]
        v[client] = own - lr * (gradient(own, rows)[1] + lam * (own - x))
    x = mean(ends, weights[r])
    xs.append(x)
    vs.append(v.copy())
  return xs, vs


def fed_per(
  x0, gradient, cohorts, batches, weights, lr, personal, num_clients,
  shared_steps=None,
):  # fmt: skip
  """xs [R, d - p], and hs [R, M, p], the personal coordinates.

  `personal` are the numbers of the p personal coordinates. FedRep, if
  `shared_steps` is given: a function from the number of local steps to how many
  of them, the last ones, move what is shared; the steps before move the rest.
  """
  shared = np.setdiff1d(np.arange(len(x0)), personal)
  x, h = x0[shared], np.tile(x0[personal], (num_clients, 1))
  xs, hs = [], []
  for r, cohort in enumerate(cohorts):
    ends = []
    for i, client in enumerate(cohort):
      y = np.empty_like(x0)
      y[shared], y[personal] = x, h[client]
      num_steps = len(batches[r][i])
      for k, rows in enumerate(batches[r][i]):
        moved = np.arange(len(x0))
        if shared_steps is not None:
          is_first = k < num_steps - shared_steps(num_steps)
          moved = personal if is_first else shared
        step = gradient(y, rows)[1]
        y[moved] = y[moved] - lr * step[moved]
      ends.append(y[shared])
      h[client] = y[personal]
    x = mean(ends, weights[r])
    xs.append(x)
    hs.append(h.copy())
  return xs, hs
