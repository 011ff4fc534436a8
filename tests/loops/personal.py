"""Plain loops of methods whose clients have models of their own."""

import numpy as np

from tests.loops.rounds import descend, mean
from tests.loops.rules import Sgd


def ditto(problem, rounds, lr, lam):
  """The model, and v [M, d], those of the clients."""
  x = problem.x0
  v = np.tile(x, (len(problem.client_rows), 1))
  for clients, batches, weights in rounds:
    ends = []
    for client, steps in zip(clients, batches, strict=True):
      ends.append(descend(x, problem.gradient, steps, Sgd(lr)).xs[-1])
      for rows in steps:
        model = v[client]
        grad = problem.gradient(model, rows)[1]
        v[client] = model - lr * (grad + lam * (model - x))
    x = mean(ends, weights)
    yield x, v.copy()


def fed_per(problem, rounds, lr, personal, shared_steps=None):
  """The shared coordinates [d - p], and h [M, p], the personal ones.

  `personal` are the numbers of the p personal coordinates. FedRep, if
  `shared_steps` is given: a function from the number of local steps to how many
  of them, the last ones, move what is shared; the steps before move the rest.
  """
  everything = np.arange(len(problem.x0))
  shared = np.setdiff1d(everything, personal)
  x, h = problem.x0[shared], problem.x0[personal]
  h = np.tile(h, (len(problem.client_rows), 1))
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
    yield x, h.copy()


def p_fed_me(problem, rounds, rate, beta, lam, inner_lr, inner_steps):
  """The model, and theta [M, d]; rate(r)."""
  x = problem.x0
  thetas = np.tile(x, (len(problem.client_rows), 1))
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
        thetas[client] = theta
      ends.append(y)
    x = (1 - beta) * x + beta * mean(ends, weights)
    yield x, thetas.copy()


def per_fed_avg(problem, rounds, rate, alpha, delta=None, own_batches=True):
  """The model; rate(r). The Hessian-free form with delta, else the first-order.

  With batches of their own the gradients of a step are of successive batches;
  what is left over of these is not used.
  """
  x = problem.x0
  gradient = lambda y, rows: problem.gradient(y, rows)[1]
  needed = 1
  if own_batches:
    needed = 2 if delta is None else 3
  for r, (_, batches, weights) in enumerate(rounds):
    ends = []
    for steps in batches:
      y = x
      for k in range(0, len(steps) - needed + 1, needed):
        first, *more = steps[k : k + needed] if own_batches else [steps[k]] * 3
        d = gradient(y - alpha * gradient(y, first), more[0])
        step = d
        if delta is not None:
          above = gradient(y + delta * d, more[1])
          below = gradient(y - delta * d, more[1])
          step = d - alpha * (above - below) / (2 * delta)
        y = y - rate(r) * step
      ends.append(y)
    x = mean(ends, weights)
    yield (x,)
