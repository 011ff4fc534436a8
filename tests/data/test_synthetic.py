"""The synthetic problems: their truth, their draws and their sizes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt.data import synthetic

SMALL = {"num_clients": 40, "examples_per_client": 50}


def small(task):
  if task == "lasso":
    return synthetic.lasso(dim=12, num_nonzero=5, **SMALL)
  return synthetic.low_rank(dim=4, rank=3, **SMALL)


@pytest.mark.parametrize(
  ("variant", "num_nonzero", "rank", "num_clients", "of_each"),
  [
    ("I", 512, 16, 64, 128),
    ("II", 64, 4, 64, 128),
    ("III", 8, 1, 64, 128),
    ("IV", 512, 16, 256, 32),
  ],
)
def test_the_sizes_of_the_paper(
  variant, num_nonzero, rank, num_clients, of_each
):
  sparse = synthetic.lasso(variant)
  assert sparse.w_real.shape == (1024,)
  assert sparse.w_real.sum() == num_nonzero
  matrix = synthetic.low_rank(variant)
  assert matrix.w_real.shape == (32, 32)
  assert np.linalg.matrix_rank(matrix.w_real) == rank
  for problem in (sparse, matrix):
    assert problem.data.num_clients == num_clients
    assert set(problem.data.sizes) == {of_each}
    assert problem.data.num_examples == 8192
    assert problem.validation["x"].shape == (1024, *problem.w_real.shape)
    assert problem.validation["y"].shape == (1024,)


def test_the_truth():
  sparse, matrix = small("lasso"), small("low_rank")
  np.testing.assert_array_equal(sparse.w_real, [1] * 5 + [0] * 7)
  np.testing.assert_array_equal(matrix.w_real, np.diag([1, 1, 1, 0]))


@pytest.mark.parametrize("task", ["lasso", "low_rank"])
def test_draws(task):
  problem = small(task)
  x, y = problem.data.examples["x"], problem.data.examples["y"]
  assert x.shape == (2000, *problem.w_real.shape)
  for array in (x, y, problem.w_real, problem.b_real):
    assert array.dtype == np.float32

  x = x.reshape(2000, -1)
  noise = y - x @ problem.w_real.reshape(-1) - problem.b_real
  assert abs(noise.mean()) < 0.1
  assert abs(noise.std() - 1) < 0.05

  of_client = x[problem.data.indices]  # [M, n, d]
  means = of_client.mean(axis=1)
  assert abs(means.mean()) < 0.2
  assert abs(means.std() - 1) < 0.1
  spread = of_client - means[:, None]
  assert abs(spread.std() - np.sqrt(49 / 50)) < 0.02

  # Validation is fresh, and of the same clients.
  validation = problem.validation["x"].reshape(40, 50 // 8, -1)
  all_rows = np.concatenate([x, validation.reshape(-1, x.shape[1])])
  assert len(np.unique(all_rows, axis=0)) == len(all_rows)
  difference = means - validation.mean(axis=1)
  assert abs(difference.std() - np.sqrt(1 / 50 + 1 / 6)) < 0.06


def test_seeds_and_variants():
  draw = lambda *args, **sizes: synthetic.lasso(*args, dim=8, **SMALL, **sizes)
  problem = draw("I", 3, num_nonzero=2)
  repeat = draw("I", 3, num_nonzero=2)
  np.testing.assert_array_equal(
    problem.data.examples["y"], repeat.data.examples["y"]
  )
  np.testing.assert_array_equal(problem.validation["x"], repeat.validation["x"])
  of_other_seed = draw("I", 4, num_nonzero=2)
  assert (problem.data.examples["x"] != of_other_seed.data.examples["x"]).all()

  denser = draw("I", 3, num_nonzero=3)
  x = problem.data.examples["x"]
  np.testing.assert_array_equal(denser.data.examples["x"], x)
  difference = denser.data.examples["y"] - problem.data.examples["y"]
  np.testing.assert_allclose(difference, x[:, 2], atol=1e-5)


# The non-convex problem.

POINTS = np.random.default_rng(5).normal(0, 2, (6, 4)).astype(np.float32)


def wells(zeta=0.7, seed=0, **sizes):
  defaults = {"dim": 4, "num_clients": 5, "examples_per_client": 12}
  return synthetic.heterogeneous(zeta, seed, **(defaults | sizes))


def derivatives(objective):
  """The value, gradient and Hessian at each of the points."""
  functions = (objective, jax.grad(objective), jax.hessian(objective))
  return jax.vmap(lambda x: [function(x) for function in functions])(POINTS)


@functools.cache
def of_clients(num_clients):
  """`zeta -> derivatives` of each client's objective f_p, [P, points, ...]."""
  problem = wells(num_clients=num_clients)
  rows = problem.data.indices  # All clients are of one size.
  batches = {name: v[rows] for name, v in problem.data.examples.items()}

  @jax.jit
  def evaluate(zeta):
    loss_fn = problem._replace(zeta=zeta).loss_fn
    of_client = lambda batch: derivatives(lambda x: jnp.mean(loss_fn(x, batch)))
    return jax.vmap(of_client)(batches)

  return lambda zeta: [np.float64(derivative) for derivative in evaluate(zeta)]


@pytest.mark.parametrize(("zeta", "num_clients"), [(0.0, 6), (0.7, 5)])
def test_zeta_is_how_far_hessians_differ(zeta, num_clients):
  _, _, hessians = of_clients(num_clients)(zeta)
  differences = hessians[:, None] - hessians  # [P, P, points, d, d]
  norms = np.linalg.norm(differences, 2, axis=(-2, -1)).max(axis=(0, 1))
  np.testing.assert_allclose(norms, zeta, atol=2e-6 * max(1, zeta))


@pytest.mark.parametrize("zeta", [0.0, 0.7])
def test_first_order_heterogeneity_is_apart_from_zeta(zeta):
  _, gradients, _ = of_clients(6)(zeta)
  signs = wells(num_clients=6).data.examples["curvature"][::12]
  spread = gradients - gradients.mean(axis=0)
  spread -= zeta * signs[:, None] * POINTS
  np.testing.assert_allclose(np.linalg.norm(spread, axis=-1), 3, rtol=1e-5)


@pytest.mark.parametrize("zeta", [0.7, 20.0])
def test_the_mean_objective_is_the_same_for_every_zeta(zeta):
  expected = jax.jit(derivatives, static_argnums=0)(wells(0.0).objective)
  for values, mean in zip(of_clients(5)(zeta), expected, strict=True):
    np.testing.assert_allclose(values.mean(0), mean, rtol=1e-4, atol=1e-4)


def test_wells_and_saddle_points():
  problem = wells(condition=8.0)
  np.testing.assert_allclose(problem.scales, [1, 1 / 2, 1 / 4, 1 / 8])
  assert problem.objective(jnp.array([1.0, -1.0, -1.0, 1.0])) == 0
  gradient = jax.jit(jax.grad(problem.objective))
  for x, eigenvalues in (
    ([1, -1, 1, 1], [2, 1, 1 / 2, 1 / 4]),
    ([0, -1, 0, 1], [-3, 1, -3 / 4, 1 / 4]),
    ([0, 0, 0, 0], [-3, -3 / 2, -3 / 4, -3 / 8]),
  ):
    x = jnp.array(x, jnp.float32)
    np.testing.assert_array_equal(gradient(x), 0)
    hessian = jax.jit(jax.hessian(problem.objective))(x)
    np.testing.assert_allclose(hessian, np.diag(eigenvalues))


def test_smoothness_bounds_every_example_and_is_reached():
  problem = wells(2.0, num_clients=6)
  assert problem.smoothness == 3 + 4 * 0.5 + 1
  loss = lambda x, example: problem.loss_fn(x, example)
  hessians_of = jax.vmap(jax.hessian(loss), (None, 0))
  hessians = jax.jit(jax.vmap(hessians_of, (0, None)))
  points = np.concatenate([POINTS, np.zeros((1, 4), np.float32)])
  norms = np.linalg.norm(
    hessians(points, problem.data.examples), 2, axis=(-2, -1)
  )
  assert norms.max() == pytest.approx(problem.smoothness, rel=1e-6)


@pytest.mark.parametrize("size", [12, 13])
def test_noise_of_the_gradient(size):
  problem = wells(noise=0.6, num_clients=2, examples_per_client=size)
  rows = problem.data.indices[1]
  batch = {name: v[rows] for name, v in problem.data.examples.items()}
  jacobian = jax.jit(jax.jacobian(problem.loss_fn))
  at_maximum = jacobian(jnp.zeros(4), batch)  # [n, d]
  noise = at_maximum - at_maximum.mean(axis=0)
  variance = np.mean(np.sum(noise**2, axis=1))
  # Of an odd number of examples, one has no noise in each coordinate.
  share = size // 2 * 2 / size
  np.testing.assert_allclose(variance, 0.36 * share, rtol=1e-5)

  x = jnp.full(4, 3**-0.5)
  elsewhere = jacobian(x, batch)
  deviation = np.sqrt(np.mean(np.sum((elsewhere - elsewhere.mean(0)) ** 2, 1)))
  bound = 0.6 + 1.3 * 0.5 * np.linalg.norm(problem.scales)
  assert 0.6 < deviation <= bound
  # It does not cancel between two points.
  assert np.ptp(elsewhere - at_maximum, axis=0).min() > 0.01


def test_nonconvex_draws():
  problem, of_zeta, of_seed = wells(0.1, 3), wells(5.0, 3), wells(0.1, 4)
  assert problem.data.sizes.tolist() == [12] * 5
  for name in ("tilt", "curvature", "bump"):
    values = problem.data.examples[name]
    assert values.shape == (60, 4)
    assert values.dtype == np.float32
    # Neither zeta nor the process changes a draw.
    np.testing.assert_array_equal(values, of_zeta.data.examples[name])
    assert (values != of_seed.data.examples[name]).any()
  batch = problem.data.examples
  np.testing.assert_array_equal(
    problem._replace(zeta=5.0).loss_fn(POINTS[0], batch),
    of_zeta.loss_fn(POINTS[0], batch),
  )
