"""Plain NumPy loops: drift, momenta, uphill gradients, models of one's own.

Each is written from its paper's box with the conventions of reference.py.
Nothing here comes from the package or from JAX. Each loop yields after every
round what its docstring names, of the server and of all clients [M, ...]; a
client that has not taken part has the initial values. `population` has the
weights of all M clients. Where it is said, rate(r) is eta.
"""

import copy
from typing import NamedTuple

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


# -------------------------------------------------------------- Uphill


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


# --------------------------------------------------------------- Momenta


def averaging_rule(problem, rounds, rule, names, record):
  """FedAvg whose clients share their rule: its fields are averaged too.

  Args:
    problem: see reference.py.
    rounds: see there.
    rule: in its first state; its `t`, the number of steps, becomes the mean,
      rounded.
    names: of the other fields that are averaged.
    record: `rule -> value`, what is yielded of it, beside the model.
  """
  x, rule = problem.x0, copy.deepcopy(rule)
  for _, batches, weights in rounds:
    ends, rules = [], []
    for steps in batches:
      rules.append(copy.deepcopy(rule))
      ends.append(descend(x, problem.gradient, steps, rules[-1]).xs[-1])
    x = mean(ends, weights)
    for name in names:
      setattr(rule, name, mean([getattr(r, name) for r in rules], weights))
    rule.t = round(mean([r.t for r in rules], weights))
    yield x, record(rule)


def fed_adamw(
  problem,
  rounds,
  rate,
  alpha,
  b1,
  b2,
  eps,
  decay,
  blocks,
  by_entry=False,
  shared_count=False,
):
  """The model, the direction of all, the shared second moment, and the count.

  Liu et al., 2025, Algorithm 2. The shared moment has a number for each of the
  blocks, which are slices; `by_entry` it has one for each coordinate. With
  `shared_count` the first moment is corrected for all steps since round 0. K
  and t go by the weighted mean of the clients' numbers of steps.
  """
  x, pull, done = problem.x0, np.zeros_like(problem.x0), 0.0
  shared = np.zeros(len(x) if by_entry else len(blocks))
  for r, (_, batches, weights) in enumerate(rounds):
    moved, moments = [], []
    for steps in batches:
      y, m, v = x, np.zeros_like(x), np.empty_like(x)
      if by_entry:
        v[:] = shared
      if not by_entry:
        for block, value in zip(blocks, shared, strict=True):
          v[block] = value
      for k, rows in enumerate(steps, 1):
        g = problem.gradient(y, rows)[1]
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        m_hat = m / (1 - b1 ** (done + k if shared_count else k))
        v_hat = v / (1 - b2 ** (done + k))
        adam = m_hat / (np.sqrt(v_hat) + eps)
        y = y - rate(r) * (adam + alpha * pull + decay * y)
      moved.append(y - x)
      moments.append(v if by_entry else [v[block].mean() for block in blocks])
    k = mean(list(map(len, batches)), weights)
    pull = -mean(moved, weights) / (k * rate(r))
    x = x + mean(moved, weights)
    shared = mean(list(map(np.array, moments)), weights)
    done = done + k
    yield x, pull, shared, [done]


def fed_lada(
  problem, rounds, rate, server_rate, alpha, b1, b2, eps, amsgrad=True
):
  """The model, the amended direction, and the shared second moment.

  Sun et al., 2023; without `amsgrad` as Adam without corrections.
  """
  x, amended = problem.x0, np.zeros_like(problem.x0)
  shared = np.full_like(x, eps * eps if amsgrad else 0.0)
  for r, (_, batches, weights) in enumerate(rounds):
    ends, moments = [], []
    for steps in batches:
      y, m, v, largest = x, np.zeros_like(x), shared, shared
      for rows in steps:
        g = problem.gradient(y, rows)[1]
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        largest = np.maximum(largest, v)
        root = np.sqrt(largest) if amsgrad else np.sqrt(v) + eps
        y = y - rate(r) * (alpha * m / root + (1 - alpha) * amended)
      ends.append(y)
      moments.append(largest if amsgrad else v)
    k = mean(list(map(len, batches)), weights)
    away = x - mean(ends, weights)
    amended = away / (rate(r) * k)
    x = x - server_rate * away
    shared = mean(moments, weights)
    yield x, amended, shared


class Momenta(NamedTuple):
  """All that happens in a round of `double_momentum`."""

  x: np.ndarray  # x_{r+1}
  momentum: np.ndarray  # P m_{r+1}
  points: list  # of each client, x_{r,0} (after line 7) to x_{r,P}
  buffers: list  # of each client, m_{r,0} to m_{r,P}


def double_momentum(
  problem, rounds, rate, alpha=1.0, mu_s=0.0, mu_l=0.0, beta=0.0, option="III",
  average_local=False,
):  # fmt: skip
  """DOMO's Algorithm 1 (Xu and Huang, AAAI 2022); yields `Momenta`; rate(r).

  Option "I" is DOMO, "II" DOMO-S and "III" has no fusion. Clients may differ in
  P, which the box does not provide for: what it calls P m and P d, sums over
  the local steps, is then what the server keeps and averages, and P in line 10
  is the client's own.
  """
  x, zeros = problem.x0, np.zeros_like(problem.x0)
  momentum, local = zeros, zeros
  for r, (_, batches, weights) in enumerate(rounds):
    eta, points, buffers, sums = rate(r), [], [], []
    for steps in batches:
      y, m = x, local if average_local else zeros
      if option == "I" and steps:
        y = y - eta * beta * momentum
      ys, ms = [y], [m]
      for rows in steps:
        m = mu_l * m + problem.gradient(y, rows)[1]
        y = y - eta * m
        if option == "II":
          y = y - eta * beta * momentum / len(steps)
        ys.append(y)
        ms.append(m)
      points.append(ys)
      buffers.append(ms)
      sums.append(sum(ms[1:], zeros))
    momentum = mu_s * momentum + mean(sums, weights)
    x = x - alpha * eta * momentum
    local = mean([ms[-1] for ms in buffers], weights)
    yield Momenta(x, momentum, points, buffers)


# ------------------------------------------------ Models of the clients


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
