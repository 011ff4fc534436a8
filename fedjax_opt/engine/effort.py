"""Functions of every array of a tree, as one program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt.engine.programs import run_once


def map_arrays(
  fn: Callable[[Any], Any], tree: Any, program: Callable | None = None
) -> Any:
  """A function of every leaf; NumPy arrays stay on the host.

  All arrays on devices take one program, which is quicker to compile than one
  for each shape.

  Args:
    fn: of one array.
    tree: of arrays.
    program: of a list of arrays, where one is kept for further calls.
  """
  if program is None:
    program = _of_list(fn)
  leaves, structure = jax.tree.flatten(tree)
  is_host = [isinstance(leaf, np.ndarray) for leaf in leaves]
  on_device = [x for x, host in zip(leaves, is_host, strict=True) if not host]
  mapped = iter(program(on_device) if on_device else ())
  return structure.unflatten(
    fn(x) if host else next(mapped)
    for x, host in zip(leaves, is_host, strict=True)
  )


def copies(tree: Any) -> Any:
  """The same arrays in buffers of their own, on the devices or the host."""
  return map_arrays(_copy, tree, _copy_all)


def _copy(x):
  return x.copy() if isinstance(x, np.ndarray) else jnp.array(x)


def _of_list(fn):
  return run_once(lambda some: [fn(leaf) for leaf in some])


_copy_all = _of_list(_copy)
