"""Plain NumPy loops of variance-reduced and control-variate methods.

Murata and Suzuki, "Bias-Variance Reduced Local SGD for Less Heterogeneous
Federated Learning", ICML 2021, Algorithms 2 to 4 and its baselines; local SGD
is `fed_avg` of reference.py with `Sgd`. Nothing here comes from the package or
from JAX.

Conventions are those of reference.py (x0, gradient, cohorts, weights), and
besides:
  rate: function `r -> eta` of the round.
  batches[r][i]: local batches, a list over local steps; `shared` are those of
    the recursion over rounds, `own` those of the local routine.
  large[r][i]: rows of the large gradient, of use where a stage begins.
  picks[r]: the place in the cohort of the worker that is picked.

A client may have no examples at all: its gradient is 0 and its weight too.
"""

import numpy as np

from tests.reference import weighted_mean


def _gradient(gradient, x, rows):
  return gradient(x, rows)[1] if len(rows) else np.zeros_like(x)


def _together(steps):
  """The rows of all local batches of a client."""
  return np.concatenate([np.zeros(0, int), *steps]).astype(int)


# ------------------------------------------------------------------ Baselines


def minibatch_sgd(x0, gradient, cohorts, batches, weights, rate):
  """x <- x - eta mean_p g_p(x), on all local batches at once.

  Returns:
    xs, the model after each round.
  """
  x, xs = x0, []
  for r, cohort in enumerate(cohorts):
    grads = []
    for i in range(len(cohort)):
      grads.append(_gradient(gradient, x, _together(batches[r][i])))
    x = x - rate(r) * weighted_mean(grads, weights[r])
    xs.append(x)
  return xs


def minibatch_sarah(
  x0, gradient, cohorts, shared, weights, large, rate, stage_length
):
  """Algorithm 4 with K = 1: the server itself takes the one step.

  Returns:
    xs, and vs, the estimate of each round.
  """
  x, xs, vs = x0, [], []
  for r, cohort in enumerate(cohorts):
    if r % stage_length == 0:
      starts = [_gradient(gradient, x, rows) for rows in large[r]]
      v, x_before = weighted_mean(starts, weights[r]), x
    changes = []
    for i in range(len(cohort)):
      rows = _together(shared[r][i])
      at_new = _gradient(gradient, x, rows)
      changes.append(at_new - _gradient(gradient, x_before, rows))
    v = v + weighted_mean(changes, weights[r])
    x_before, x = x, x - rate(r) * v
    xs.append(x)
    vs.append(v)
  return xs, vs


def scaffold(
  x0,
  gradient,
  cohorts,
  batches,
  weights,
  rate,
  server_lr,
  masses,
  client_rows=None,
):
  """SCAFFOLD; c is the mean of all c_i, taken anew in each round.

  Args:
    masses: [M] the weight of each client of the population in that mean.
    client_rows: for option I, the rows that each client has; option II if
      None.

  Returns:
    xs, and controls[r], the list of all c_i after round r.
  """
  controls = [np.zeros_like(x0) for _ in masses]
  x, xs, kept = x0, [], []
  for r, cohort in enumerate(cohorts):
    c = weighted_mean(controls, masses)
    controls, moves, eta = list(controls), [], rate(r)
    for i, client in enumerate(cohort):
      y, c_i = x, controls[client]
      for rows in batches[r][i]:
        y = y - eta * (gradient(y, rows)[1] - c_i + c)
      num_steps = len(batches[r][i])
      if client_rows is not None:
        controls[client] = _gradient(gradient, x, client_rows[client])
      elif num_steps:
        controls[client] = c_i - c + (x - y) / (num_steps * eta)
      moves.append(y - x)
    x = x + server_lr * weighted_mean(moves, weights[r])
    xs.append(x)
    kept.append(controls)
  return xs, kept


# ------------------------------------------------------------------ BVR-L-SGD


def local_routine(x0, v0, gradient, local_batches, eta):
  """Algorithm 3: the points x_0 to x_K."""
  points, v = [x0], v0
  x_before = x = x0
  for rows in local_batches:
    v = gradient(x, rows)[1] - gradient(x_before, rows)[1] + v
    x_before, x = x, x - eta * v
    points.append(x)
  return points


def bvr_l_sgd(
  x0,
  gradient,
  cohorts,
  shared,
  own,
  weights,
  large,
  picks,
  rate,
  stage_length,
  keep_own=False,
):
  """Algorithm 4, the practical version.

  Args:
    keep_own: whether a worker corrects its own estimate of the iteration
      before, its own large gradient at first, instead of the mean of all. For
      the same cohort and weights in each round.

  Returns:
    xs, and vs, the estimate of each round.
  """
  x, xs, vs = x0, [], []
  for r, cohort in enumerate(cohorts):
    if r % stage_length == 0:
      estimates = [_gradient(gradient, x, rows) for rows in large[r]]
      v, x_before = weighted_mean(estimates, weights[r]), x
    if not keep_own:
      estimates = [v] * len(cohort)
    corrected = []
    for i in range(len(cohort)):
      rows = _together(shared[r][i])
      at_new = _gradient(gradient, x, rows)
      at_old = _gradient(gradient, x_before, rows)
      corrected.append(at_new - at_old + estimates[i])
    estimates = corrected
    v = weighted_mean(estimates, weights[r])
    p = picks[r]
    points = local_routine(x, v, gradient, own[r][p], rate(r))
    x_before, x = x, points[-1]
    xs.append(x)
    vs.append(v)
  return xs, vs


def bvr_l_sgd_theory(
  x0,
  gradient,
  cohorts,
  shared,
  own,
  weights,
  large,
  picks,
  k_hats,
  t_hats,
  rate,
  stage_length,
):
  """Algorithm 2: every worker moves, and a random point is returned.

  Args:
    k_hats: k_hats[r][i] in 1..K, of the local routine.
    t_hats: of each stage, in 1..T.

  Returns:
    xs, and outs, the point x_s^out of each stage.
  """
  x_stage, xs, outs = x0, [], []
  for s, t_hat in enumerate(t_hats):
    first = s * stage_length
    starts = [_gradient(gradient, x_stage, rows) for rows in large[first]]
    v = weighted_mean(starts, weights[first])
    x_before = x = x_stage
    candidates = []
    for r in range(first, first + stage_length):
      corrected, last, out = [], [], []
      for i in range(len(cohorts[r])):
        rows = _together(shared[r][i])
        at_new = _gradient(gradient, x, rows)
        corrected.append(at_new - _gradient(gradient, x_before, rows) + v)
      v = weighted_mean(corrected, weights[r])
      for i in range(len(cohorts[r])):
        points = local_routine(x, v, gradient, own[r][i], rate(r))
        last.append(points[-1])
        out.append(points[k_hats[r][i]] if own[r][i] else x)
      x_before, x = x, last[picks[r]]
      candidates.append(out[picks[r]])
      xs.append(x)
    x_stage = x
    outs.append(candidates[t_hat - 1])
  return xs, outs
