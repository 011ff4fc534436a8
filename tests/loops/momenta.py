"""Plain loops of methods whose clients share moments."""

import copy

import numpy as np

from tests.loops.rounds import descend, mean


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


def double_momentum(
  problem, rounds, rate, alpha=1.0, mu_s=0.0, mu_l=0.0, beta=0.0, option="III",
  average_local=False,
):  # fmt: skip
  """DOMO's Algorithm 1 (Xu and Huang, AAAI 2022); rate(r).

  Yields the model, and P m.

  Option "I" is DOMO, "II" DOMO-S and "III" has no fusion. Clients may differ in
  P, which the box does not provide for: what it calls P m and P d, sums over
  the local steps, is then what the server keeps and averages, and P in line 10
  is the client's own.
  """
  x, zeros = problem.x0, np.zeros_like(problem.x0)
  momentum, local = zeros, zeros
  for r, (_, batches, weights) in enumerate(rounds):
    eta, ends, sums = rate(r), [], []
    for steps in batches:
      y, m = x, local if average_local else zeros
      if option == "I" and steps:
        y = y - eta * beta * momentum
      total = zeros
      for rows in steps:
        m = mu_l * m + problem.gradient(y, rows)[1]
        y = y - eta * m
        if option == "II":
          y = y - eta * beta * momentum / len(steps)
        total = total + m
      ends.append(m)
      sums.append(total)
    momentum = mu_s * momentum + mean(sums, weights)
    x = x - alpha * eta * momentum
    local = mean(ends, weights)
    yield x, momentum
