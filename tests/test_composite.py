"""What the paper of the composite algorithms proves, and their bad input.

test_loops.py has them against their loops.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import grid_points, prox, simulate
from fedjax_opt.algorithms.composite import fed_dual_avg, fed_mid
from fedjax_opt.engine.config import Config
from fedjax_opt.prox import mirror
from fedjax_opt.rules.proximal import subgradient_step
from tests import jax_problems, reference
from tests import reference_composite as loops
from tests.jax_problems import assert_close, flat

ROUNDS, RATE, SERVER_RATE = 4, 0.15, 0.8
SETTINGS = {
  "cohort_size": 3,
  "client_chunk": 2,
  "batch_size": 4,
  "local_epochs": 1.5,
}
SOFTMAX = jax_problems.softmax()  # bias [3], then kernel [4, 3]
KERNEL = slice(3, 15)
L1, OF_L1 = prox.kernels(prox.l1(0.12)), loops.L1(KERNEL, 0.12)
BALL, OF_BALL = prox.kernels(prox.l2_ball(0.6)), loops.L2Ball(KERNEL, 0.6)
LINEAR = jax_problems.least_squares()  # kernel [5]
ON_SIMPLEX = {"kernel": np.array([0.1, 0.3, 0.2, 0.15, 0.25])}
FOUR_CLIENTS = jax_problems.softmax(sizes=(13, 7, 20, 4))
EQUAL_STEPS = {
  "cohort_size": 3,
  "client_chunk": 2,
  "batch_size": 4,
  "local_steps": 3,
}


def drawn_rounds(task, settings):
  config = Config.create(task.data, settings)
  return jax_problems.drawn_rounds(config, task.data, 0, ROUNDS)


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


def minimizer(problem, psi, rate):
  """Of F + psi on the examples of all clients."""
  everything = np.concatenate(problem.client_rows)
  return loops.fista(problem, everything, psi, rate)


# ----------------------------------------------- Loops with more than a model


@pytest.mark.parametrize("name", ["fed_mid", "fed_dual_avg"])
def test_entropy_equals_the_loop(name):
  factory = {"fed_mid": fed_mid, "fed_dual_avg": fed_dual_avg}[name]
  algorithm = factory(
    LINEAR.loss_fn, prox.simplex(), RATE, SERVER_RATE,
    mirror_map=mirror.entropy(),
  )  # fmt: skip
  with jax.enable_x64(True):
    result = simulated(algorithm, LINEAR, ON_SIMPLEX)
    rounds = drawn_rounds(LINEAR, SETTINGS)
  problem = jax_problems.from_start(LINEAR.problem, ON_SIMPLEX["kernel"])
  *_, (last, *_) = getattr(loops, name)(
    problem, rounds, loops.Zero(), RATE, SERVER_RATE, h=loops.Entropy()
  )
  assert_close(result.params, last, 1e-10)
  assert np.linalg.norm(last - problem.x0) > 0.05
  # And another start is refused.
  with pytest.raises(ValueError, match="must be on the simplex"):
    simulated(algorithm, LINEAR)


@pytest.mark.parametrize(("x64", "osp"), [(True, False), (False, True)])
def test_the_averaged_iterate_equals_the_loop(x64, osp):
  """Equation 4.4, after each round."""
  task, rates = FOUR_CLIENTS, (RATE, SERVER_RATE)
  with jax.enable_x64(x64):
    rounds = drawn_rounds(task, EQUAL_STEPS)
    algorithm = fed_dual_avg(
      task.loss_fn, L1, *rates, averaged=True, only_server_prox=osp
    )
    result = task.simulate(
      algorithm, rounds=ROUNDS, eval_every=1, evaluate=each_iterate,
      **EQUAL_STEPS,
    )  # fmt: skip
  looped = loops.fed_dual_avg(
    task.problem, rounds, OF_L1, *rates, only_server_prox=osp
  )
  xs, _, duals = zip(*looped, strict=True)
  expected = loops.averaged_iterate(duals, rounds, OF_L1, *rates)
  rtol = 1e-10 if x64 else 1e-5
  # Before the first round there is only the image of the start.
  expected = np.stack([task.problem.x0, *expected])
  assert_close(iterates(result), expected, rtol)
  elapsed = RATE * SERVER_RATE * 3 * ROUNDS
  end = OF_L1.prox(flat(result.state.dual), elapsed)
  assert_close(end, xs[-1], rtol)


# ------------------------------------------------------ What the paper proves
# F-P1, FedAvg without a regularizer, is in test_validity.py.


@pytest.mark.parametrize("osp", [False, True])
@jax.enable_x64(True)  # The model is of float64.
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
    chex.assert_trees_all_close(init(psi), projected, rtol=1e-6)
  penalty = init(prox.kernels(prox.l1(3.0)))
  chex.assert_trees_all_equal(penalty, SOFTMAX.params)


def test_constrained_fed_mid_is_projected_sgd_averaged():
  """F-P2: the server's projection does nothing."""
  with jax.enable_x64(True):
    start = BALL.prox(SOFTMAX.params, 0.0)
    ours = simulated(fed_mid(SOFTMAX.loss_fn, BALL, RATE), params=start)
    rounds = drawn_rounds(SOFTMAX, SETTINGS)

  class Projected:
    def step(self, x, loss, grad, objective):
      return OF_BALL.prox(x - RATE * grad, 1.0)

  problem = jax_problems.from_start(SOFTMAX.problem, flat(start))
  make_rule = lambda r, client: Projected()
  *_, (last, traces) = reference.fed_avg(problem, rounds, make_rule)
  assert_close(ours.params, last, 1e-10)
  on_boundary = np.linalg.norm(traces[0].xs[-1][KERNEL])
  np.testing.assert_allclose(on_boundary, OF_BALL.radius)


@pytest.fixture(scope="module")
def full_rounds():
  """All clients with equal weights and three steps; eta_s is 1.

  For each round: the batches; of FedDualAvg, by its loop, the duals [M, 4, d],
  the points that gradients were taken at [M, 3, d], and these gradients; and of
  FedMiD points and gradients.
  """
  problem = FOUR_CLIENTS.problem
  with jax.enable_x64(True):
    rounds = drawn_rounds(FOUR_CLIENTS, EQUAL_STEPS | {"cohort_size": 4})
  rounds = [r._replace(weights=np.ones(4)) for r in rounds]
  given = problem, rounds, OF_L1, RATE, 1.0
  _, points, duals = zip(*loops.fed_dual_avg(*given), strict=True)
  _, of_mid = zip(*loops.fed_mid(*given), strict=True)

  def gradients(points):
    return [
      [
        [problem.gradient(*each)[1] for each in zip(*own, strict=True)]
        for own in zip(of_round, drawn.batches, strict=True)
      ]
      for of_round, drawn in zip(points, rounds, strict=True)
    ]

  found = duals, points, gradients(points), of_mid, gradients(of_mid)
  return list(zip(*map(np.array, found), strict=True))


def test_the_mean_dual_follows_the_mean_gradient(full_rounds):
  """F-P3, equation 4.10, and F-P5."""
  mean, elapsed = FOUR_CLIENTS.problem.x0, 0.0
  for duals, points, gradients, _, _ in full_rounds:
    # F-P5: all clients begin where the server is evaluated.
    for point in points[:, 0]:
      np.testing.assert_allclose(point, OF_L1.prox(mean, elapsed), atol=1e-14)
    for k in range(3):
      np.testing.assert_allclose(duals[:, k].mean(0), mean, atol=1e-14)
      mean = mean - RATE * gradients[:, k].mean(0)
    np.testing.assert_allclose(duals[:, 3].mean(0), mean, atol=1e-14)
    elapsed += 3 * RATE


def test_the_mean_primal_of_fed_mid_does_not(full_rounds):
  """F-P3: averaging and the proximal operator do not commute."""
  off = []
  for *_, points, gradients in full_rounds:
    for k in range(2):
      step = points[:, k].mean(0) - RATE * gradients[:, k].mean(0)
      step = OF_L1.prox(step, RATE)
      off.append(np.max(np.abs(points[:, k + 1].mean(0) - step)))
  assert max(off) > 1e-3


def test_clients_do_not_drift_further_than_their_gradients_allow(full_rounds):
  """F-P8: ||z_k^m - mean z_k|| <= 2 eta_c k G."""
  for duals, _, gradients, _, _ in full_rounds:
    largest = np.max(np.linalg.norm(gradients, axis=-1))
    for k in range(1, 4):
      drift = np.linalg.norm(duals[:, k] - duals[:, k].mean(0), axis=-1)
      assert np.all(drift <= 2 * RATE * k * largest + 1e-12)
    assert np.max(drift) > 0


# One step on all of a client's examples.
ALL_AT_ONCE = {"batch_size": 20, "local_steps": 1}


def test_one_local_step_is_dual_averaging_on_the_pooled_gradient():
  """F-P4."""
  algorithm = fed_dual_avg(SOFTMAX.loss_fn, L1, RATE)
  with jax.enable_x64(True):
    result = SOFTMAX.simulate(algorithm, rounds=6, **ALL_AT_ONCE)
  everything = [np.concatenate(SOFTMAX.problem.client_rows)] * 6
  xs = loops.dual_averaging(SOFTMAX.problem, everything, OF_L1, RATE)
  assert_close(result.params, xs[-1], 1e-10)


def test_the_averaged_iterate_converges_as_proved():
  """F-P6, Theorem C.1 with sigma = 0, at every round."""
  task, radius = jax_problems.least_squares(sizes=(13, 7, 20, 4)), 0.9
  num_steps, clients = 4, task.problem.client_rows
  hessians = [task.problem.hessian(rows) for rows in clients]
  smoothness = max(np.linalg.norm(hessian, 2) for hessian in hessians)
  steepest = max(  # G, on the ball
    np.linalg.norm(hessian, 2) * radius
    + np.linalg.norm(task.problem.gradient(np.zeros(5), rows)[1])
    for hessian, rows in zip(hessians, clients, strict=True)
  )

  def gradient(w, _):  # Of F = (1/M) sum_m F_m.
    each = [task.problem.gradient(w, rows) for rows in clients]
    return np.mean([f for f, _ in each]), np.mean([g for _, g in each], 0)

  problem = jax_problems.from_start(task.problem, np.zeros(5), gradient)
  psi = loops.L2Ball(slice(None), radius)
  best = minimizer(problem, psi, 1 / smoothness)
  np.testing.assert_allclose(np.linalg.norm(best), radius)
  rate = 1 / (4 * smoothness)
  with jax.enable_x64(True):
    result = simulate(
      fed_dual_avg(task.loss_fn, prox.l2_ball(radius), rate, averaged=True),
      {"kernel": problem.x0}, task.data, rounds=60, eval_every=1,
      evaluate=each_iterate, batch_size=20, local_steps=num_steps,
      weighting="uniform",
    )  # fmt: skip
  distance = np.sum(best**2) / 2  # B, from w_0 = 0
  for r, point in enumerate(iterates(result)[1:], 1):
    assert np.linalg.norm(point) <= radius * (1 + 1e-12)
    gap = gradient(point, None)[0] - gradient(best, None)[0]
    drift = 4 * rate**2 * smoothness * (num_steps - 1) ** 2 * steepest**2
    assert -1e-12 <= gap <= distance / (rate * num_steps * r) + drift


ONE_CLIENT = jax_problems.least_squares(sizes=(20,))


def points_of_loop(strength, rate, steps):
  """Proximal gradient on ONE_CLIENT with the l1 norm."""
  psi = loops.L1(slice(None), strength)
  everything = [ONE_CLIENT.problem.client_rows[0]] * steps
  return loops.proximal_gradient(ONE_CLIENT.problem, everything, psi, rate)


@pytest.mark.parametrize(("osp", "times"), [(False, 2), (True, 1)])
def test_fed_mid_applies_the_regularizer_twice(osp, times):
  """F-P10: with M = K = eta_s = 1, proximal gradient with 2 lambda; OSP, 1.

  And with eta_c to 0 and eta_s eta_c fixed it minimizes F + 2 psi; OSP, psi.
  """
  make = lambda task, *rates: fed_mid(
    task.loss_fn, prox.l1(0.3), *rates, only_server_prox=osp
  )
  # Of OSP clients may differ.
  task = jax_problems.least_squares(sizes=(13, 7, 20, 4)) if osp else ONE_CLIENT
  with jax.enable_x64(True):
    few = ONE_CLIENT.simulate(make(ONE_CLIENT, 0.2), rounds=5, **ALL_AT_ONCE)
    many = task.simulate(
      make(task, 1e-7, 0.1 / 1e-7), rounds=1000, eval_every=1000,
      batch_size=20, local_steps=3,
    )  # fmt: skip
  xs = points_of_loop(times * 0.3, 0.2, 5)
  assert_close(few.params, xs[-1], 1e-12)
  best = minimizer(task.problem, loops.L1(slice(None), times * 0.3), 0.1)
  assert_close(many.params, best, 1e-4)


@pytest.mark.parametrize("osp", [False, True])
@pytest.mark.parametrize("factory", [fed_mid, fed_dual_avg])
def test_feasible_points(factory, osp):
  """F-P11: evaluated models are feasible; gradients, where not OSP."""

  def loss_fn(params, batch, rng):  # Its gradient is NaN off the ball.
    inside = jnp.where(jnp.isinf(BALL.value(params)), jnp.nan, 1.0)
    return inside * SOFTMAX.loss_fn(params, batch, rng)

  start = BALL.prox(SOFTMAX.params, 0.0)
  run = lambda loss_fn: simulated(
    factory(loss_fn, BALL, 0.5, 1.0, only_server_prox=osp), params=start,
    eval_every=1, evaluate=each_iterate,
  )  # fmt: skip
  result = run(loss_fn)
  rejected = result.history.metrics["rejected_clients"][0, -1]
  # Clients of several steps come back with NaN, and are left out.
  assert (rejected > 0) == osp
  if osp:
    result = run(SOFTMAX.loss_fn)
  points = iterates(result)
  norms = np.linalg.norm(points[:, KERNEL], axis=1)
  assert np.all(norms <= OF_BALL.radius * (1 + 1e-6))
  assert np.any(points[-1] != points[0])


# ------------------------------------------------------ Grids and bad numbers


def test_a_grid_equals_the_loop():
  """Strength and both rates are traced."""
  grid = {
    "strength": [0.05, 0.2],
    "learning_rate": [0.02, 0.1],
    "server_learning_rate": [0.5, 1.5],
  }
  make = lambda strength, **rates: fed_mid(
    SOFTMAX.loss_fn, prox.kernels(prox.nuclear(strength)), **rates
  )
  whole = SOFTMAX.sweep(make, grid, rounds=ROUNDS, **SETTINGS)
  rounds, ends = drawn_rounds(SOFTMAX, SETTINGS), flat(whole.params, 1)
  for end, point in zip(ends, grid_points(grid), strict=True):
    strength, *rates = (point[name] for name in grid)
    psi = loops.Nuclear(KERNEL, (4, 3), strength)
    *_, (last, _) = loops.fed_mid(SOFTMAX.problem, rounds, psi, *rates)
    assert_close(end, last, 1e-5)


@pytest.mark.parametrize(
  "psi", [prox.kernels(prox.l1_ball(1.0)), prox.l1(1.0) + prox.non_negative()]
)
def test_a_subgradient_step_refuses_a_constraint_it_would_ignore(psi):
  with pytest.raises(ValueError, match=r"psi=.*: must be finite everywhere"):
    subgradient_step(0.1, psi)


def test_the_averaged_iterate_needs_equal_steps():
  algorithm = fed_dual_avg(SOFTMAX.loss_fn, prox.l1(0.1), 0.1, averaged=True)
  with pytest.raises(ValueError, match="the same number of local steps"):
    simulated(algorithm)
