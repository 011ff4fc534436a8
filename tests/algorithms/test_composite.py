"""Composite algorithms: other mirror maps, constraints, grids and bad input.

test_loops.py has them against their reference.
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
from fedjax_opt.samplers import Sampler
from tests import reference
from tests.helpers import jax_problems
from tests.helpers.jax_problems import assert_close, flat

ROUNDS, RATE, SERVER_RATE = 4, 0.15, 0.8
COHORT = {"cohort_size": 3, "client_chunk": 2, "batch_size": 4}
OPTIONS = COHORT | {"local_epochs": 1.5}
EQUAL_STEPS = COHORT | {"local_steps": 3}
SOFTMAX = jax_problems.softmax()  # bias [3], then kernel [4, 3]
KERNEL = slice(3, 15)
L1, OF_L1 = prox.kernels(prox.l1(0.12)), reference.L1(KERNEL, 0.12)
BALL, OF_BALL = prox.kernels(prox.l2_ball(0.6)), reference.L2Ball(KERNEL, 0.6)
LINEAR = jax_problems.least_squares()  # kernel [5]
ON_SIMPLEX = {"kernel": np.array([0.1, 0.3, 0.2, 0.15, 0.25])}
FOUR_CLIENTS = jax_problems.softmax(sizes=(13, 7, 20, 4))


def drawn_rounds(task, options):
  config = Config.create(task.data, options)
  return jax_problems.drawn_rounds(config, task.data, 0, ROUNDS)


def simulated(algorithm, task=SOFTMAX, params=None, **options):
  options = OPTIONS | {"eval_every": ROUNDS, "rounds": ROUNDS} | options
  params = task.params if params is None else params
  return simulate(algorithm, params, task.data, **options)


def each_iterate(params, data, test):
  """For `evaluate=`: every entry of a small model, under its number."""
  leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(params)]
  return {f"{i:02d}": value for i, value in enumerate(jnp.concatenate(leaves))}


def iterates(result):
  """[evaluations, d], from `each_iterate`."""
  metrics = result.history.metrics
  numbers = sorted(name for name in metrics if name.isdigit())
  return np.stack([metrics[name][0] for name in numbers], 1)


# ----------------------------------------------- Loops with more than a model


@pytest.mark.parametrize("name", ["fed_mid", "fed_dual_avg"])
@pytest.mark.slow
def test_entropy_equals_the_loop(name):
  factory = {"fed_mid": fed_mid, "fed_dual_avg": fed_dual_avg}[name]
  algorithm = factory(
    LINEAR.loss_fn, prox.simplex(), RATE, SERVER_RATE,
    mirror_map=mirror.entropy(),
  )  # fmt: skip
  with jax.enable_x64(True):
    result = simulated(algorithm, LINEAR, ON_SIMPLEX)
    rounds = drawn_rounds(LINEAR, OPTIONS)
  problem = jax_problems.from_start(LINEAR.problem, ON_SIMPLEX["kernel"])
  *_, (last, *_) = getattr(reference, name)(
    problem, rounds, reference.Zero(), RATE, SERVER_RATE, h=reference.Entropy()
  )
  assert_close(result.params, last, 1e-10)
  assert np.linalg.norm(last - problem.x0) > 0.05
  # And another start is refused.
  with pytest.raises(ValueError, match="must be on the simplex"):
    simulated(algorithm, LINEAR)


@pytest.mark.slow
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
  looped = reference.fed_dual_avg(
    task.problem, rounds, OF_L1, *rates, only_server_prox=osp
  )
  xs, duals = zip(*looped, strict=True)
  expected = reference.averaged_iterate(duals, rounds, OF_L1, *rates)
  rtol = 1e-10 if x64 else 1e-5
  # Before the first round there is only the image of the start.
  expected = np.stack([task.problem.x0, *expected])
  assert_close(iterates(result), expected, rtol)
  elapsed = RATE * SERVER_RATE * 3 * ROUNDS
  end = OF_L1.prox(flat(result.state.dual), elapsed)
  assert_close(end, xs[-1], rtol)


# ------------------------------------------------------------- Constraints


@pytest.mark.parametrize("osp", [False, True])
@jax.enable_x64(True)  # The model is of float64.
def test_fed_mid_starts_in_the_constraint(osp):
  init = lambda psi: (
    fed_mid(SOFTMAX.loss_fn, psi, RATE, only_server_prox=osp)
    .init(SOFTMAX.params)
    .params
  )
  ball = prox.kernels(prox.l2_ball(0.01))
  assert np.isinf(ball.value(SOFTMAX.params))
  penalized_ball = prox.kernels(prox.l1(3.0) + prox.l2_ball(0.01))
  projected = ball.prox(SOFTMAX.params, 0.0)
  for psi in (ball, penalized_ball):  # The penalty in a sum moves nothing.
    chex.assert_trees_all_close(init(psi), projected, rtol=1e-6)
  penalty = init(prox.kernels(prox.l1(3.0)))
  chex.assert_trees_all_equal(penalty, SOFTMAX.params)


@pytest.mark.slow
@pytest.mark.parametrize("osp", [False, True])
@pytest.mark.parametrize("factory", [fed_mid, fed_dual_avg])
def test_feasible_points(factory, osp):
  """Evaluated models are feasible; gradients, where not OSP."""

  def loss_fn(params, batch, rng):  # Its gradient is NaN off the ball.
    factor = jnp.where(jnp.isinf(BALL.value(params)), jnp.nan, 1.0)
    return factor * SOFTMAX.loss_fn(params, batch, rng)

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


@pytest.mark.slow
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
  result = SOFTMAX.sweep(make, grid, rounds=ROUNDS, **OPTIONS)
  rounds, ends = drawn_rounds(SOFTMAX, OPTIONS), flat(result.params, 1)
  for end, point in zip(ends, grid_points(grid), strict=True):
    strength, *rates = (point[name] for name in grid)
    psi = reference.Nuclear(KERNEL, (4, 3), strength)
    *_, (last,) = reference.fed_mid(SOFTMAX.problem, rounds, psi, *rates)
    assert_close(end, last, 1e-5)


@pytest.mark.slow
def test_weights_that_a_sampler_scales_leave_the_averaged_iterate():
  """After one round, in which all clients start from the same dual."""
  algorithm = fed_dual_avg(SOFTMAX.loss_fn, L1, RATE, averaged=True)
  twice = Sampler(lambda *_: (jnp.arange(4), jnp.full(4, 2.0)))
  options = {"cohort_size": 4, "local_steps": 3, "weighting": "uniform"}
  plain, scaled = (
    FOUR_CLIENTS.simulate(algorithm, rounds=1, batch_size=4, **settings).params
    for settings in (options, options | {"sampler": twice})
  )
  chex.assert_trees_all_close(scaled, plain, rtol=1e-5)
