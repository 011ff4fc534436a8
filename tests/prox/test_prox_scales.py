"""Proximal operators at all scales, against NumPy in wider numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedjax_opt import prox

N = 40
# From numbers whose squares vanish in float32 to those whose squares overflow.
exponents = st.integers(-30, 30)
fuzz = settings(max_examples=40, deadline=None)


def simplex(z, scale):
  """Sorted, in long double and relative to the largest entry."""
  z = np.asarray(z, np.longdouble)
  z = z - z.max()
  ordered = np.sort(z)[::-1]
  candidates = (np.cumsum(ordered) - scale) / np.arange(1, len(z) + 1)
  threshold = candidates[np.nonzero(ordered > candidates)[0][-1]]
  return np.maximum(z - threshold, 0)


def l1_ball(z, radius):
  z = np.asarray(z, np.longdouble)
  if np.abs(z).sum() <= radius:
    return z
  return np.sign(z) * simplex(np.abs(z), radius)


def l2_ball(z, radius):
  z = np.asarray(z, np.longdouble)
  return z * min(1, radius / max(np.sqrt(np.sum(z**2)), np.longdouble(1e-300)))


def group_lasso(z, threshold):
  z = np.asarray(z, np.longdouble)
  norm = np.sqrt(np.sum(z**2, axis=-1, keepdims=True))
  return np.where(norm > threshold, (1 - threshold / norm) * z, 0)


SETS = {
  "simplex": (prox.simplex, simplex),
  "l1_ball": (prox.l1_ball, l1_ball),
  "l2_ball": (prox.l2_ball, l2_ball),
  "group_lasso": (prox.group_lasso, group_lasso),
}
# Compiled once, with a traced strength.
JITTED = {
  name: jax.jit(lambda z, strength, make=make: make(strength).prox(z, 1.0))
  for name, (make, _) in SETS.items()
}


def points(seed, exponent, spread, ties, shape):
  """Numbers around 10^exponent; ties are entries that are equal or nearly."""
  rng = np.random.default_rng(seed)
  z = rng.normal(size=shape) * 10.0 ** rng.uniform(-spread, 0, shape)
  if ties:
    z = 1 + np.round(z, 2) * 1e-3
  return z * 10.0**exponent


def check(name, z, strength, dtype, rtol):
  """The largest error, relative to what the rounding of each may change."""
  z = np.asarray(z, dtype)
  strength = np.asarray(strength, dtype)
  point = np.asarray(JITTED[name](jnp.asarray(z), jnp.asarray(strength)))
  assert point.dtype == dtype
  expected = SETS[name][1](z, np.longdouble(strength))
  error = np.abs(point - expected).max()
  # Balls and simplex: of the size of the set, whatever the point is.
  size = np.abs(expected).max() if name == "group_lasso" else strength
  of_set = max(size, np.abs(expected).max())
  assert error <= rtol * of_set, (error, of_set)
  return point


@pytest.mark.parametrize("name", SETS)
@fuzz
@given(
  seed=st.integers(0, 10**6),
  exponent=exponents,
  ratio=st.integers(-9, 9),
  spread=st.sampled_from([0, 3]),
  ties=st.booleans(),
)
@example(0, 30, 0, 0, False)
@example(0, -30, 0, 0, False)
@example(0, 0, -9, 0, True)
def test_float32(name, seed, exponent, ratio, spread, ties):
  """The set is 10^ratio times as large as the point's entries."""
  shape = (N // 4, 4) if name == "group_lasso" else (N,)
  z = points(seed, exponent, spread, ties, shape)
  strength = 10.0 ** np.clip(exponent + ratio, -33, 33)
  check(name, z, strength, np.float32, 4e-6)


@pytest.mark.parametrize("n", [1, 2, 1000, 30_000])
@pytest.mark.parametrize("level", [0, 1e3, 1e6, 1e9])
def test_far_from_the_simplex(n, level):
  """Entries that lie close together, far away; the sum is the scale still."""
  rng = np.random.default_rng(n)
  z = (level + rng.normal(size=n) * max(1e-4, level * 3e-7)).astype(np.float32)
  point = check("simplex", z, 1.0, np.float32, 4e-6)
  assert abs(point.sum(dtype=np.float64) - 1) < 1e-5
  point = check("l1_ball", z, 0.5, np.float32, 4e-6)
  assert np.abs(point).sum(dtype=np.float64) < 0.5 * (1 + 1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("name", ["l2_ball", "l1_ball"])
def test_a_ball_knows_its_points_at_any_scale(name, scale):
  z = jnp.array([0.3, -0.4], jnp.float32) * scale
  for radius, is_inside in ((1.0, True), (0.4, False)):
    value = SETS[name][0](radius * scale).value(z)
    assert bool(value == 0) == is_inside


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_value_of_group_lasso(scale):
  z = jnp.array([[3.0, 4.0], [0.0, 0.0], [-5.0, 12.0]]) * scale
  np.testing.assert_allclose(
    prox.group_lasso(2.0).value(z), 36 * scale, rtol=1e-6
  )


@pytest.mark.parametrize("name", SETS)
def test_all_zeros(name):
  point = SETS[name][0](1.0).prox(jnp.zeros(4), 1.0)
  np.testing.assert_array_equal(point, 0.25 if name == "simplex" else 0)
