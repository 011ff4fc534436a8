"""Plain NumPy loops of the algorithms in this folder that have none in tests.

Nothing comes from the package or from JAX. As in tests/reference.py,

  x0: float64 vector [d].
  gradient(x, rows) -> (loss, grad) over the pool rows `rows`.
  cohorts[r][i]: id of the i-th client of round r whose message counts.
  batches[r][i]: list over its local steps of row arrays, perhaps empty.
  weights[r][i]: its weight, need not sum to one.

and each loop returns what the server has after every round.
"""

import numpy as np

from tests.reference_methods import mean, sgd


def top_k(x0, gradient, cohorts, batches, weights, lr, k, num_clients):
  """xs, errors [M, d] after each round."""
  x, xs, all_errors = x0, [], []
  errors = np.zeros((num_clients, len(x0)))
  for r, cohort in enumerate(cohorts):
    sent = []
    for i, client in enumerate(cohort):
      u = sgd(x, gradient, batches[r][i], lr) - x + errors[client]
      c = np.zeros_like(u)
      for j in np.argsort(-np.abs(u), kind="stable")[:k]:
        c[j] = u[j]
      errors[client] = u - c
      sent.append(c)
    x = x + mean(sent, weights[r])
    xs.append(x)
    all_errors.append(errors.copy())
  return xs, all_errors


def trimmed_mean(x0, gradient, cohorts, batches, weights, lr, beta):
  """xs, how many were trimmed at each end. Without a weight nobody counts."""
  x, xs, cuts = x0, [], []
  for steps_of, p in zip(batches, weights, strict=True):
    deltas = [
      sgd(x, gradient, steps, lr) - x
      for steps, weight in zip(steps_of, p, strict=True)
      if weight > 0
    ]
    cut = int(beta * len(deltas) + 1e-9)
    middle = np.zeros_like(x)
    for j in range(len(x)):
      values = sorted(delta[j] for delta in deltas)
      middle[j] = np.mean(values[cut : len(values) - cut])
    x = x + middle
    xs.append(x)
    cuts.append(cut)
  return xs, cuts
