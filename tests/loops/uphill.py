"""Plain loops of methods that take gradients uphill."""

import numpy as np

from tests.loops.rounds import mean


def uphill(x, gradient, rows, rho, normalized=True):
  """g(x) and g(x + e), on the same rows."""
  _, first = gradient(x, rows)
  size = np.linalg.norm(first) if normalized else 1.0
  _, second = gradient(x + rho * first / size, rows)
  return first, second


def along(direction, rho):
  """rho in this direction; 0 if it is 0."""
  size = np.linalg.norm(direction)
  return rho * direction / size if size else 0 * direction


def fed_lesam(problem, rounds, lr, rho, num_clients, server_lr=1.0):
  """The model, w_i [M, d]."""
  w = problem.x0
  old = np.tile(w, (num_clients, 1))
  for clients, batches, weights in rounds:
    ends = []
    for client, steps in zip(clients, batches, strict=True):
      x, e = w, along(old[client] - w, rho)
      for rows in steps:
        x = x - lr * problem.gradient(x + e, rows)[1]
      old[client] = w
      ends.append(x)
    w = w + server_lr * (mean(ends, weights) - w)
    yield w, old.copy()


def fed_lesam_last_step(problem, rounds, lr, rho, leaves, server_lr):
  """The model and the server's last step; `leaves` are slices of a model."""
  w, last = problem.x0, np.zeros_like(problem.x0)
  for _, batches, weights in rounds:
    size = sum(np.linalg.norm(last[leaf]) for leaf in leaves)
    e, ends = -rho * last / size if size else 0 * last, []
    for steps in batches:
      x = w
      for rows in steps:
        x = x - lr * problem.gradient(x + e, rows)[1]
      ends.append(x)
    last = server_lr * (mean(ends, weights) - w)
    w = w + last
    yield w, last


def fed_smoo(problem, rounds, rate, lam, rho, population):
  """The model, s, and -lam h_i with mu_i [M, 2 d]; rate(r)."""
  w = problem.x0
  h, mu = (np.zeros((len(population), len(w))) for _ in range(2))
  s = np.zeros_like(w)
  for r, (clients, batches, weights) in enumerate(rounds):
    ends = []
    for client, steps in zip(clients, batches, strict=True):
      x = w
      for rows in steps:
        g = problem.gradient(x, rows)[1] - mu[client] - s
        e = along(g, rho)
        mu[client] = mu[client] + e - s
        grad = problem.gradient(x + e, rows)[1]
        x = x - rate(r) * (grad + lam * (x - w + h[client]))
      h[client] = h[client] + (x - w)
      ends.append(x)
    s = along(mean(mu[clients], weights), rho)
    w = mean(ends, weights) + mean(h, population)
    yield w, s, np.concatenate([-lam * h, mu], axis=1)


def fed_speed(
  problem, rounds, lr, lam, alpha, rho, population, normalized=True,
  all_duals=False,
):  # fmt: skip
  """The model, the duals [M, d].

  Args:
    problem: see reference.py, also for `rounds`.
    lr: the rate.
    lam: of the proximal term.
    alpha: share of the gradient uphill.
    rho: how far uphill.
    population: weights of all clients.
    normalized: whether the perturbation has the length rho.
    all_duals: whether x_{t+1} is the mean of x_i over the cohort minus lam
      times the mean of the duals over all clients.
  """
  x_t = problem.x0
  duals = np.zeros((len(population), len(x_t)))
  for clients, batches, weights in rounds:
    ends, sent = [], []
    for client, steps in zip(clients, batches, strict=True):
      x = x_t
      for rows in steps:
        g1, g2 = uphill(x, problem.gradient, rows, rho, normalized)
        g = (1 - alpha) * g1 + alpha * g2
        x = x - lr * (g - duals[client] + (x - x_t) / lam)
      duals[client] = duals[client] - (x - x_t) / lam
      ends.append(x)
      sent.append(x - lam * duals[client])
    x_t = mean(sent, weights)
    if all_duals:
      x_t = mean(ends, weights) - lam * mean(duals, population)
    yield x_t, duals.copy()
