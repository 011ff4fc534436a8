"""Plain loops of variance-reduced and control-variate methods.

Murata and Suzuki, "Bias-Variance Reduced Local SGD for Less Heterogeneous
Federated Learning", ICML 2021, Algorithms 2 to 4 and its baselines; local SGD
is `fed_avg` with `Sgd`. Conventions are those of reference.py, and besides:
  shared, own: rounds, whose batches are those of the recursion over rounds and
    of the local routine; `large` are rounds too, the one batch of each client
    is that of the large gradient, of use where a stage begins.
  picks[r]: the place in the cohort of the worker that is picked.

A client may have no examples at all: its gradient is 0 and its weight too.
"""

import numpy as np

from tests.loops.rounds import mean


def _gradient(problem, x, steps):
  """Over the rows of all local batches of a client at once."""
  rows = np.concatenate([np.zeros(0, int), *steps]).astype(int)
  return problem.gradient(x, rows)[1] if len(rows) else np.zeros_like(x)


def _mean_gradient(problem, x, of_round):
  grads = [_gradient(problem, x, steps) for steps in of_round.batches]
  return mean(grads, of_round.weights)


# ------------------------------------------------------------------ Baselines


def minibatch_sgd(problem, rounds, rate):
  """x <- x - eta mean_p g_p(x), on all local batches at once."""
  x = problem.x0
  for r, of_round in enumerate(rounds):
    x = x - rate(r) * _mean_gradient(problem, x, of_round)
    yield (x,)


def minibatch_sarah(problem, shared, large, rate, stage_length):
  """Algorithm 4 with K = 1: the server itself takes the one step.

  Yields the model, and v, the estimate of the round.
  """
  x = problem.x0
  for r, of_round in enumerate(shared):
    if r % stage_length == 0:
      v, x_before = _mean_gradient(problem, x, large[r]), x
    v = v + _mean_gradient(problem, x, of_round)
    v = v - _mean_gradient(problem, x_before, of_round)
    x_before, x = x, x - rate(r) * v
    yield x, v


def scaffold(
  problem, rounds, rate, server_lr, population, exact=False, rho=None
):
  """SCAFFOLD, or FedGamma if rho is given; c is the mean of all c_i, anew.

  Yields the model, all c_i [M, d], and their mean.

  Args:
    problem: see reference.py, also for `rounds`.
    rate: see above.
    server_lr: the server's rate.
    population: [M] the weight of each client in the mean of all.
    exact: whether c_i is a gradient (option I, not II).
    rho: how far uphill gradients are taken.
  """
  x = problem.x0
  controls = np.zeros((len(population), len(x)))
  for r, (clients, batches, weights) in enumerate(rounds):
    c, eta, moves = mean(controls, population), rate(r), []
    controls = controls.copy()
    for client, steps in zip(clients, batches, strict=True):
      y, c_i = x, controls[client].copy()
      for rows in steps:
        grad = problem.gradient(y, rows)[1]
        if rho is not None:
          ahead = y + rho * grad / np.linalg.norm(grad)
          grad = problem.gradient(ahead, rows)[1]
        y = y - eta * (grad - c_i + c)
      if exact:
        controls[client] = _gradient(problem, x, [problem.client_rows[client]])
      elif steps:
        controls[client] = c_i - c + (x - y) / (len(steps) * eta)
      moves.append(y - x)
    x = x + server_lr * mean(moves, weights)
    yield x, controls, mean(controls, population)


# ------------------------------------------------------------------ BVR-L-SGD


def local_routine(problem, x0, v0, local_batches, eta):
  """Algorithm 3: the points x_0 to x_K."""
  points, v = [x0], v0
  x_before = x = x0
  for rows in local_batches:
    change = problem.gradient(x, rows)[1] - problem.gradient(x_before, rows)[1]
    v = change + v
    x_before, x = x, x - eta * v
    points.append(x)
  return points


def bvr_l_sgd(problem, shared, own, large, picks, rate, stage_length):
  """Algorithm 4, the practical version.

  Yields the model, and v, the estimate of the round.

  Args:
    problem: see reference.py.
    shared: see above, also for `own`, `large`, `picks` and `rate`.
    own: of the local routine.
    large: of the large gradient.
    picks: who is picked.
    rate: of the round.
    stage_length: T.
  """
  x = problem.x0
  for r, of_round in enumerate(shared):
    if r % stage_length == 0:
      v, x_before = _mean_gradient(problem, x, large[r]), x
    v = v + _mean_gradient(problem, x, of_round)
    v = v - _mean_gradient(problem, x_before, of_round)
    steps = own[r].batches[picks[r]]
    points = local_routine(problem, x, v, steps, rate(r))
    x_before, x = x, points[-1]
    yield x, v


def bvr_l_sgd_theory(
  problem, shared, own, large, picks, k_hats, t_hats, rate, stage_length
):
  """Algorithm 2: every worker moves, and a random point is returned.

  Args:
    problem: see reference.py.
    shared: see above, also for `own`, `large`, `picks` and `rate`.
    own: of the local routine.
    large: of the large gradient.
    picks: who is picked.
    k_hats: k_hats[r][i] in 1..K, of the local routine.
    t_hats: of each stage, in 1..T.
    rate: of the round.
    stage_length: T.

  Returns:
    xs, and outs, the point x_s^out of each stage.
  """
  x_stage, xs, outs = problem.x0, [], []
  for s, t_hat in enumerate(t_hats):
    first = s * stage_length
    v = _mean_gradient(problem, x_stage, large[first])
    x_before = x = x_stage
    candidates = []
    for r in range(first, first + stage_length):
      v = v + _mean_gradient(problem, x, shared[r])
      v = v - _mean_gradient(problem, x_before, shared[r])
      last, out = [], []
      for steps, k_hat in zip(own[r].batches, k_hats[r], strict=True):
        points = local_routine(problem, x, v, steps, rate(r))
        last.append(points[-1])
        out.append(points[k_hat] if steps else x)
      x_before, x = x, last[picks[r]]
      candidates.append(out[picks[r]])
      xs.append(x)
    x_stage = x
    outs.append(candidates[t_hat - 1])
  return xs, outs
