"""Norms of trees: the number, whatever the shapes and types."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import norms

X = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([[-2.0], [4.0]])}
Y = {"a": np.ones((2, 3)), "b": np.array([[0.5], [1.0]])}


def cast(tree, dtype):
  return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), tree)


def numpy_norm(tree):
  leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(tree)]
  return np.linalg.norm(np.concatenate(leaves))


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
    assert {number.dtype for number in actual} == {jnp.dtype(result)}
    expected = numpy_norm(X), numpy_norm(jax.tree.map(np.subtract, X, Y))
    np.testing.assert_allclose(actual, expected, rtol=rtol)
    flat = norms.distance(norms.flat(x), y), norms.distance(x, norms.flat(y))
    np.testing.assert_array_equal(flat, [actual[1]] * 2)


def test_an_empty_tree_has_length_0():
  assert norms.norm({}) == 0
  assert norms.distance({}, {}) == 0
