"""Plain loops of methods that correct what drives clients apart."""

import numpy as np

from tests.loops.rounds import descend, mean
from tests.loops.rules import Momentum, Sgd
from tests.loops.uphill import uphill


def fed_nova(problem, rounds, lr, rho=0.0, mu=0.0):
  """The model. A client without a step has ||a_i||_1 = 0 and moves nobody.

  a_i has in place k what the gradient of step k is multiplied with in
  (x_t - x_i) / lr; with momentum rho and with the proximal strength mu.
  """

  def weight(num_left):
    """Of a gradient of 1, and zeros in the steps after it."""
    moved, buffer = 0.0, 0.0
    for k in range(num_left):
      buffer = rho * buffer + (k == 0) - lr * mu * moved
      moved += buffer
    return moved

  x = problem.x0
  for _, batches, weights in rounds:
    d, reach = [], []
    for steps in batches:
      norm = sum(abs(weight(k + 1)) for k in range(len(steps)))

      def local(y, rows, x_t=x):
        loss, grad = problem.gradient(y, rows)
        return loss, grad + mu * (y - x_t)

      moved = x - descend(x, local, steps, Momentum(lr, rho)).xs[-1]
      d.append(moved / (lr * norm) if steps else 0 * x)
      reach.append(norm)
    x = x - lr * mean(reach, weights) * mean(d, weights)
    yield (x,)


def fed_dyn(problem, rounds, lr, alpha, population):
  """The model, h and g [M, d].

  Equal weights of all clients and of the cohorts are the box.
  """
  x = problem.x0
  g, h = np.zeros((len(population), len(x))), np.zeros_like(x)
  for clients, batches, weights in rounds:
    ends = []
    for client, steps in zip(clients, batches, strict=True):
      y = x
      for rows in steps:
        grad = problem.gradient(y, rows)[1]
        y = y - lr * (grad - g[client] + alpha * (y - x))
      ends.append(y)
    for client, y in zip(clients, ends, strict=True):
      g[client] = g[client] - alpha * (y - x)
      h = h - alpha * population[client] * (y - x) / sum(population)
    x = mean(ends, weights) - h / alpha
    yield x, h, g.copy()


def fed_exp(problem, rounds, lr, eps):
  """The model, the evaluated one, the server's rate."""
  x = problem.x0
  for _, batches, weights in rounds:
    deltas = [
      x - descend(x, problem.gradient, steps, Sgd(lr)).xs[-1]
      for steps in batches
    ]
    delta = mean(deltas, weights)
    squares = mean([delta @ delta for delta in deltas], weights)
    rate = max(1.0, squares / (2 * (delta @ delta + eps)))
    before, x = x, x - rate * delta
    yield x, (before + x) / 2, rate


def fed_cm(problem, rounds, rate, server_lr, alpha, rho=None):
  """The model and Delta; rate(r). MoFedSAM if rho is given, alpha its beta.

  K is the weighted mean of the clients' numbers of steps.
  """
  x, shared = problem.x0, np.zeros_like(problem.x0)
  for r, (_, batches, weights) in enumerate(rounds):
    eta, moved = rate(r), []
    for steps in batches:
      y = x
      for rows in steps:
        if rho is None:
          g = problem.gradient(y, rows)[1]
        else:
          _, g = uphill(y, problem.gradient, rows, rho)
        y = y - eta * (alpha * g + (1 - alpha) * shared)
      moved.append(x - y)
    k = mean(list(map(len, batches)), weights)
    shared = mean(moved, weights) / (eta * k)
    x = x - server_lr * eta * k * shared
    yield x, shared


def fed_acg(problem, rounds, lr, lam, beta):
  """The model and the momentum m."""
  w, m = problem.x0, np.zeros_like(problem.x0)
  for _, batches, weights in rounds:
    z, ends = w + lam * m, []
    for steps in batches:
      x = z
      for rows in steps:
        x = x - lr * (problem.gradient(x, rows)[1] + beta * (x - z))
      ends.append(x)
    m = lam * m + mean([x - z for x in ends], weights)
    w = mean(ends, weights)
    yield w, m


def mime_lite(problem, rounds, rate, beta):
  """The model and the momentum s; rate(r)."""
  x, s = problem.x0, np.zeros_like(problem.x0)
  for r, (clients, batches, weights) in enumerate(rounds):
    ends, full = [], []
    for client, steps in zip(clients, batches, strict=True):
      y = x
      for rows in steps:
        grad = problem.gradient(y, rows)[1]
        y = y - rate(r) * ((1 - beta) * grad + beta * s)
      ends.append(y)
      rows = problem.client_rows[client]
      full.append(problem.gradient(x, rows)[1] if len(rows) else 0 * x)
    s = (1 - beta) * mean(full, weights) + beta * s
    x = mean(ends, weights)
    yield x, s


def prox_skip(problem, rounds, lr, p, lengths):
  """The mean at the last meeting, x_i [M, d] and h_i [M, d].

  The law of the box: one iteration after the other, in which the coin falls or
  does not.

  Args:
    problem: see reference.py.
    rounds: of all clients, client i in place i, with the same weights.
    lr: the rate.
    p: the probability of a meeting.
    lengths: [R], after how many iterations of round r the coin falls; more
      than the round has if it does not.
  """
  x, num_clients = problem.x0, len(rounds[0].clients)
  points, h = np.tile(x, (num_clients, 1)), np.zeros((num_clients, len(x)))
  for (_, batches, weights), length in zip(rounds, lengths, strict=True):
    for k in range(max(map(len, batches))):
      ahead = points.copy()
      for i, steps in enumerate(batches):
        if k < len(steps):
          g = problem.gradient(points[i], steps[k])[1]
          ahead[i] = points[i] - lr * (g - h[i])
      coin = k + 1 == length
      if coin:
        x = mean(ahead, weights)
      points = np.tile(x, (num_clients, 1)) if coin else ahead
      h = h + p / lr * (points - ahead)
      if coin:
        break
    yield x, points, h


def fed_dc(problem, rounds, rate, alpha, population):
  """The model, the means of all h_i and g_i, and these [M, 2 d]; rate(r).

  A client without a step keeps its g_i.
  """
  w = problem.x0
  h, g = (np.zeros((len(population), len(w))) for _ in range(2))
  for r, (clients, batches, weights) in enumerate(rounds):
    shared, eta, ends = mean(g, population), rate(r), []
    g = g.copy()
    for client, steps in zip(clients, batches, strict=True):
      x = w
      for rows in steps:
        grad = problem.gradient(x, rows)[1] + alpha * (x - (w - h[client]))
        x = x - eta * (grad + shared - g[client])
      if steps:
        g[client] += -shared - (x - w) / (len(steps) * eta)
      h[client] = h[client] + x - w
      ends.append(x)
    w = mean(ends, weights) + mean(h, population)
    client_states = np.concatenate([h, g], axis=1)
    yield w, mean(h, population), mean(g, population), client_states
