"""A cohort over several devices, as the compiled program sees it.

The program runs on every device, under `jax.shard_map` over a mesh with the
axes `CLIENTS` and `GRID`. On one device these functions do nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

CLIENTS, GRID = "clients", "grid"


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

  return jax.tree.map(join, tree)


def from_shard(shard: jax.Array, tree: Any) -> Any:
  """The tree that one of the devices has."""
  if num_shards() == 1:
    return tree
  pick = lambda leaf: lax.all_gather(leaf, CLIENTS)[shard]
  return jax.tree.map(pick, tree)


def total(tree: Any) -> Any:
  """The sums over devices."""
  return tree if num_shards() == 1 else lax.psum(tree, CLIENTS)
