"""The newer methods in grids of their own constants, and in half precision."""

import functools

import jax
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from tests import jax_problems

TASK = jax_problems.least_squares(sizes=(6, 9, 4, 7))
SETTINGS = {"batch_size": 4, "local_steps": 3, "cohort_size": 4, "rounds": 4}
SGD = optax.sgd(0.05)

# factory -> what it takes after the loss, a constant, and two values of it.
GRIDS = {
  fo.fed_dyn: (SGD, "alpha", [0.01, 0.3]),
  fo.fed_nova: (0.05, "momentum", [0.1, 0.8]),
  fo.fed_cm: (0.05, "alpha", [0.1, 0.9]),
  fo.fed_exp: (SGD, "eps", [1e-6, 0.1]),
  fo.mime_lite: (0.05, "beta", [0.0, 0.8]),
  fo.prox_skip: (0.05, "p", [0.2, 1.0]),
  fo.fed_sam: (SGD, "rho", [0.0, 0.5]),
  fo.mo_fed_sam: (0.05, "beta", [0.1, 0.9]),
  fo.fed_speed: (0.05, "lam", [1.0, 10.0]),
}
each_factory = pytest.mark.parametrize(
  "factory", [*GRIDS, fo.diloco], ids=lambda factory: factory.__name__
)


def made(factory, **constants):
  first = GRIDS[factory][0] if factory in GRIDS else SGD
  return factory(TASK.loss_fn, first, **constants)


@pytest.mark.parametrize("factory", GRIDS, ids=lambda f: f.__name__)
def test_a_grid_over_a_constant_equals_its_points(factory):
  _, name, values = GRIDS[factory]
  make = functools.partial(made, factory)
  whole = fo.sweep(make, {name: values}, TASK.params, TASK.data, **SETTINGS)
  ends = []
  for i, value in enumerate(values):
    algorithm = make(**{name: value})
    one = fo.simulate(algorithm, TASK.params, TASK.data, **SETTINGS)
    np.testing.assert_allclose(
      whole.params["kernel"][i], one.params["kernel"], rtol=2e-5, atol=1e-6
    )
    ends.append(one.params["kernel"])
  assert np.linalg.norm(ends[1] - ends[0]) > 1e-4


@each_factory
def test_local_steps_in_half_precision(factory):
  both = [
    fo.simulate(
      made(factory), TASK.params, TASK.data, precision=precision, **SETTINGS
    )
    for precision in ("float32", "bfloat16")
  ]
  types = {leaf.dtype for leaf in jax.tree.leaves(both[1].params)}
  assert types == {np.dtype("float32")}
  exact, rough = (result.params["kernel"] for result in both)
  moved = np.linalg.norm(exact - TASK.params["kernel"])
  assert 0 < np.linalg.norm(rough - exact) < 0.2 * moved
