"""Small helpers for pytrees that optax does not have."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def at_least_float32(x: jax.Array) -> jax.Array:
  """The array, in float32 if its type is narrower."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def num_bytes(tree: Any) -> int:
  """The size in bytes of all arrays of a tree (or of their shapes)."""
  return sum(
    np.size(leaf) * jnp.result_type(leaf).itemsize
    for leaf in jax.tree.leaves(tree)
  )


def take(tree: Any, rows: Any) -> Any:
  """These rows of every leaf."""
  return jax.tree.map(lambda leaf: leaf[rows], tree)


def as_before(new: Any, old: Any, what: str, maker: str) -> Any:
  """A state that replaces another, its floating-point leaves in its types.

  Args:
    new: the state.
    old: the one that it replaces.
    what: the name of the state, for the error.
    maker: the name of the function that made the first one.

  Raises:
    ValueError: if it is of another structure, shape or kind of number.
  """
  is_float = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)

  def cast(new, old):
    return new.astype(old.dtype) if is_float(new) and is_float(old) else new

  new, old = jax.tree.map(jnp.asarray, (new, old))
  is_like = jax.tree.structure(new) == jax.tree.structure(old)
  if is_like:
    new = jax.tree.map(cast, new, old)
    shapes = lambda tree: [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]
    is_like = shapes(new) == shapes(old)
  if not is_like:
    raise ValueError(
      f"{what}: is {_described(new)}; must be as {maker} makes it, "
      f"{_described(old)}"
    )
  return new


def _described(tree):
  """The structure with types and shapes, as text."""
  shape = lambda leaf: f"{leaf.dtype}{list(leaf.shape)}"
  return str(jax.tree.map(shape, tree)).replace("'", "")


def zeros_of(shapes: Any) -> Any:
  """Zeros of the shapes and types of a tree."""
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def all_finite(tree: Any) -> jax.Array:
  """[] bool; whole numbers and random keys always are."""
  is_float = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact)
  leaves = [leaf for leaf in jax.tree.leaves(tree) if is_float(leaf)]
  finite = [jnp.all(jnp.isfinite(leaf)) for leaf in leaves]
  return jnp.all(jnp.array(finite)) if finite else jnp.array(True)
