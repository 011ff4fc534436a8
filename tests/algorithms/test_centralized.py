"""Full-gradient baselines against the NumPy loops and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import ClientData, prox
from fedjax_opt.algorithms.centralized import centralized, local, optimum
from tests import reference
from tests.helpers import jax_problems
from tests.helpers.jax_problems import assert_close

TASK = jax_problems.softmax()  # The last of five clients owns nothing.
PSI = prox.kernels(prox.l1(0.05))
OF_LOOP = reference.L1(slice(3, 15), 0.05)
RATE = 0.5
EVERYTHING = np.concatenate(TASK.problem.client_rows)


def points_of_loop(rows, steps):
  return reference.proximal_gradient(
    TASK.problem, [rows] * steps, OF_LOOP, RATE
  )


def run(algorithm, **options):
  options = {"rounds": 5, "batch_size": 4} | options
  return TASK.simulate(algorithm, **options)


# Rounds.


def test_centralized_is_proximal_gradient_on_all_examples():
  """Batches of 4 do not divide the clients; a chunk of 2 is filled up."""
  with jax.enable_x64(True):
    result = run(centralized(TASK.loss_fn, PSI, RATE), client_chunk=2)
  assert_close(result.params, points_of_loop(EVERYTHING, 5)[-1], 1e-10)
  assert result.cost["gradient_evaluations_per_round"] == len(EVERYTHING) / 5


def test_uniform_weights_make_it_the_mean_over_clients():
  task = jax_problems.least_squares(sizes=(13, 7, 4))
  problem = task.problem

  def gradient(w, _):
    gradients = [problem.gradient(w, rows) for rows in problem.client_rows]
    return None, np.mean([grad for _, grad in gradients], axis=0)

  psi = reference.L1(slice(None), 0.1)
  mean = jax_problems.from_start(problem, problem.x0, gradient)
  xs = reference.proximal_gradient(mean, [None] * 5, psi, 0.2)
  with jax.enable_x64(True):
    result = task.simulate(
      centralized(task.loss_fn, prox.l1(0.1), 0.2),
      rounds=5,
      batch_size=4,
      weighting="uniform",
    )
  assert_close(result.params, xs[-1], 1e-10)


def test_local_is_proximal_gradient_on_one_client():
  with jax.enable_x64(True):
    algorithm = local(TASK.loss_fn, PSI, RATE, client=1)
    result = run(algorithm, cohort_size=2)
  rows = TASK.problem.client_rows[1]
  assert_close(result.params, points_of_loop(rows, 5)[-1], 1e-10)


def test_a_client_that_owns_nothing_has_no_gradient():
  with jax.enable_x64(True):
    result = run(local(TASK.loss_fn, prox.zero(), RATE, client=4))
  assert_close(result.params, TASK.problem.x0, 1e-15)


def least_squares(x, y):
  """The mean of (x w - y)^2, one client, and the data."""
  data = ClientData.from_partition({"x": x, "y": y}, [np.arange(len(x))])
  return lambda w, batch, rng: (batch["x"] @ w - batch["y"]) ** 2, data


# The optimum.


def test_the_optimum_of_ridge_regression():
  rng = np.random.default_rng(0)
  x, y = rng.normal(size=(30, 6)), rng.normal(size=30)
  loss_fn, data = least_squares(x, y)
  result = optimum(
    loss_fn, prox.squared_l2(0.3), np.zeros(6), data, 1e-10, batch_size=7
  )
  expected = np.linalg.solve(x.T @ x / 30 + 0.3 * np.eye(6), x.T @ y / 30)
  assert_close(result.params, expected, 1e-9)
  value = np.mean((x @ expected - y) ** 2) + 0.3 * np.sum(expected**2)
  np.testing.assert_allclose(result.value, value, rtol=1e-12)
  assert result.residual <= 1e-10


def test_the_optimum_equals_the_loop():
  tries = 40
  result = optimum(
    TASK.loss_fn, PSI, TASK.params, TASK.data, max_iterations=tries
  )
  x = reference.fista(TASK.problem, EVERYTHING, OF_LOOP, 1024.0, tries)
  assert np.linalg.norm(x - TASK.problem.x0) > 0.1  # Some were accepted.
  assert_close(result.params, x, 1e-10)


def test_the_residual_is_of_the_point_returned():
  """It bounds the fixed-point residual, for any step."""
  result = optimum(TASK.loss_fn, PSI, TASK.params, TASK.data, max_iterations=30)
  assert result.iterations == 30
  assert result.residual > 1e-6
  w = jax_problems.flat(result.params)
  grad = TASK.problem.gradient(w, EVERYTHING)[1]
  for eta in (1e-3, 0.1, 1.0):
    residual = np.linalg.norm(w - OF_LOOP.prox(w - eta * grad, eta)) / eta
    assert residual <= result.residual * (1 + 1e-9)


def test_an_example_counts_as_often_as_it_is_owned():
  x, y = np.ones((3, 1)), np.array([0.0, 1.0, 5.0])
  data = ClientData.from_partition({"x": x, "y": y}, [[0, 1, 1], [1]])
  loss_fn = lambda w, batch, rng: (batch["x"] @ w - batch["y"]) ** 2
  result = optimum(loss_fn, prox.zero(), np.array([4.0]), data)
  np.testing.assert_allclose(result.params, [0.75], atol=1e-6)


def test_single_precision_data_do_not_limit_the_optimum():
  rng = np.random.default_rng(2)
  x = rng.normal(size=(40, 5)).astype(np.float32)
  y = rng.normal(size=40).astype(np.float32)
  loss_fn, data = least_squares(x, y)
  result = optimum(loss_fn, prox.l1(0.1), jnp.zeros(5), data, 1e-11)
  assert result.residual <= 1e-11
  assert result.params.dtype == np.float64
