"""Norms of trees, and whether they are finite, here and on accelerators."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import target
from fedjax_opt.arrays import norms
from tests.helpers import jax_problems

CUDA = types.SimpleNamespace(platform="cuda")

SIZES = [1, 4096, 4097, 8 * 4096 + 7, 140_003]


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.slow_cases("1-cpu", "4096-gpu", "4097-cpu", "140003-cpu")
def test_no_entry_is_lost(size, platform, monkeypatch):
  monkeypatch.setattr("fedjax_opt.target.platform", lambda: platform)
  x, y = np.random.default_rng(size).normal(size=(2, 3, size))
  of_each = np.linalg.norm(x - y, axis=1)
  float32 = [np.float32(array) for array in (x, y)]
  norm = jax.jit(jax.vmap(norms.distance))(*float32)
  np.testing.assert_allclose(norm, of_each, rtol=1e-6)
  with jax.enable_x64(True):
    norm = norms.norm({"a": x[0], "b": y[0]})
    expected = np.linalg.norm([x[0], y[0]])
    np.testing.assert_allclose(norm, expected, rtol=1e-14)
  vector = np.zeros(size, np.float32)
  vector[-1] = 3
  assert norms.norm([vector]) == 3


@pytest.mark.parametrize("size", SIZES)
def test_one_entry_that_is_not_finite_is_found(size, monkeypatch):
  monkeypatch.setattr("fedjax_opt.target.platform", lambda: "gpu")
  for at in (0, size - 1):
    x = np.ones(size, np.float32)
    assert norms.all_finite([x, x])
    x[at] = np.nan
    assert not norms.all_finite([x])


TREE = {"a": np.arange(6.0, dtype=np.float32).reshape(2, 3), "b": np.ones(4)}


@pytest.mark.parametrize("worst", [0.0, np.inf, np.nan])
def test_sums_over_trees_are_the_same_on_accelerators(worst):
  tree = jax.tree.map(jnp.float32, TREE | {"c": worst})
  cpu = norms.norm(tree), norms.distance(tree, TREE | {"c": 1.0})
  finite = norms.all_finite(tree)
  with target.use([CUDA]):
    assert len(norms.in_one_array(jax.tree.leaves(tree))) == 1
    gpu = norms.norm(tree), norms.distance(tree, TREE | {"c": 1.0})
    assert norms.all_finite(tree) == finite
  np.testing.assert_allclose(gpu, cpu, rtol=1e-6)


def test_large_trees_stay_in_leaves():
  leaves = [jnp.zeros(1 << 20), jnp.zeros(2)]
  with target.use([CUDA]):
    assert [leaf.size for leaf in norms.in_one_array(leaves)] == [1 << 20, 2]
    assert norms.in_one_array([]) == []


# Norms of trees: the number, whatever the shapes and types.


X = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([[-2.0], [4.0]])}
Y = {"a": np.ones((2, 3)), "b": np.array([[0.5], [1.0]])}


def cast(tree, dtype):
  return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), tree)


@pytest.mark.parametrize(
  ("dtype", "rtol", "result"),
  [
    ("bfloat16", 1e-6, "float32"),
    ("float32", 1e-6, "float32"),
    ("float64", 1e-14, "float64"),
  ],
)
def test_norm_and_distance(dtype, rtol, result):
  with jax.enable_x64(dtype == "float64"):
    x, y = cast(X, dtype), cast(Y, dtype)
    actual = norms.norm(x), norms.distance(x, y)
    flat = (
      norms.distance(norms.raveled(x), y),
      norms.distance(x, norms.raveled(y)),
    )
    np.testing.assert_array_equal(flat, [actual[1]] * 2)
    assert {number.dtype for number in actual} == {jnp.dtype(result)}
    x, y = jax_problems.flat(X), jax_problems.flat(Y)
    expected = np.linalg.norm(x), np.linalg.norm(x - y)
    np.testing.assert_allclose(actual, expected, rtol=rtol)


def test_an_empty_tree_has_length_0():
  assert norms.norm({}) == 0
  assert norms.distance({}, {}) == 0
