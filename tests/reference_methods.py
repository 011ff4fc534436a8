"""Plain NumPy loops of methods that correct drift, look uphill or keep state.

FedDyn, FedNova, FedCM, FedACG, FedExP, MimeLite, ProxSkip, MoFedSAM,
FedSpeed, FedDC, FedLESAM and FedSMOO, each written from its paper's box with
the conventions of reference.py. Nothing here comes from the package or from
JAX. Each loop returns what the server has after every round. `population` has
the weights of all M clients.
"""

import numpy as np

from tests.reference import Momentum, Sgd, descend, mean


def uphill(x, gradient, rows, rho, normalized=True):
  """g(x) and g(x + e), on the same rows."""
  _, first = gradient(x, rows)
  size = np.linalg.norm(first) if normalized else 1.0
  _, second = gradient(x + rho * first / size, rows)
  return first, second


# --------------------------------------------------------- Drift, corrected


def fed_nova(problem, rounds, lr, rho=0.0, mu=0.0):
  """xs. A client without a step has ||a_i||_1 = 0 and moves nobody.

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

  x, xs = problem.x0, []
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
    xs.append(x)
  return xs


def fed_dyn(problem, rounds, lr, alpha, population):
  """xs, h after each round, g [M, d] after each round.

  Equal weights of all clients and of the cohorts are the box.
  """
  x, xs, hs, gs = problem.x0, [], [], []
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
    xs.append(x)
    hs.append(h)
    gs.append(g.copy())
  return xs, hs, gs


def fed_exp(problem, rounds, lr, eps):
  """xs, the evaluated models, the server's rates."""
  x, xs, evaluated, rates = problem.x0, [], [], []
  for _, batches, weights in rounds:
    deltas = [
      x - descend(x, problem.gradient, steps, Sgd(lr)).xs[-1]
      for steps in batches
    ]
    delta = mean(deltas, weights)
    squares = mean([delta @ delta for delta in deltas], weights)
    rates.append(max(1.0, squares / (2 * (delta @ delta + eps))))
    before, x = x, x - rates[-1] * delta
    xs.append(x)
    evaluated.append((before + x) / 2)
  return xs, evaluated, rates


def fed_cm(problem, rounds, rate, server_lr, alpha, rho=None):
  """xs and Deltas; rate(r) is eta. MoFedSAM if rho is given, alpha its beta.

  K is the weighted mean of the clients' numbers of steps.
  """
  x, xs, shareds = problem.x0, [], []
  shared = np.zeros_like(x)
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
    xs.append(x)
    shareds.append(shared)
  return xs, shareds


def fed_acg(problem, rounds, lr, lam, beta):
  """ws and the momenta m."""
  w, ws, momenta = problem.x0, [], []
  m = np.zeros_like(w)
  for _, batches, weights in rounds:
    z, ends = w + lam * m, []
    for steps in batches:
      x = z
      for rows in steps:
        x = x - lr * (problem.gradient(x, rows)[1] + beta * (x - z))
      ends.append(x)
    m = lam * m + mean([x - z for x in ends], weights)
    w = mean(ends, weights)
    ws.append(w)
    momenta.append(m)
  return ws, momenta


def mime_lite(problem, rounds, rate, beta):
  """xs and the momenta s; rate(r) is eta."""
  x, xs, momenta = problem.x0, [], []
  s = np.zeros_like(x)
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
    xs.append(x)
    momenta.append(s)
  return xs, momenta


def prox_skip(problem, rounds, lr, p, lengths):
  """xs, x_i [M, d] and h_i [M, d] after each round, of all clients.

  Args:
    problem: see reference.py.
    rounds: of all clients, client i in place i, with the same weights.
    lr: the rate.
    p: the probability of a meeting.
    lengths: [R], after how many iterations of round r the coin falls; more
      than the round has if it does not.

  Returns:
    The mean at the last meeting; each client's point; h. The law of the box:
    one iteration after the other, in which the coin falls or does not.
  """
  x, xs, all_points, all_h = problem.x0, [], [], []
  num_clients = len(rounds[0].clients)
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
    xs.append(x)
    all_points.append(points)
    all_h.append(h)
  return xs, all_points, all_h


def fed_dc(problem, rounds, rate, alpha, population):
  """xs, the means of all h_i and g_i, and these [R, M, 2, d]; rate(r) is eta.

  A client without a step keeps its g_i.
  """
  w, found = problem.x0, []
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
    kept = np.stack([h, g], axis=1)
    found.append((w, mean(h, population), mean(g, population), kept))
  return tuple(map(list, zip(*found, strict=True)))


# -------------------------------------------------------------- Uphill


def along(direction, rho):
  """rho in this direction; 0 if it is 0."""
  size = np.linalg.norm(direction)
  return rho * direction / size if size else 0 * direction


def fed_lesam(problem, rounds, lr, rho, num_clients, server_lr=1.0):
  """ws, w_i [M, d] after each round."""
  w, ws, kept = problem.x0, [], []
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
    ws.append(w)
    kept.append(old.copy())
  return ws, kept


def fed_lesam_last_step(problem, rounds, lr, rho, leaves, server_lr):
  """ws and the server's last steps; `leaves` are slices of a model."""
  w, ws, steps_of = problem.x0, [], []
  last = np.zeros_like(w)
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
    ws.append(w)
    steps_of.append(last)
  return ws, steps_of


def fed_smoo(problem, rounds, rate, lam, rho, population):
  """ws, s, and -lam h_i with mu_i [R, M, 2, d]; rate(r) is eta."""
  w, ws, shareds, kept = problem.x0, [], [], []
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
    ws.append(w)
    shareds.append(s)
    kept.append(np.stack([-lam * h, mu], axis=1))
  return ws, shareds, kept


def fed_speed(
  problem, rounds, lr, lam, alpha, rho, population, normalized=True,
  all_duals=False,
):  # fmt: skip
  """xs, duals [M, d] after each round.

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
  x_t, xs, all_of = problem.x0, [], []
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
    xs.append(x_t)
    all_of.append(duals.copy())
  return xs, all_of
