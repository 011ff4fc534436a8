"""Plain NumPy loops of methods that correct drift, look uphill or keep state.

FedDyn, FedNova, FedCM, FedExP, MimeLite, ProxSkip, FedSAM, MoFedSAM, FedSpeed
and DiLoCo, each written from its paper's box. Nothing here comes from the
package or from JAX. As in reference.py,

  x0: float64 vector [d].
  gradient(x, rows) -> (loss, grad) over the pool rows `rows`.
  cohorts[r][i]: id of the i-th client of round r whose message counts.
  batches[r][i]: list over its local steps of row arrays, perhaps empty.
  weights[r][i]: its weight, need not sum to one.

and each loop returns what the server has after every round.
"""

import numpy as np


def sgd(x, gradient, steps, lr, rho=0.0):
  """Heavy-ball steps: m <- rho m + g; x <- x - lr m."""
  m = np.zeros_like(x)
  for rows in steps:
    m = rho * m + gradient(x, rows)[1]
    x = x - lr * m
  return x


def mean(vectors, weights):
  total = sum(w * v for w, v in zip(weights, vectors, strict=True))
  return total / sum(weights)


def uphill(x, gradient, rows, rho, normalized=True):
  """g(x) and g(x + e), on the same rows."""
  _, first = gradient(x, rows)
  size = np.linalg.norm(first) if normalized else 1.0
  _, second = gradient(x + rho * first / size, rows)
  return first, second


# --------------------------------------------------------- Drift, corrected


def fed_nova(x0, gradient, cohorts, batches, weights, lr, rho=0.0, mu=0.0):
  """xs. A client without a step has ||a_i||_1 = 0 and moves nobody.

  a_i has in place k what the gradient of step k is multiplied with in
  (x_t - x_i) / lr; with momentum rho and with the proximal strength mu.
  """

  def weight(num_left, rho, pull):
    """Of a gradient of 1, and zeros in the steps after it."""
    moved, buffer = 0.0, 0.0
    for k in range(num_left):
      buffer = rho * buffer + (k == 0) - pull * moved
      moved += buffer
    return moved

  x, xs = x0, []
  for steps_of, p in zip(batches, weights, strict=True):
    d, reach = [], []
    for steps in steps_of:
      num_steps = len(steps)
      a = [weight(num_steps - k, rho, lr * mu) for k in range(num_steps)]
      norm = sum(map(abs, a))

      def local(y, rows, x_t=x):
        loss, grad = gradient(y, rows)
        return loss, grad + mu * (y - x_t)

      moved = x - sgd(x, local, steps, lr, rho)
      d.append(moved / (lr * norm) if num_steps else 0 * x)
      reach.append(norm)
    x = x - lr * mean(reach, p) * mean(d, p)
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
    x = mean(ends, weights[r]) - h / alpha
    xs.append(x)
    hs.append(h)
    gs.append(g.copy())
  return xs, hs, gs


def fed_exp(x0, gradient, cohorts, batches, weights, lr, eps):
  """xs, the evaluated models, the server's rates."""
  x, xs, evaluated, rates = x0, [], [], []
  for steps_of, p in zip(batches, weights, strict=True):
    deltas = [x - sgd(x, gradient, steps, lr) for steps in steps_of]
    delta = mean(deltas, p)
    squares = mean([delta @ delta for delta in deltas], p)
    rates.append(max(1.0, squares / (2 * (delta @ delta + eps))))
    before, x = x, x - rates[-1] * delta
    xs.append(x)
    evaluated.append((before + x) / 2)
  return xs, evaluated, rates


def fed_cm(
  x0, gradient, cohorts, batches, weights, rate, server_lr, alpha, rho=None
):
  """xs and Deltas; rate(r) is eta. MoFedSAM if rho is given, alpha its beta.

  K is the weighted mean of the clients' numbers of steps.
  """
  x, shared, xs, shareds = x0, np.zeros_like(x0), [], []
  for r, (steps_of, p) in enumerate(zip(batches, weights, strict=True)):
    eta, moved = rate(r), []
    for steps in steps_of:
      y = x
      for rows in steps:
        if rho is None:
          g = gradient(y, rows)[1]
        else:
          _, g = uphill(y, gradient, rows, rho)
        y = y - eta * (alpha * g + (1 - alpha) * shared)
      moved.append(x - y)
    k = mean([len(steps) for steps in steps_of], p)
    shared = mean(moved, p) / (eta * k)
    x = x - server_lr * eta * k * shared
    xs.append(x)
    shareds.append(shared)
  return xs, shareds


def mime_lite(x0, gradient, cohorts, batches, weights, rate, beta, client_rows):
  """xs and the momenta s; rate(r) is eta."""
  x, s, xs, momenta = x0, np.zeros_like(x0), [], []
  for r, cohort in enumerate(cohorts):
    ends, full = [], []
    for i, client in enumerate(cohort):
      y = x
      for rows in batches[r][i]:
        y = y - rate(r) * ((1 - beta) * gradient(y, rows)[1] + beta * s)
      ends.append(y)
      rows = client_rows[client]
      full.append(gradient(x, rows)[1] if len(rows) else np.zeros_like(x))
    s = (1 - beta) * mean(full, weights[r]) + beta * s
    x = mean(ends, weights[r])
    xs.append(x)
    momenta.append(s)
  return xs, momenta


def prox_skip(x0, gradient, batches, weights, lr, p, lengths):
  """xs, x_i [M, d] and h_i [M, d] after each round, of all clients.

  Args:
    batches: [r][i], of client i.
    weights: [M], the same in all rounds.
    lengths: [R], after how many iterations of round r the coin falls; more
      than the round has if it does not.

  Returns:
    The mean at the last meeting; each client's point; h. The law of the box:
    one iteration after the other, in which the coin falls or does not.
  """
  num_clients = len(weights)
  points, h = np.tile(x0, (num_clients, 1)), np.zeros((num_clients, len(x0)))
  x, xs, all_points, all_h = x0, [], [], []
  for r, steps_of in enumerate(batches):
    num_steps = max(len(steps) for steps in steps_of)
    for k in range(num_steps):
      ahead = points.copy()
      for i, steps in enumerate(steps_of):
        if k < len(steps):
          g = gradient(points[i], steps[k])[1]
          ahead[i] = points[i] - lr * (g - h[i])
      coin = k + 1 == lengths[r]
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


# -------------------------------------------------------------- Uphill


def fed_sam(x0, gradient, cohorts, batches, weights, lr, rho):
  """xs."""
  ahead = lambda y, rows: (None, uphill(y, gradient, rows, rho)[1])
  x, xs = x0, []
  for steps_of, p in zip(batches, weights, strict=True):
    x = mean([sgd(x, ahead, steps, lr) for steps in steps_of], p)
    xs.append(x)
  return xs


def fed_speed(
  x0,
  gradient,
  cohorts,
  batches,
  weights,
  lr,
  lam,
  alpha,
  rho,
  population,
  normalized=True,
  all_duals=False,
):
  """xs, duals [M, d] after each round.

  Args:
    population: weights of all clients.
    normalized: whether the perturbation has the length rho.
    all_duals: whether x_{t+1} is the mean of x_i over the cohort minus lam
      times the mean of the duals over all clients.
  """
  x_t, xs, all_of = x0, [], []
  duals = np.zeros((len(population), len(x0)))
  for r, cohort in enumerate(cohorts):
    ends, sent = [], []
    for i, client in enumerate(cohort):
      x = x_t
      for rows in batches[r][i]:
        g1, g2 = uphill(x, gradient, rows, rho, normalized)
        g = (1 - alpha) * g1 + alpha * g2
        x = x - lr * (g - duals[client] + (x - x_t) / lam)
      duals[client] = duals[client] - (x - x_t) / lam
      ends.append(x)
      sent.append(x - lam * duals[client])
    x_t = mean(sent, weights[r])
    if all_duals:
      x_t = mean(ends, weights[r]) - lam * mean(duals, population)
    xs.append(x_t)
    all_of.append(duals.copy())
  return xs, all_of


# ------------------------------------------------------------- Kept rules


def diloco(
  x0, gradient, cohorts, batches, weights, make_rule, server_lr, momentum
):
  """xs; `make_rule()` is a client's rule (reference.py), kept by the client.

  Nesterov's momentum outside: m <- mu m + Delta; x <- x - lr (Delta + mu m).
  """
  x, m, xs, kept = x0, np.zeros_like(x0), [], {}
  for r, cohort in enumerate(cohorts):
    ends = []
    for i, client in enumerate(cohort):
      rule, y = kept.setdefault(client, make_rule()), x
      for rows in batches[r][i]:
        loss, grad = gradient(y, rows)
        y = rule.step(y, loss, grad, None)
      ends.append(y)
    delta = x - mean(ends, weights[r])
    m = momentum * m + delta
    x = x - server_lr * (delta + momentum * m)
    xs.append(x)
  return xs
