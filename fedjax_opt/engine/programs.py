"""The programs of runs, traced and compiled once."""

import collections
import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from fedjax_opt import target
from fedjax_opt.engine import effort
from fedjax_opt.identity import key_of

# The number of programs kept; a run has two, of its rounds and evaluations.
_KEPT = 16
_known: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
_lock = threading.Lock()


def trace(
  name: str,
  build: Callable[[], Callable[..., Any]],
  about: Any,
  inputs: tuple[Any, ...],
  *,
  is_donated: bool,
) -> Callable[[], Any]:
  """Traces a program, unless the same one was traced before.

  Args:
    name: of the program.
    build: gives the function to compile.
    about: everything that the result of `build` depends on, see
      `identity.key_of`.
    inputs: of the function, arrays or their shapes.
    is_donated: whether the state, `inputs[0][0]`, may be overwritten.

  Returns:
    A function that compiles it, unless it was, and returns the program; it may
    run in another thread.
  """
  about_key, referred = key_of((name, about))
  key = (about_key, _shapes(inputs), is_donated, _context())
  with _lock:
    if key in _known:
      _known.move_to_end(key)
      return _known[key][0]

  # The state alone is donated, as an argument of its own.
  (state, *rest), *others = inputs
  function = build()

  def program(state, rest, *others):
    return function((state, *rest), *others)

  program.__name__ = name  # As logs and profiles call it.
  jitted = jax.jit(program, donate_argnums=0 if is_donated else ())
  lowered = jitted.lower(state, rest, *others)
  options = effort.of_large_programs()

  @functools.cache
  def compiled():
    return lowered.compile(compiler_options=options)

  with _lock:
    _known[key] = compiled, referred
    while len(_known) > _KEPT:
      _known.popitem(last=False)
  return compiled


def call(program: Any, inputs: tuple[Any, ...]) -> Any:
  """Calls a program that `trace` made."""
  (state, *rest), *others = inputs
  return program(state, rest, *others)


def clear() -> None:
  """Forgets all programs, and the arrays that they hold."""
  with _lock:
    _known.clear()
  effort.clear()


def _shapes(inputs):
  leaves, structure = jax.tree.flatten(inputs)
  return structure, *(_shape(leaf) for leaf in leaves)


def _shape(leaf):
  sharding = getattr(leaf, "sharding", None)
  is_over_mesh = isinstance(sharding, jax.sharding.NamedSharding)
  return np.shape(leaf), str(leaf.dtype), sharding if is_over_mesh else None


def _context():
  """Devices and configuration of JAX, on which traced functions depend."""
  names = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_disable_jit",
    "jax_debug_nans",
  )
  return tuple(target.devices()), *(getattr(jax.config, n, None) for n in names)
