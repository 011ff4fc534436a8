"""Small helpers for pytrees that optax does not have."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt.engine.effort import run_once


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


def map_arrays(fn: Callable[[Any], Any], tree: Any) -> Any:
  """A function of every leaf; NumPy arrays stay on the host.

  All arrays on devices take one program, which is quicker to compile than one
  for each shape.
  """
  leaves, structure = jax.tree.flatten(tree)
  is_host = [isinstance(leaf, np.ndarray) for leaf in leaves]
  on_device = [x for x, host in zip(leaves, is_host, strict=True) if not host]
  mapped = iter(run_once(lambda some: [fn(leaf) for leaf in some])(on_device))
  return structure.unflatten(
    fn(x) if host else next(mapped)
    for x, host in zip(leaves, is_host, strict=True)
  )


def copies(tree: Any) -> Any:
  """The same arrays in buffers of their own, on the devices or the host."""
  copy = lambda x: x.copy() if isinstance(x, np.ndarray) else jnp.array(x)
  return map_arrays(copy, tree)


def zeros_of(shapes: Any) -> Any:
  """Zeros of the shapes and types of a tree."""
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def all_finite(tree: Any) -> jax.Array:
  """[] bool; whole numbers and random keys always are."""
  is_float = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact)
  leaves = [leaf for leaf in jax.tree.leaves(tree) if is_float(leaf)]
  finite = [jnp.all(jnp.isfinite(leaf)) for leaf in leaves]
  return jnp.all(jnp.array(finite)) if finite else jnp.array(True)
