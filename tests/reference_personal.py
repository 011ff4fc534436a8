"""Plain NumPy loops of methods in which clients have models of their own.

Ditto, FedPer, FedRep, pFedMe and Per-FedAvg, each written from its paper's box
with the conventions of reference.py. Nothing here comes from the package or
from JAX. Each loop returns what the server has after every round, and what the
clients have, [M, ...]; a client that has not taken part has the initial values.
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


def p_fed_me(problem, rounds, rate, beta, lam, inner_lr, inner_steps):
  """xs [R, d], and thetas [R, M, d]; rate(r) is eta."""
  x, xs, thetas = problem.x0, [], []
  own = np.tile(x, (len(problem.client_rows), 1))
  for r, (clients, batches, weights) in enumerate(rounds):
    ends = []
    for client, steps in zip(clients, batches, strict=True):
      y = x
      for rows in steps:
        theta = y
        for _ in range(inner_steps):
          grad = problem.gradient(theta, rows)[1] + lam * (theta - y)
          theta = theta - inner_lr * grad
        y = y - rate(r) * lam * (y - theta)
        own[client] = theta
      ends.append(y)
    x = (1 - beta) * x + beta * mean(ends, weights)
    xs.append(x)
    thetas.append(own.copy())
  return xs, thetas


def per_fed_avg(problem, rounds, rate, alpha, delta=None, own_batches=True):
  """xs; rate(r) is eta. The Hessian-free form with delta, else the first-order.

  With batches of their own the gradients of a step are of successive batches;
  what is left over of these is not used.
  """
  x, xs = problem.x0, []
  gradient = lambda y, rows: problem.gradient(y, rows)[1]
  needed = 1
  if own_batches:
    needed = 2 if delta is None else 3
  for r, (_, batches, weights) in enumerate(rounds):
    ends = []
    for steps in batches:
      y = x
      for k in range(0, len(steps) - needed + 1, needed):
        one, *more = steps[k : k + needed] if own_batches else [steps[k]] * 3
        d = gradient(y - alpha * gradient(y, one), more[0])
        step = d
        if delta is not None:
          above = gradient(y + delta * d, more[1])
          below = gradient(y - delta * d, more[1])
          step = d - alpha * (above - below) / (2 * delta)
        y = y - rate(r) * step
      ends.append(y)
    x = mean(ends, weights)
    xs.append(x)
  return (xs,)
