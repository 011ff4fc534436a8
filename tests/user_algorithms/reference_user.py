"""Plain NumPy loops of the methods in this folder, for their tests.

Nothing comes from the package or from JAX. As in tests/reference.py,

  x0: float64 vector [d].
  gradient(x, rows) -> (loss, grad) over the pool rows `rows`.
  cohorts[r][i]: id of the i-th client of round r whose message counts.
  batches[r][i]: list over its local steps of row arrays, perhaps empty.
  weights[r][i]: its weight, need not sum to one.

and each loop returns what the server has after every round.
"""

import numpy as np


def _sgd(x, gradient, steps, lr, rho=0.0):
  """Heavy-ball steps: m <- rho m + g; x <- x - lr m."""
  m = np.zeros_like(x)
  for rows in steps:
    m = rho * m + gradient(x, rows)[1]
    x = x - lr * m
  return x


def _mean(vectors, weights):
  total = sum(w * v for w, v in zip(weights, vectors, strict=True))
  return total / sum(weights)


def fed_nova(x0, gradient, cohorts, batches, weights, lr, rho):
  """xs. A client without a step has ||a_i||_1 = 0 and moves nobody."""
  x, xs = x0, []
  for steps_of, p in zip(batches, weights, strict=True):
    d, reach = [], []
    for steps in steps_of:
      num_steps = len(steps)
      # How often the gradient of step k is in x_t - x_i: with 1, rho, ...
      a = [sum(rho**j for j in range(num_steps - k)) for k in range(num_steps)]
      moved = x - _sgd(x, gradient, steps, lr, rho)
      d.append(moved / (lr * sum(a)) if num_steps else 0 * x)
      reach.append(sum(a))
    x = x - lr * _mean(reach, p) * _mean(d, p)
    xs.append(x)
  return xs


def fed_dyn(x0, gradient, cohorts, batches, weights, lr, alpha, population):
  """xs, h after each round, g [M, d] after each round.

  `population` has the weights of all clients; ones are the box, where the
  weights of the cohorts are equal.
  """
  x, xs, hs, gs = x0, [], [], []
  g = np.zeros((len(population), len(x0)))
  h = np.zeros_like(x0)
  for r, cohort in enumerate(cohorts):
    ends = []
    for i, client in enumerate(cohort):
      y = x
      for rows in batches[r][i]:
        y = y - lr * (gradient(y, rows)[1] - g[client] + alpha * (y - x))
      ends.append(y)
    for client, y in zip(cohort, ends, strict=True):
      g[client] = g[client] - alpha * (y - x)
      h = h - alpha * population[client] * (y - x) / sum(population)
    x = _mean(ends, weights[r]) - h / alpha
    xs.append(x)
    hs.append(h)
    gs.append(g.copy())
  return xs, hs, gs


def fed_exp(x0, gradient, cohorts, batches, weights, lr, eps):
  """xs, the evaluated models, the server's rates."""
  x, xs, evaluated, rates = x0, [], [], []
  for steps_of, p in zip(batches, weights, strict=True):
    deltas = [x - _sgd(x, gradient, steps, lr) for steps in steps_of]
    mean = _mean(deltas, p)
    squares = _mean([delta @ delta for delta in deltas], p)
    rates.append(max(1.0, squares / (2 * (mean @ mean + eps))))
    before, x = x, x - rates[-1] * mean
    xs.append(x)
    evaluated.append((before + x) / 2)
  return xs, evaluated, rates


def fed_speed(
  x0, gradient, cohorts, batches, weights, lr, lam, alpha, rho, num_clients
):
  """xs, duals [M, d] after each round."""
  x_t, xs, all_duals = x0, [], []
  duals = np.zeros((num_clients, len(x0)))
  for r, cohort in enumerate(cohorts):
    sent = []
    for i, client in enumerate(cohort):
      x = x_t
      for rows in batches[r][i]:
        _, g1 = gradient(x, rows)
        _, g2 = gradient(x + rho * g1 / np.linalg.norm(g1), rows)
        g = (1 - alpha) * g1 + alpha * g2
        x = x - lr * (g - duals[client] + (x - x_t) / lam)
      duals[client] = duals[client] - (x - x_t) / lam
      sent.append(x - lam * duals[client])
    x_t = _mean(sent, weights[r])
    xs.append(x_t)
    all_duals.append(duals.copy())
  return xs, all_duals


def top_k(x0, gradient, cohorts, batches, weights, lr, k, num_clients):
  """xs, errors [M, d] after each round."""
  x, xs, all_errors = x0, [], []
  errors = np.zeros((num_clients, len(x0)))
  for r, cohort in enumerate(cohorts):
    sent = []
    for i, client in enumerate(cohort):
      u = _sgd(x, gradient, batches[r][i], lr) - x + errors[client]
      c = np.zeros_like(u)
      for j in np.argsort(-np.abs(u), kind="stable")[:k]:
        c[j] = u[j]
      errors[client] = u - c
      sent.append(c)
    x = x + _mean(sent, weights[r])
    xs.append(x)
    all_errors.append(errors.copy())
  return xs, all_errors


def trimmed_mean(x0, gradient, cohorts, batches, weights, lr, beta):
  """xs, how many were trimmed at each end. Without a weight nobody counts."""
  x, xs, cuts = x0, [], []
  for steps_of, p in zip(batches, weights, strict=True):
    deltas = [
      _sgd(x, gradient, steps, lr) - x
      for steps, weight in zip(steps_of, p, strict=True)
      if weight > 0
    ]
    cut = int(beta * len(deltas) + 1e-9)
    mean = np.zeros_like(x)
    for j in range(len(x)):
      values = sorted(delta[j] for delta in deltas)
      mean[j] = np.mean(values[cut : len(values) - cut])
    x = x + mean
    xs.append(x)
    cuts.append(cut)
  return xs, cuts
