"""The referee checked by closed forms, finite differences and theorems.

All of it is float64 NumPy: a failure here means that a paper was misread, not
that the package is wrong.
"""

import functools

import numpy as np
import pytest

from tests import problems, reference

SEEDS = range(5)
DELTA = {"gamma": 2.0, "delta": 0.1, "eta_0": 0.2, "theta_0": 1.0}


def _one_client(problem, num_steps, rule, x0=None):
  """One round of one client on full gradients of the whole pool."""
  everything = np.arange(len(problem.examples["y"]))
  x0 = problem.x0 if x0 is None else x0
  steps = [everything] * num_steps
  return reference.descend(0, x0, problem.gradient, steps, rule)


def _constant(grad, num_steps, rule):
  """Iterates from zero on the linear loss <grad, x>."""

  def linear(x, rows):
    return grad @ x, grad

  return reference.descend(0, 0 * grad, linear, [None] * num_steps, rule).xs


def _isotropic(curvature, centre=0.0, f_min=0.0):
  """f(x) = (L/2) ||x - c||^2 + f_min."""

  def objective(x, rows):
    residual = x - centre
    return curvature / 2 * residual @ residual + f_min, curvature * residual

  return objective


# ------------------------------------------------------------ Test problems


def _finite_difference(f, x, step=1e-6):
  grad = np.zeros_like(x)
  for j in range(len(x)):
    e = np.zeros_like(x)
    e[j] = step
    grad[j] = (f(x + e) - f(x - e)) / (2 * step)
  return grad


@pytest.mark.parametrize(
  "make",
  [
    problems.least_squares,
    problems.softmax_regression,
    problems.softplus_mlp,
  ],
)
def test_problem_gradient_is_the_derivative_of_its_loss(make):
  problem = make(0)
  rows = problem.client_rows[1]
  _, grad = problem.gradient(problem.x0, rows)
  numeric = _finite_difference(
    lambda x: problem.gradient(x, rows)[0], problem.x0
  )
  np.testing.assert_allclose(grad, numeric, atol=1e-8)


def test_moon_gradient_is_the_derivative_of_its_loss():
  problem = problems.softplus_mlp(0)
  rng = np.random.default_rng(0)
  x_global, x_previous = rng.normal(size=(2, len(problem.x0)))

  def f(x):
    return problem.moon_gradient(
      x, problem.client_rows[0], x_global, x_previous, 2.0, 0.5
    )

  numeric = _finite_difference(lambda x: f(x)[0], problem.x0)
  np.testing.assert_allclose(f(problem.x0)[1], numeric, atol=1e-8)


def test_moon_term_equals_its_printed_formula():
  problem = problems.softplus_mlp(1)
  rows = problem.client_rows[0]
  rng = np.random.default_rng(1)
  x_global, x_previous = rng.normal(size=(2, len(problem.x0)))
  z, z_g, z_p = (
    problem.features(x, rows) for x in (problem.x0, x_global, x_previous)
  )
  terms = []
  for n in range(len(rows)):
    e_g, e_p = (
      np.exp(z[n] @ u[n] / np.linalg.norm(z[n]) / np.linalg.norm(u[n]) / 0.5)
      for u in (z_g, z_p)
    )
    terms.append(-np.log(e_g / (e_g + e_p)))
  plain, _ = problem.gradient(problem.x0, rows)
  loss, _ = problem.moon_gradient(
    problem.x0, rows, x_global, x_previous, 2.0, 0.5
  )
  np.testing.assert_allclose(loss, plain + 2.0 * np.mean(terms), rtol=1e-13)


# --------------------------------------------------------------- Step rules


def test_heavy_ball_on_a_constant_gradient():
  g, lr, b, k = np.array([1.0, -2.0]), 0.1, 0.9, 7
  x = _constant(g, k, reference.Momentum(lr, b))[-1]
  expected = -lr * g / (1 - b) * (k - b * (1 - b**k) / (1 - b))
  np.testing.assert_allclose(x, expected, rtol=1e-13)


def test_heavy_ball_on_a_quadratic_is_a_matrix_power():
  curvature, lr, b, k = 3.0, 0.1, 0.9, 20
  x0 = np.array([1.7])
  trace = reference.descend(
    0, x0, _isotropic(curvature), [None] * k, reference.Momentum(lr, b)
  )
  # x_{k+1} = x_k - lr L x_k + b (x_k - x_{k-1}) with x_{-1} = x_0.
  companion = np.array([[1 - lr * curvature + b, -b], [1.0, 0.0]])
  expected = np.linalg.matrix_power(companion, k) @ [x0[0], x0[0]]
  np.testing.assert_allclose(trace.xs[-1], expected[:1], rtol=1e-10)


def test_adam_on_a_constant_gradient_moves_lr_times_sign():
  g, lr, eps = np.array([4.0, -0.01]), 0.1, 1e-3
  xs = _constant(g, 5, reference.Adam(lr, eps=eps))
  for k, x in enumerate(xs):
    np.testing.assert_allclose(x, -k * lr * g / (np.abs(g) + eps), rtol=1e-12)


def test_adam_second_step_by_hand():
  rule = reference.Adam(0.1, b1=0.9, b2=0.99, eps=0.0)
  x = rule.step(np.zeros(1), None, np.array([1.0]), None)
  x = rule.step(x, None, np.array([3.0]), None)
  m_hat, v_hat = (0.9 * 0.1 + 0.3) / 0.19, (0.99 * 0.01 + 0.09) / 0.0199
  np.testing.assert_allclose(x, -0.1 - 0.1 * m_hat / np.sqrt(v_hat))


def test_adagrad_on_a_constant_gradient_moves_lr_over_root_k():
  g, lr = np.array([4.0, -0.01]), 0.1
  x = _constant(g, 4, reference.Adagrad(lr, eps=0.0))[-1]
  expected = -lr * np.sign(g) * np.sum(1 / np.sqrt(np.arange(1, 5)))
  np.testing.assert_allclose(x, expected, rtol=1e-13)


def test_yogi_second_moment_changes_by_at_most_g2():
  # From v = 0 every step with |g| > sqrt(v) adds (1 - b2) g^2: v = k (1-b2) g^2
  g, b2 = 2.0, 0.9
  rule = reference.Yogi(0.1, b1=0.0, b2=b2, eps=0.0, initial_accumulator=0.0)
  xs = _constant(np.array([g]), 3, rule)
  for k in range(1, 4):
    v_hat = k * (1 - b2) * g**2 / (1 - b2**k)
    move = xs[k] - xs[k - 1]
    np.testing.assert_allclose(move, -0.1 * g / np.sqrt(v_hat), rtol=1e-12)


def test_yogi_starts_both_moments_at_the_initial_accumulator():
  g, b1, b2, start = 2.0, 0.9, 0.99, 0.5
  rule = reference.Yogi(0.1, b1, b2, eps=0.0, initial_accumulator=start)
  x = _constant(np.array([g]), 1, rule)[-1]
  m_hat = (b1 * start + (1 - b1) * g) / (1 - b1)
  v_hat = (start + (1 - b2) * g**2) / (1 - b2)
  np.testing.assert_allclose(x, -0.1 * m_hat / np.sqrt(v_hat), rtol=1e-12)


def test_sps_solves_an_isotropic_quadratic_in_one_step_and_obeys_its_cap():
  x0 = np.array([3.0, -1.0])
  objective = _isotropic(4.0, f_min=5.0)
  free = reference.Sps(c=0.5, f_min=5.0, eps=0.0)
  trace = reference.descend(0, x0, objective, [None], free)
  np.testing.assert_allclose(free.step_sizes, [1 / 4.0])
  np.testing.assert_allclose(trace.xs[-1], 0.0, atol=1e-15)
  capped = reference.Sps(c=0.5, f_min=5.0, max_step=0.01)
  reference.descend(0, x0, objective, [None], capped)
  assert capped.step_sizes == [0.01]


def test_step_decay_divides_after_half_and_three_quarters_of_the_rounds():
  lrs = [reference.step_decay(1.0, r, 8) for r in range(8)]
  np.testing.assert_allclose(lrs, [1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01])
  lrs = [reference.step_decay(1.0, r, 8, delay=1) for r in range(8)]
  np.testing.assert_allclose(lrs, [1, 1, 1, 1, 1, 0.1, 0.1, 0.01])


# --------------------------------------------------------------- Algorithms


def _sgd(lr):
  return lambda r: reference.Sgd(lr)


def test_fed_avg_on_quadratics_equals_matrix_powers():
  problem = problems.least_squares(3)
  lr, steps, weights = 0.1, [3, 0, 5, 1], [1.0, 2.0, 3.0, 4.0]
  rows = problem.client_rows
  batches = [[[rows[m]] * steps[m] for m in range(4)]] * 2
  xs, _ = reference.fed_avg(
    problem.x0,
    problem.gradient,
    [range(4)] * 2,
    batches,
    [weights] * 2,
    _sgd(lr),
  )
  x = problem.x0
  for r in range(2):
    local = []
    for m in range(4):
      contraction = np.eye(len(x)) - lr * problem.hessian(rows[m])
      centre = problem.minimiser(rows[m])
      power = np.linalg.matrix_power(contraction, steps[m])
      local.append(centre + power @ (x - centre))
    x = np.average(local, axis=0, weights=weights)
    np.testing.assert_allclose(xs[r], x, rtol=1e-12)


def test_server_rule_sees_the_pseudo_gradient_and_keeps_its_state():
  problem = problems.least_squares(4)
  rows = problem.client_rows
  # One local step: the pseudo-gradient is lr * the mean gradient, so federated
  # momentum is heavy ball on f = mean_m f_m.
  xs, _ = reference.fed_avg(
    problem.x0,
    problem.gradient,
    [range(4)] * 6,
    [[[r] for r in rows]] * 6,
    [[1.0] * 4] * 6,
    _sgd(0.1),
    server=reference.Momentum(0.5, 0.9),
  )

  def mean_gradient(x, _):
    return 0.0, np.mean([problem.gradient(x, r)[1] for r in rows], axis=0)

  plain = reference.descend(
    0, problem.x0, mean_gradient, [None] * 6, reference.Momentum(0.05, 0.9)
  )
  np.testing.assert_allclose(xs, plain.xs[1:], rtol=1e-12)


def test_fed_adam_first_round_moves_lr_in_every_coordinate():
  problem = problems.softmax_regression(0)
  server = reference.Adam(1e-3, eps=0.0)
  rounds = problems.draw_rounds(0, problem.client_rows, 1, 3, 4)
  args = (problem.x0, problem.gradient, *rounds, _sgd(0.1))
  (x,), _ = reference.fed_avg(*args, server=server)
  (mean,), _ = reference.fed_avg(*args)
  expected = problem.x0 - 1e-3 * np.sign(problem.x0 - mean)
  np.testing.assert_allclose(x, expected, rtol=1e-12)
  (again,), _ = reference.fed_avg(*args, server=server)
  np.testing.assert_array_equal(x, again)  # the caller's server stays fresh


def test_fed_prox_client_converges_to_its_proximal_point():
  problem = problems.least_squares(5)
  rows, mu = problem.client_rows[0], 0.7
  (x,), traces = reference.fed_prox(
    problem.x0,
    problem.gradient,
    [[0]],
    [[[rows] * 400]],
    [[1.0]],
    _sgd(0.2),
    mu,
  )
  hessian, centre = problem.hessian(rows), problem.minimiser(rows)
  expected = np.linalg.solve(
    hessian + mu * np.eye(len(x)), hessian @ centre + mu * problem.x0
  )
  np.testing.assert_allclose(x, expected, rtol=1e-10)
  loss, _ = problem.gradient(x, rows)
  penalised = loss + mu / 2 * np.sum((x - problem.x0) ** 2)
  np.testing.assert_allclose(traces[0][0].losses[-1], penalised, rtol=1e-12)


def test_fed_prox_without_strength_is_fed_avg():
  problem = problems.softmax_regression(1)
  rounds = problems.draw_rounds(1, problem.client_rows, 3, 2, 4)
  args = (
    problem.x0,
    problem.gradient,
    *rounds,
    lambda r: reference.DeltaSgd(**DELTA),
  )
  prox, _ = reference.fed_prox(*args, mu=0.0)
  np.testing.assert_array_equal(prox, reference.fed_avg(*args)[0])


def test_moon_remembers_each_clients_last_model():
  problem = problems.softplus_mlp(2)
  seen = []

  def gradient(x, rows, x_global, x_previous):
    seen.append((x_global, x_previous))
    return problem.moon_gradient(x, rows, x_global, x_previous, 1.0, 0.5)

  rows = problem.client_rows
  cohorts = [[0, 1], [1, 2], [0, 2]]
  batches = [[[rows[m]] for m in cohort] for cohort in cohorts]
  xs, traces = reference.moon(
    problem.x0, gradient, cohorts, batches, [[1.0, 1.0]] * 3, _sgd(0.5)
  )
  x_global = [problem.x0, problem.x0, xs[0], xs[0], xs[1], xs[1]]
  x_previous = [
    problem.x0,
    problem.x0,
    traces[0][1].xs[-1],
    xs[0],
    traces[0][0].xs[-1],
    traces[1][1].xs[-1],
  ]
  for i in range(6):
    np.testing.assert_array_equal(seen[i][0], x_global[i])
    np.testing.assert_array_equal(seen[i][1], x_previous[i])


def test_moon_term_has_no_gradient_for_a_client_without_memory():
  problem = problems.softplus_mlp(3)
  rounds = problems.draw_rounds(3, problem.client_rows, 1, 3, 4)
  moon_gradient = functools.partial(
    problem.moon_gradient, mu=1.0, temperature=0.5
  )
  moon, _ = reference.moon(problem.x0, moon_gradient, *rounds, _sgd(0.5))
  avg, _ = reference.fed_avg(problem.x0, problem.gradient, *rounds, _sgd(0.5))
  np.testing.assert_allclose(moon, avg, rtol=1e-13)


# ---------------------------------------------------------------- Delta-SGD


@pytest.mark.parametrize("seed", SEEDS)
def test_delta_sgd_equals_algorithm_1_line_by_line(seed):
  problem = problems.softmax_regression(seed)
  cohorts, batches, weights = problems.draw_rounds(
    seed, problem.client_rows, 4, 3, 3
  )
  xs, traces = reference.fed_avg(
    problem.x0,
    problem.gradient,
    cohorts,
    batches,
    [[1.0] * len(w) for w in weights],
    lambda r: reference.DeltaSgd(**DELTA, reuse_gradients=True),
  )
  box, step_sizes = reference.delta_sgd_box(
    problem.x0, problem.gradient, cohorts, batches, **DELTA
  )
  np.testing.assert_allclose(xs, box, rtol=1e-12)
  for r, cohort in enumerate(cohorts):
    for i in range(len(cohort)):
      np.testing.assert_allclose(
        traces[r][i].rule.step_sizes, step_sizes[r][i], rtol=1e-12
      )


def test_both_gradient_variants_agree_on_full_gradients_only():
  problem = problems.softmax_regression(0)
  rounds = problems.draw_rounds(0, problem.client_rows, 2, 2, 3)

  def run(batches, reuse):
    return reference.fed_avg(
      problem.x0,
      problem.gradient,
      rounds[0],
      batches,
      rounds[2],
      lambda r: reference.DeltaSgd(**DELTA, reuse_gradients=reuse),
    )[0]

  full = [[[np.concatenate(b)] * len(b) for b in row] for row in rounds[1]]
  np.testing.assert_allclose(run(full, True), run(full, False), rtol=1e-12)
  assert np.abs(run(rounds[1], True)[-1] - run(rounds[1], False)[-1]).max() > 0


def test_same_batch_variant_takes_both_gradients_on_the_current_batch():
  problem = problems.least_squares(0)
  first, second = problem.client_rows[0], problem.client_rows[1]
  rule = reference.DeltaSgd(2.0, 0.1, 0.2, 1e9)  # growth out of the way
  trace = reference.descend(
    0, problem.x0, problem.gradient, [first, second], rule
  )
  x_0, x_1, x_2 = trace.xs
  g_0, g_1 = (problem.gradient(x, second)[1] for x in (x_0, x_1))
  eta = np.linalg.norm(x_1 - x_0) / np.linalg.norm(g_1 - g_0)
  np.testing.assert_allclose(rule.step_sizes, [0.2, eta], rtol=1e-12)
  np.testing.assert_allclose(x_2, x_1 - eta * g_1, rtol=1e-12)


def test_delta_sgd_grows_without_eps_where_nothing_moves():
  rule = reference.DeltaSgd(2.0, 1.0, 0.2, 1.0, eps=1e-3)
  _constant(np.array([1.0]), 2, rule)  # dg = 0
  np.testing.assert_allclose(rule.step_sizes, [0.2, 0.2 * np.sqrt(2)])
  rule = reference.DeltaSgd(2.0, 1.0, 0.2, 1.0, eps=1e-3)
  _constant(np.array([0.0]), 2, rule)  # dx = 0
  np.testing.assert_allclose(rule.step_sizes, [0.2, 0.2 * np.sqrt(2)])


@pytest.mark.parametrize("reuse", [False, True])
def test_p1_one_local_step_is_fed_avg_with_eta_0(reuse):
  problem = problems.softmax_regression(2)
  rounds = problems.draw_rounds(2, problem.client_rows, 4, 3, 100)
  args = (problem.x0, problem.gradient, *rounds)
  xs, _ = reference.fed_avg(
    *args, lambda r: reference.DeltaSgd(**DELTA, reuse_gradients=reuse)
  )
  sgd, _ = reference.fed_avg(*args, _sgd(DELTA["eta_0"]))
  np.testing.assert_array_equal(xs, sgd)


@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_p2_isotropic_quadratic_settles_at_gamma_over_2l(eps):
  curvature, centre = 0.4, np.array([1.0, -2.0, 0.5])
  # gamma / (2 L) = 1.25 is reached from 0.2 by growth, then held.
  rule = reference.DeltaSgd(1.0, 1.0, 0.2, 1.0, eps=eps)
  reference.descend(
    0, np.zeros(3), _isotropic(curvature, centre), [None] * 8, rule
  )
  np.testing.assert_allclose(rule.smoothness_branches[1:], 1.25, rtol=1e-6)
  np.testing.assert_allclose(rule.step_sizes[-1], 1.25 + eps, rtol=1e-6)
  np.testing.assert_allclose(
    rule.step_sizes[1], rule.growth_branches[1] + eps, rtol=1e-12
  )


@pytest.mark.parametrize("seed", SEEDS)
def test_p2_p3_branch_1_and_growth_are_bounded_on_mini_batches(seed):
  problem = problems.least_squares(seed)
  rounds = problems.draw_rounds(seed, problem.client_rows, 6, 4, 2)
  _, traces = reference.fed_avg(
    problem.x0,
    problem.gradient,
    *rounds,
    lambda r: reference.DeltaSgd(2.0, 1.0, 0.01, 1.0),
  )
  for r, round_traces in enumerate(traces):
    for i, trace in enumerate(round_traces):
      batches, rule = rounds[1][r][i], trace.rule
      smoothness = max(
        np.linalg.norm(problem.hessian(rows), 2) for rows in batches
      )
      etas = np.array(rule.step_sizes)
      assert min(rule.smoothness_branches[1:]) >= (1 - 1e-9) / smoothness
      ratios = etas[1:] / etas[:-1]
      thetas = np.concatenate([[1.0], ratios])
      assert np.all(ratios <= np.sqrt(1 + thetas[:-1]) * (1 + 1e-12))


@pytest.mark.parametrize(
  ("delta", "factor"), [(1.0, 1.6180), (0.1, 1.0512), (0.02, 1.0100)]
)
def test_p3_sustained_growth_factor(delta, factor):
  rule = reference.DeltaSgd(2.0, delta, 1e-8, 1.0)
  _constant(np.array([1.0]), 40, rule)
  etas = np.array(rule.step_sizes)
  ratios = etas[1:] / etas[:-1]
  bound = (delta + np.sqrt(delta**2 + 4)) / 2
  assert ratios.max() <= bound * (1 + 1e-12)
  np.testing.assert_allclose(ratios[-1], bound, rtol=1e-6)
  np.testing.assert_allclose(bound, factor, atol=5e-5)


def _lyapunov(problem, rows, trace, theta_0, x_star):
  """Both sides of eq. 5 (left, right) [K-1] and the potential [K-1].

  Potential_t = ||x_t - x*||^2 + ||x_t - x_{t-1}||^2 / 2
                + 2 eta_t theta_t (f(x_{t-1}) - f*),  t = 1..K-1.
  """
  x, eta = trace.xs, np.array(trace.rule.step_sizes)
  theta = np.concatenate([[theta_0], eta[1:] / eta[:-1]])
  f_star, _ = problem.gradient(x_star, rows)
  gap = [problem.gradient(y, rows)[0] - f_star for y in x]
  left, right = [], []
  for t in range(1, len(eta)):
    left.append(
      np.sum((x[t + 1] - x_star) ** 2)
      + np.sum((x[t + 1] - x[t]) ** 2) / 2
      + 2 * eta[t] * (1 + theta[t]) * gap[t]
    )
    right.append(
      np.sum((x[t] - x_star) ** 2)
      + np.sum((x[t] - x[t - 1]) ** 2) / 2
      + 2 * eta[t] * theta[t] * gap[t - 1]
    )
  return np.array(left), np.array(right)


def _adaptive(gamma=1.0, theta_0=1.0, eta_0=0.2, reuse=True):
  return reference.DeltaSgd(gamma, 1.0, eta_0, theta_0, reuse_gradients=reuse)


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_p4_potential_decreases_on_convex_quadratics(seed, reuse):
  problem = problems.least_squares(seed, dim=4, sizes=(12,))
  rows = problem.client_rows[0]
  x_star = problem.minimiser(rows)
  trace = _one_client(problem, 40, _adaptive(reuse=reuse))
  left, right = _lyapunov(problem, rows, trace, 1.0, x_star)
  slack = 1e-12 * right[0]
  assert np.all(left <= right + slack)  # eq. 5
  assert np.all(right[1:] <= left[:-1] + slack)  # by line 9
  assert right[-1] < right[0]


def test_p4_fails_with_gamma_2():
  violated = 0
  for seed in range(20):
    problem = problems.least_squares(seed, dim=4, sizes=(12,))
    rows = problem.client_rows[0]
    trace = _one_client(problem, 40, _adaptive(gamma=2.0))
    left, right = _lyapunov(problem, rows, trace, 1.0, problem.minimiser(rows))
    violated += np.any(left > right + 1e-9 * right[0])
  assert violated > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_p5_mean_potential_decreases_with_a_shared_minimiser(seed):
  problem = problems.least_squares(seed, dim=4, sizes=(9, 12, 6), noise=0.0)
  rows = problem.client_rows
  x_star = problem.minimiser(np.concatenate(rows))
  _, (traces,) = reference.fed_avg(
    problem.x0,
    problem.gradient,
    [range(3)],
    [[[r] * 40 for r in rows]],
    [[1.0] * 3],
    lambda r: _adaptive(),
  )
  sides = [
    _lyapunov(problem, rows[m], traces[m], 1.0, x_star) for m in range(3)
  ]
  left, right = np.mean(sides, axis=0)
  assert np.all(left <= right + 1e-12 * right[0])
  assert np.all(right[1:] <= left[:-1] + 1e-12 * right[0])


@pytest.mark.parametrize("eta_0", [1e-3, 0.2, 1.0])
@pytest.mark.parametrize("seed", range(10))
def test_p6_weighted_average_meets_the_rate_of_theorem_5(seed, eta_0):
  problem = problems.least_squares(seed, dim=4, sizes=(12,))
  rows = problem.client_rows[0]
  trace = _one_client(problem, 40, _adaptive(theta_0=np.inf, eta_0=eta_0))
  x, eta = trace.xs, np.array(trace.rule.step_sizes)
  theta = np.concatenate([[np.inf], eta[1:] / eta[:-1]])
  x_star = problem.minimiser(rows)

  def f(y):
    return problem.gradient(y, rows)[0]

  f_star, smoothness = f(x_star), np.linalg.norm(problem.hessian(rows), 2)
  distance = (
    np.sum((x[1] - x_star) ** 2)
    + np.sum((x[1] - x[0]) ** 2) / 2
    + 2 * eta[1] * theta[1] * (f(x[0]) - f_star)
  )
  # alpha[k - 1] = alpha_k for k = 1..K-2
  alpha = eta[1:-1] * (1 + theta[1:-1]) - eta[2:] * theta[2:]
  assert np.all(alpha >= -1e-12 * eta[1:-1])
  for t in range(1, len(eta)):
    total = np.sum(eta[1 : t + 1]) + eta[1] * theta[1]
    average = eta[t] * (1 + theta[t]) * x[t]
    for k in range(1, t):
      average = average + alpha[k - 1] * x[k]
    gap = f(average / total) - f_star
    bound = distance / (2 * total)
    rate = 2 * distance * smoothness**2 / (2 * smoothness * t + 1)
    assert gap <= bound * (1 + 1e-12)
    assert bound <= rate * (1 + 1e-9)
