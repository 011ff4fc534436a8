"""Small helpers for pytrees that optax does not have."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_float(leaf: Any) -> bool:
  """Whether a leaf is an array of floating-point numbers."""
  dtype = getattr(leaf, "dtype", None)
  return dtype is not None and jnp.issubdtype(dtype, jnp.floating)


def at_least_float32(x: jax.Array) -> jax.Array:
  """The array, in float32 if its type is narrower, or of whole numbers."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def along(vector: jax.Array, leaf: jax.Array) -> jax.Array:
  """[C] as [C, 1, ...], for a leaf [C, ...]."""
  return vector.reshape(-1, *[1] * (leaf.ndim - 1))


def name_of(path: tuple[Any, ...]) -> str:
  """The name of a leaf, such as 'Dense_0/kernel', by its path in a tree."""
  return jax.tree_util.keystr(path, simple=True, separator="/")


def num_bytes(tree: Any) -> int:
  """The size in bytes of all arrays of a tree (or of their shapes)."""
  return sum(
    np.size(leaf) * jnp.result_type(leaf).itemsize
    for leaf in jax.tree.leaves(tree)
  )


def take(tree: Any, rows: Any) -> Any:
  """These rows of every leaf; of rows that a program computes, see `row`."""
  return jax.tree.map(lambda leaf: row(leaf, rows), tree)


# A negative index counts from the end. To find out takes three times as many
# operations as to index, all of which are compiled.
_IN_BOUNDS = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


def row(array: Any, i: Any) -> Any:
  """`array[i]`; indices that a program computes must be in [0, length)."""
  if isinstance(i, jax.core.Tracer):
    return jnp.asarray(array).at[i].get(**_IN_BOUNDS)
  return array[i]


def with_row(array: jax.Array, i: jax.Array, new: jax.Array) -> jax.Array:
  """The array with another row at i, in [0, length)."""
  return array.at[i].set(new, **_IN_BOUNDS)


def cast_like(new: Any, old: Any) -> Any:
  """A tree whose floating-point leaves have the types of another's.

  The tree as it is, if the two differ in structure.
  """

  def cast(new, old):
    return new.astype(old.dtype) if is_float(new) and is_float(old) else new

  is_like = jax.tree.structure(new) == jax.tree.structure(old)
  return jax.tree.map(cast, new, old) if is_like else new


def merge(first: Any, second: Any) -> Any:
  """The first tree, with None replaced by what the second one has there."""
  either = lambda first, second: second if first is None else first
  return jax.tree.map(either, first, second, is_leaf=lambda leaf: leaf is None)


def without(tree: Any, other: Any) -> Any:
  """A tree with None in place of each leaf where another one has a leaf."""
  keep = lambda other_leaf, leaf: leaf if other_leaf is None else None
  return jax.tree.map(keep, other, tree, is_leaf=lambda leaf: leaf is None)


def zeros_of(shapes: Any) -> Any:
  """Zeros of the shapes and types of a tree."""
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
