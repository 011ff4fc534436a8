"""A cohort over several devices, as the compiled program sees it.

The program runs on every device, under `jax.shard_map` over a mesh with the
axes `CLIENTS` and `GRID`. On one device these functions do nothing.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

CLIENTS, GRID = "clients", "grid"
# Leaves of a client up to this size are moved together.
_FEW_WORDS = 64


def num_shards() -> int:
  """Over how many devices the cohort is divided, where this is traced."""
  try:
    return lax.axis_size(CLIENTS)
  except NameError:  # Not within a mesh.
    return 1


def local(tree: Any) -> Any:
  """The n rows of leaves [D n, ...] that this device computes.

  They are every D-th row, so that all devices have about equally much to do
  where the rows are sorted by size.
  """
  shards = num_shards()
  if shards == 1:
    return tree
  split = lambda leaf: leaf.reshape(-1, shards, *leaf.shape[1:])
  index = lax.axis_index(CLIENTS)
  return jax.tree.map(lambda leaf: split(leaf)[:, index], tree)


def gather(tree: Any) -> Any:
  """The inverse of `local`: rows [n, ...] of each device -> [D n, ...]."""
  if num_shards() == 1:
    return tree

  def join(leaf):
    leaf = jnp.swapaxes(lax.all_gather(leaf, CLIENTS), 0, 1)  # [n, D, ...]
    return leaf.reshape(-1, *leaf.shape[2:])

  return _by_few(join, tree)


def from_shard(shard: jax.Array, tree: Any) -> Any:
  """The tree that one of the devices has."""
  if num_shards() == 1:
    return tree
  add_axis = lambda leaf: jnp.asarray(leaf)[None]
  pick = lambda leaf: lax.all_gather(leaf, CLIENTS)[shard]
  picked = _by_few(pick, jax.tree.map(add_axis, tree))
  return jax.tree.map(lambda leaf: leaf[0], picked)


def _by_few(move: Callable[[jax.Array], jax.Array], tree: Any) -> Any:
  """Moves leaves [n, ...] between devices, the small ones all at once.

  Each move has a fixed cost, whatever its size. What is recorded of clients is
  some words in several arrays; these are moved as one array of 32-bit words.

  Args:
    move: [n, ...] -> [m, ...], of any type.
    tree: leaves [n, ...].
  """
  leaves, structure = jax.tree.flatten(tree)
  is_small = [
    (leaf.dtype == bool or leaf.dtype.itemsize == 4)
    and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    and math.prod(leaf.shape[1:]) <= _FEW_WORDS
    for leaf in leaves
  ]
  if sum(is_small) < 2:
    return jax.tree.map(move, tree)
  small = [leaf for leaf, few in zip(leaves, is_small, strict=True) if few]
  moved = move(jnp.concatenate([_words(leaf) for leaf in small], axis=1))
  ends = np.cumsum([math.prod(leaf.shape[1:]) for leaf in small])
  parts = iter(jnp.split(moved, ends[:-1], axis=1))
  done = [
    _of_words(next(parts), leaf) if few else move(leaf)
    for leaf, few in zip(leaves, is_small, strict=True)
  ]
  return jax.tree.unflatten(structure, done)


def _words(leaf):
  """[n, ...] of 32 bits or bool -> [n, words] uint32."""
  if leaf.dtype == bool:
    leaf = leaf.astype(jnp.uint32)
  return lax.bitcast_convert_type(leaf, jnp.uint32).reshape(len(leaf), -1)


def _of_words(words, like):
  """The inverse of `_words`, for as many rows as there are."""
  words = words.reshape(-1, *like.shape[1:])
  if like.dtype == bool:
    return words.astype(bool)
  return lax.bitcast_convert_type(words, like.dtype)


def total(tree: Any) -> Any:
  """The sums over devices."""
  return tree if num_shards() == 1 else lax.psum(tree, CLIENTS)
