"""Several processes that run one program."""

import math
import os
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def fetch(tree: Any) -> Any:
  """The arrays of a program, complete on the host of every process."""
  if jax.process_count() == 1:
    return jax.device_get(tree)

  def whole(leaf):
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
      return leaf
    if leaf.is_fully_replicated:
      return leaf.addressable_data(0)
    return multihost_utils.process_allgather(leaf, tiled=True)

  return jax.device_get(jax.tree.map(whole, tree))


def fetch_global(tree: Any) -> Any:
  """As `fetch` if there are several processes; else the tree itself."""
  return tree if jax.process_count() == 1 else fetch(tree)


def of_any_process(number: int) -> int:
  """The largest of the numbers that the processes have; all must call it."""
  if jax.process_count() == 1:
    return number
  return int(np.max(multihost_utils.process_allgather(np.int32(number))))


def least_of_processes(number: int) -> int:
  """The smallest of the numbers that the processes have, likewise."""
  return -of_any_process(-number)


def random_words(shape: tuple[int, ...]) -> np.ndarray:
  """Random uint32 of the operating system; all processes must call it.

  Of several processes all have those of the first one.
  """
  words = np.frombuffer(os.urandom(4 * math.prod(shape)), np.uint32)
  words = words.reshape(shape)
  if jax.process_count() == 1:
    return words
  return np.asarray(multihost_utils.broadcast_one_to_all(words))


def check_alike(what: str, number: int) -> None:
  """Checks that all processes have the same number; all must call it.

  Raises:
    ValueError: in all of them, if they do not.
  """
  most, least = of_any_process(number), least_of_processes(number)
  if most != least:
    raise ValueError(
      f"{what}: {least} in one process and {most} in another; must be the same "
      "in all, as from a folder that all can read"
    )


def is_first_process() -> bool:
  """Whether this is the process that writes files."""
  return jax.process_index() == 0
