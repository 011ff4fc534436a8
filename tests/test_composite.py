"""Composite algorithms against the NumPy loops, and what the paper proves.

methods_cases.py says in which cases they are compared.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import evaluation, grid_points, metrics, prox, simulate
from fedjax_opt.algorithms.composite import (
  fed_avg_subgradient,
  fed_dual_avg,
  fed_mid,
)
from fedjax_opt.engine.config import Config
from fedjax_opt.prox import mirror
from fedjax_opt.rules.proximal import (
  mirror_step,
  subgradient_step,
)
from tests import jax_problems, methods_cases, reference
from tests import reference_composite as loops
from tests.jax_problems import assert_close
from tests.rules.training import train
from tests.user_algorithms import draws

case = methods_cases.case
ROUNDS = 4
SETTINGS = {
  "cohort_size": 3,
  "client_chunk": 2,
  "batch_size": 4,
  "local_epochs": 1.5,
}
RATE, SERVER_RATE = 0.15, 0.8
STRENGTH = 0.12
RADII = {"l2_ball": 0.6, "l1_ball": 1.0}

SOFTMAX = jax_problems.softmax()  # bias [3], then kernel [4, 3]
KERNEL = slice(3, 15)
LINEAR = jax_problems.least_squares()  # kernel [5]
ON_SIMPLEX = {"kernel": np.array([0.1, 0.3, 0.2, 0.15, 0.25])}

# name -> (the package's, the referee's), of the kernel of SOFTMAX.
PSI = {
  "l1": (prox.l1(STRENGTH), loops.L1(KERNEL, STRENGTH)),
  "nuclear": (prox.nuclear(STRENGTH), loops.Nuclear(KERNEL, (4, 3), STRENGTH)),
  "l2_ball": (
    prox.l2_ball(RADII["l2_ball"]),
    loops.L2Ball(KERNEL, RADII["l2_ball"]),
  ),
  "l1_ball": (
    prox.l1_ball(RADII["l1_ball"]),
    loops.L1Ball(KERNEL, RADII["l1_ball"]),
  ),
}
# name -> (the package's, the referee's).
ALGORITHMS = {
  "fed_mid": (fed_mid, loops.fed_mid),
  "fed_mid_osp": (
    functools.partial(fed_mid, only_server_prox=True),
    functools.partial(loops.fed_mid, only_server_prox=True),
  ),
  "fed_dual_avg": (fed_dual_avg, loops.fed_dual_avg),
  "fed_dual_avg_osp": (
    functools.partial(fed_dual_avg, only_server_prox=True),
    functools.partial(loops.fed_dual_avg, only_server_prox=True),
  ),
}
NOT_OSP = ("fed_mid", "fed_dual_avg")


def drawn_rounds(task, settings, rounds=ROUNDS):
  config = Config.create(task.data, settings)
  return jax_problems.drawn_rounds(config, task.data, 0, rounds)


@functools.cache
def rounds_of(x64):
  del x64  # Wider numbers are drawn otherwise.
  return drawn_rounds(SOFTMAX, SETTINGS)


def simulated(algorithm, task=SOFTMAX, params=None, **settings):
  settings = SETTINGS | {"eval_every": ROUNDS, "rounds": ROUNDS} | settings
  params = task.params if params is None else params
  return simulate(algorithm, params, task.data, **settings)


def each_iterate(params, data, test):
  """For `evaluate=`: every entry of a small model, under its number."""
  leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(params)]
  return {f"{i:02d}": value for i, value in enumerate(jnp.concatenate(leaves))}


def iterates(result):
  """[evaluations, d], from `each_iterate`."""
  measured = result.history.metrics
  numbers = sorted(name for name in measured if name.isdigit())
  return np.stack([measured[name][0] for name in numbers], 1)


# ----------------------------------------------------- Against the NumPy loops


def check_against_loop(case, algorithm, psi, rate=RATE):
  factory, loop = ALGORITHMS[algorithm]
  own, of_loop = PSI[psi]
  algorithm = factory(draws.loss_fn, prox.kernels(own), rate, SERVER_RATE)
  of_step = (lambda r, k: rate(r)) if callable(rate) else rate
  methods_cases.check_matches(
    case,
    algorithm,
    "model",
    lambda drawn, masses: loop(*drawn, of_loop, of_step, SERVER_RATE)[0],
  )


def dropping(round):
  return RATE / (1 + round)


@pytest.mark.parametrize(
  ("algorithm", "psi", "rate"),
  [
    ("fed_mid", "l1", dropping),
    ("fed_mid_osp", "l1", RATE),
    ("fed_dual_avg", "l1", dropping),
    ("fed_dual_avg_osp", "l1", RATE),
    ("fed_dual_avg", "l2_ball", RATE),
  ],
)
def test_equals_the_loop(case, algorithm, psi, rate):
  check_against_loop(case, algorithm, psi, rate)


@pytest.mark.parametrize("case", ["uniform in float32"], indirect=True)
@pytest.mark.parametrize(
  ("algorithm", "psi"),
  [("fed_mid_osp", "nuclear"), ("fed_dual_avg", "l1_ball")],
)
def test_single_precision_is_near_the_loop(case, algorithm, psi):
  check_against_loop(case, algorithm, psi)


@pytest.mark.parametrize("algorithm", NOT_OSP)
def test_entropy_equals_the_loop(algorithm):
  factory, loop = ALGORITHMS[algorithm]
  with jax.enable_x64(True):
    algorithm = factory(
      LINEAR.loss_fn,
      prox.simplex(),
      RATE,
      SERVER_RATE,
      mirror_map=mirror.entropy(),
    )
    result = simulated(algorithm, LINEAR, ON_SIMPLEX)
    rounds = drawn_rounds(LINEAR, SETTINGS)
  x0, gradient = ON_SIMPLEX["kernel"], LINEAR.problem.gradient
  xs, _ = loop(
    x0, gradient, *rounds, loops.Zero(), RATE, SERVER_RATE, h=loops.Entropy()
  )
  assert_close(result.params, xs[-1], 1e-10)
  assert np.linalg.norm(xs[-1] - x0) > 0.05


def test_subgradient_fed_avg_equals_the_loop(case):
  psi = prox.kernels(prox.l1(STRENGTH))
  methods_cases.check_matches(
    case,
    fed_avg_subgradient(draws.loss_fn, psi, RATE, SERVER_RATE),
    "params",
    lambda drawn, masses: loops.fed_avg_subgradient(
      *drawn, STRENGTH, KERNEL, RATE, SERVER_RATE
    )[0],
  )


EQUAL_STEPS = {"cohort_size": 3, "batch_size": 4, "local_steps": 3}
EQUAL_STEPS |= {"client_chunk": 2}
FOUR_CLIENTS = jax_problems.softmax(sizes=(13, 7, 20, 4))


@pytest.mark.parametrize(("x64", "osp"), [(True, False), (False, True)])
def test_the_averaged_iterate_equals_the_loop(x64, osp):
  """Equation 4.4, after each round."""
  task, (own, of_loop) = FOUR_CLIENTS, PSI["l1"]
  with jax.enable_x64(x64):
    rounds = drawn_rounds(task, EQUAL_STEPS)
    algorithm = fed_dual_avg(
      task.loss_fn,
      prox.kernels(own),
      RATE,
      SERVER_RATE,
      averaged=True,
      only_server_prox=osp,
    )
    result = task.simulate(
      algorithm,
      rounds=ROUNDS,
      eval_every=1,
      evaluate=each_iterate,
      **EQUAL_STEPS,
    )
  duals = []
  problem = task.problem
  xs, _ = loops.fed_dual_avg(
    problem.x0,
    problem.gradient,
    *rounds,
    of_loop,
    RATE,
    SERVER_RATE,
    only_server_prox=osp,
    duals=duals,
  )
  expected = loops.averaged_iterate(
    duals, rounds[2], of_loop, RATE, SERVER_RATE
  )
  rtol = 1e-10 if x64 else 1e-5
  assert_close(iterates(result)[1:], np.stack(expected), rtol)
  # Before the first round there is only the image of the start.
  assert_close(iterates(result)[0], problem.x0, rtol)
  dual = jax_problems.flat(result.state.dual)
  elapsed = RATE * SERVER_RATE * 3 * ROUNDS
  assert_close(of_loop.prox(dual, elapsed), xs[-1], rtol)


# ------------------------------------------------------ What the paper proves
# F-P1, FedAvg without a regularizer, is in test_validity.py.


@pytest.mark.parametrize("osp", [False, True])
def test_fed_mid_starts_in_the_constraint(osp):
  init = lambda psi: (
    fed_mid(SOFTMAX.loss_fn, psi, RATE, only_server_prox=osp)
    .init(SOFTMAX.params, 1)
    .params
  )
  ball = prox.kernels(prox.l2_ball(0.01))
  assert np.isinf(ball.value(SOFTMAX.params))
  both = prox.kernels(prox.l1(3.0) + prox.l2_ball(0.01))
  projected = ball.prox(SOFTMAX.params, 0.0)
  for psi in (ball, both):  # The penalty in a sum moves nothing.
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-6),
      init(psi),
      projected,
    )
  penalty = init(prox.kernels(prox.l1(3.0)))
  chex.assert_trees_all_equal(penalty, SOFTMAX.params)


def test_constrained_fed_mid_is_projected_sgd_averaged():
  """F-P2: the server's projection does nothing."""
  psi = prox.kernels(prox.l2_ball(RADII["l2_ball"]))
  with jax.enable_x64(True):
    rounds = rounds_of(True)
    start = psi.prox(SOFTMAX.params, 0.0)
    ours = simulated(fed_mid(SOFTMAX.loss_fn, psi, RATE), params=start)

  class Projected:
    def step(self, x, loss, grad, objective):
      return PSI["l2_ball"][1].prox(x - RATE * grad, 1.0)

  xs, traces = reference.fed_avg(
    jax_problems.flat(start),
    SOFTMAX.problem.gradient,
    *rounds,
    lambda r: Projected(),
  )
  assert_close(ours.params, xs[-1], 1e-10)
  on_boundary = np.linalg.norm(traces[-1][0].xs[-1][KERNEL])
  np.testing.assert_allclose(on_boundary, RADII["l2_ball"])


@functools.cache
def full_rounds():
  """All clients with equal weights and three steps; eta_s is 1.

  Returns:
    The batches of each round; of FedDualAvg, by its loop, the duals [M, 4, d]
    and the points that gradients were taken at [M, 3, d] in each round; and of
    FedMiD the points.
  """
  problem = FOUR_CLIENTS.problem
  with jax.enable_x64(True):
    cohorts, batches, _ = drawn_rounds(
      FOUR_CLIENTS, EQUAL_STEPS | {"cohort_size": 4}
    )
  given = (
    problem.x0,
    problem.gradient,
    cohorts,
    batches,
    [np.ones(4)] * ROUNDS,
  )
  duals, psi = [], PSI["l1"][1]
  _, points = loops.fed_dual_avg(*given, psi, RATE, 1.0, duals=duals)
  _, of_mid = loops.fed_mid(*given, psi, RATE, 1.0)
  return batches, np.array(duals), np.array(points), np.array(of_mid)


def gradients(points, batches):
  """[M, K, d], of a round."""
  return np.array(
    [
      [
        FOUR_CLIENTS.problem.gradient(*each)[1]
        for each in zip(*of_client, strict=True)
      ]
      for of_client in zip(points, batches, strict=True)
    ]
  )


def test_the_mean_dual_follows_the_mean_gradient():
  """F-P3, equation 4.10, and F-P5."""
  mean, psi, elapsed = FOUR_CLIENTS.problem.x0, PSI["l1"][1], 0.0
  for batches, duals, points, _ in zip(*full_rounds(), strict=True):
    # F-P5: all clients begin where the server is evaluated.
    for point in points[:, 0]:
      np.testing.assert_allclose(point, psi.prox(mean, elapsed), atol=1e-14)
    of_round = gradients(points, batches)
    for k in range(3):
      np.testing.assert_allclose(duals[:, k].mean(0), mean, atol=1e-14)
      mean = mean - RATE * of_round[:, k].mean(0)
    np.testing.assert_allclose(duals[:, 3].mean(0), mean, atol=1e-14)
    elapsed += 3 * RATE


def test_the_mean_primal_of_fed_mid_does_not():
  """F-P3: averaging and the proximal operator do not commute."""
  off = []
  for batches, _, _, points in zip(*full_rounds(), strict=True):
    of_round = gradients(points, batches)
    for k in range(2):
      step = points[:, k].mean(0) - RATE * of_round[:, k].mean(0)
      step = PSI["l1"][1].prox(step, RATE)
      off.append(np.max(np.abs(points[:, k + 1].mean(0) - step)))
  assert max(off) > 1e-3


def test_clients_do_not_drift_further_than_their_gradients_allow():
  """F-P8: ||z_k^m - mean z_k|| <= 2 eta_c k G."""
  for batches, duals, points, _ in zip(*full_rounds(), strict=True):
    largest = np.max(np.linalg.norm(gradients(points, batches), axis=-1))
    for k in range(1, 4):
      drift = np.linalg.norm(duals[:, k] - duals[:, k].mean(0), axis=-1)
      assert np.all(drift <= 2 * RATE * k * largest + 1e-12)
    assert np.max(drift) > 0


# One step on all of a client's examples.
ALL_AT_ONCE = {"batch_size": 20, "local_steps": 1}


def test_one_local_step_is_dual_averaging_on_the_pooled_gradient():
  """F-P4."""
  task, (own, of_loop) = SOFTMAX, PSI["l1"]
  with jax.enable_x64(True):
    result = task.simulate(
      fed_dual_avg(task.loss_fn, prox.kernels(own), RATE),
      rounds=6,
      **ALL_AT_ONCE,
    )
  everything = [np.concatenate(task.problem.client_rows)] * 6
  xs = loops.dual_averaging(
    task.problem.x0, task.problem.gradient, everything, of_loop, RATE
  )
  assert_close(result.params, xs[-1], 1e-10)


def test_the_averaged_iterate_converges_as_proved():
  """F-P6, Theorem C.1 with sigma = 0, at every round."""
  task, radius = jax_problems.least_squares(sizes=(13, 7, 20, 4)), 0.9
  num_steps = 4
  problem, part = task.problem, slice(None)
  clients = problem.client_rows
  hessians = [problem.hessian(rows) for rows in clients]
  smoothness = max(np.linalg.norm(hessian, 2) for hessian in hessians)
  steepest = max(  # G, on the ball
    np.linalg.norm(hessian, 2) * radius
    + np.linalg.norm(problem.gradient(np.zeros(5), rows)[1])
    for hessian, rows in zip(hessians, clients, strict=True)
  )

  def gradient(w, _):  # Of F = (1/M) sum_m F_m.
    each = [problem.gradient(w, rows) for rows in clients]
    return np.mean([f for f, _ in each]), np.mean([g for _, g in each], 0)

  x0 = np.zeros(5)
  best = loops.fista(
    x0, gradient, None, loops.L2Ball(part, radius), 1 / smoothness
  )
  np.testing.assert_allclose(np.linalg.norm(best), radius)
  rate = 1 / (4 * smoothness)
  with jax.enable_x64(True):
    result = simulate(
      fed_dual_avg(task.loss_fn, prox.l2_ball(radius), rate, averaged=True),
      {"kernel": x0},
      task.data,
      rounds=60,
      eval_every=1,
      evaluate=each_iterate,
      batch_size=20,
      local_steps=num_steps,
      weighting="uniform",
    )
  points = iterates(result)
  distance = np.sum(best**2) / 2  # B, from w_0 = 0
  for r, point in enumerate(points[1:], 1):
    assert np.linalg.norm(point) <= radius * (1 + 1e-12)
    gap = gradient(point, None)[0] - gradient(best, None)[0]
    drift = 4 * rate**2 * smoothness * (num_steps - 1) ** 2 * steepest**2
    assert -1e-12 <= gap <= distance / (rate * num_steps * r) + drift


def _one_client_problem():
  return jax_problems.least_squares(sizes=(20,))


def _proximal_points(task, strength, rate, steps):
  problem = task.problem
  everything = [np.concatenate(problem.client_rows)] * steps
  psi = loops.L1(slice(None), strength)
  return loops.proximal_gradient(
    problem.x0, problem.gradient, everything, psi, rate
  )


@pytest.mark.parametrize(("osp", "times"), [(False, 2), (True, 1)])
def test_fed_mid_applies_the_regularizer_twice(osp, times):
  """F-P10: with M = K = eta_s = 1, proximal gradient with 2 lambda; OSP, 1."""
  task, strength = _one_client_problem(), 0.3
  with jax.enable_x64(True):
    result = task.simulate(
      fed_mid(task.loss_fn, prox.l1(strength), 0.2, only_server_prox=osp),
      rounds=5,
      **ALL_AT_ONCE,
    )
  xs = _proximal_points(task, times * strength, 0.2, 5)
  assert_close(result.params, xs[-1], 1e-12)


@pytest.mark.parametrize(("osp", "times"), [(False, 2), (True, 1)])
def test_small_client_rates_do_not_cure_fed_mid(osp, times):
  """F-P10: eta_c to 0 with eta_s eta_c fixed minimizes F + 2 psi; OSP, psi."""
  task, strength = _one_client_problem(), 0.3
  if osp:  # Clients may differ.
    task = jax_problems.least_squares(sizes=(13, 7, 20, 4))
  client_rate = 1e-7
  with jax.enable_x64(True):
    result = task.simulate(
      fed_mid(
        task.loss_fn,
        prox.l1(strength),
        client_rate,
        server_learning_rate=0.1 / client_rate,
        only_server_prox=osp,
      ),
      rounds=1000,
      eval_every=1000,
      batch_size=20,
      local_steps=3,
    )
  problem = task.problem
  best = loops.fista(
    problem.x0,
    problem.gradient,
    np.concatenate(problem.client_rows),
    loops.L1(slice(None), times * strength),
    0.1,
    tolerance=1e-12,
  )
  assert_close(result.params, best, 1e-4)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_feasible_points(algorithm):
  """F-P11: evaluated models are feasible; gradients, where not OSP."""
  factory, _ = ALGORITHMS[algorithm]
  psi = prox.kernels(prox.l2_ball(RADII["l2_ball"]))

  def loss_fn(params, batch, rng):  # Its gradient is NaN off the ball.
    inside = jnp.where(jnp.isinf(psi.value(params)), jnp.nan, 1.0)
    return inside * SOFTMAX.loss_fn(params, batch, rng)

  start = psi.prox(SOFTMAX.params, 0.0)
  run = functools.partial(
    simulated, params=start, eval_every=1, evaluate=each_iterate
  )
  rates = (0.5, 1.0)
  result = run(factory(loss_fn, psi, *rates))
  rejected = result.history.metrics["rejected_clients"][0, -1]
  if algorithm in NOT_OSP:
    assert rejected == 0
  else:
    # Clients of several steps come back with NaN, and are left out.
    assert rejected > 0
    result = run(factory(SOFTMAX.loss_fn, psi, *rates))
  points = iterates(result)
  norms = np.linalg.norm(points[:, KERNEL], axis=1)
  assert np.all(norms <= RADII["l2_ball"] * (1 + 1e-6))
  assert np.any(points[-1] != points[0])


# ------------------------------------------------------------ The rules alone


def _pooled_loss(task):
  batch = task.problem.examples
  return lambda params: jnp.mean(task.loss_fn(params, batch, None))


def test_mirror_step_alone_is_proximal_gradient():
  task, strength = LINEAR, 0.4
  with jax.enable_x64(True):
    rule = mirror_step(0.4, prox.l1(strength))
    loss = _pooled_loss(task)
    few, _ = train(rule, loss, task.params, 3)
    many, _ = train(rule, loss, task.params, 400)
  xs = _proximal_points(task, strength, 0.4, 400)
  assert_close(few, xs[2], 1e-12)
  problem = task.problem
  best = loops.fista(
    problem.x0,
    problem.gradient,
    np.concatenate(problem.client_rows),
    loops.L1(slice(None), strength),
    0.4,
  )
  assert_close(many, best, 1e-9)
  assert 0 < np.sum(best == 0) < 5
  np.testing.assert_array_equal(jax_problems.flat(many) == 0, best == 0)


# ------------------------------------------------------ Grids and bad numbers


def test_a_grid_equals_the_loop():
  """Strength and both rates are traced."""
  grid = {
    "strength": [0.05, 0.2],
    "learning_rate": [0.02, 0.1],
    "server_learning_rate": [0.5, 1.5],
  }
  make = lambda strength, *rates, **named: fed_mid(
    SOFTMAX.loss_fn, prox.kernels(prox.nuclear(strength)), *rates, **named
  )
  whole = SOFTMAX.sweep(make, grid, rounds=ROUNDS, **SETTINGS)
  problem = SOFTMAX.problem
  for s, point in enumerate(grid_points(grid)):
    strength, *rates = (point[name] for name in grid)
    psi = loops.Nuclear(KERNEL, (4, 3), strength)
    xs, _ = loops.fed_mid(
      problem.x0, problem.gradient, *rounds_of(False), psi, *rates
    )
    of_grid = jax.tree.map(lambda leaf, s=s: leaf[s], whole.params)
    assert_close(of_grid, xs[-1], 1e-5)


def test_too_large_a_rate_is_reported_as_diverged():
  def loss_fn(params, batch, rng):  # Quadratic: softmax would only saturate.
    return jnp.sum((batch["x"] @ params["kernel"] - 3.0) ** 4, axis=1)

  per_example = lambda params, batch: {"loss": loss_fn(params, batch, None)}
  grid = {"learning_rate": [1e4, 1e-3, 3e38]}
  result = SOFTMAX.sweep(
    lambda learning_rate: fed_mid(
      loss_fn, prox.kernels(prox.nuclear(1.0)), learning_rate
    ),
    grid,
    rounds=20,
    eval_every=2,
    evaluate=evaluation.federated(per_example),
    **SETTINGS,
  )
  history = result.history
  assert [history.status(s) for s in range(3)] == ["diverged", "ok", "diverged"]
  assert 0 < history.diverged_round(0) <= 20
  assert history.diverged_round(2) == 2
  assert set(history.final(0).values()) == {None}
  criterion = metrics.Criterion("train_loss", "min")
  assert metrics.select(history, grid_points(grid), criterion) == 1


@pytest.mark.parametrize(
  "psi", [prox.kernels(prox.l1_ball(1.0)), prox.l1(1.0) + prox.non_negative()]
)
def test_a_subgradient_step_refuses_a_constraint_it_would_ignore(psi):
  with pytest.raises(ValueError, match=r"psi=.*: must be finite everywhere"):
    subgradient_step(0.1, psi)


@pytest.mark.parametrize("factory", [fed_mid, fed_dual_avg])
def test_entropy_refuses_a_start_off_the_simplex(factory):
  algorithm = factory(
    LINEAR.loss_fn, prox.simplex(), 0.1, mirror_map=mirror.entropy()
  )
  with pytest.raises(ValueError, match="must be on the simplex"):
    simulated(algorithm, LINEAR)


def test_the_averaged_iterate_needs_equal_steps():
  algorithm = fed_dual_avg(SOFTMAX.loss_fn, prox.l1(0.1), 0.1, averaged=True)
  with pytest.raises(ValueError, match="the same number of local steps"):
    simulated(algorithm)
