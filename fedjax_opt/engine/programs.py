"""Compiles programs, and keeps them for identical runs."""

import collections
import threading
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from fedjax_opt.engine import effort
from fedjax_opt.identity import key_of

# The number of programs kept; a run has two, of its rounds and evaluations.
_KEPT = 16
_compiled: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
_lock = threading.Lock()


def compile_program(
  build: Callable[[], Callable[..., Any]],
  about: Any,
  inputs: tuple[Any, ...],
  *,
  is_donated: bool,
) -> Callable[[], Any]:
  """Traces a program, unless the same one was compiled before.

  Args:
    build: gives the function to compile.
    about: everything that the result of `build` depends on, see
      `identity.key_of`.
    inputs: of the function, arrays or their shapes.
    is_donated: whether the state, `inputs[0][0]`, may be overwritten.

  Returns:
    A function that compiles it, which may run in another thread, and returns
    the program.
  """
  about_key, referred = key_of(about)
  key = (about_key, _shapes(inputs), is_donated, _context())
  with _lock:
    if key in _compiled:
      _compiled.move_to_end(key)
      program, _ = _compiled[key]
      return lambda: program

  # The state alone is donated, as an argument of its own.
  (state, *rest), *others = inputs
  function = build()

  def program(state, rest, *others):
    return function((state, *rest), *others)

  jitted = jax.jit(program, donate_argnums=0 if is_donated else ())
  lowered = jitted.lower(state, rest, *others)

  def compiled():
    program = lowered.compile()
    with _lock:
      _compiled[key] = program, referred
      while len(_compiled) > _KEPT:
        _compiled.popitem(last=False)
    return program

  return compiled


def call(program: Any, inputs: tuple[Any, ...]) -> Any:
  """Calls what `compile_program` gave."""
  (state, *rest), *others = inputs
  return program(state, rest, *others)


def clear() -> None:
  """Forgets all programs, and the arrays that they hold."""
  with _lock:
    _compiled.clear()
  effort.clear()


def _shapes(inputs):
  leaves, structure = jax.tree.flatten(inputs)
  return structure, *(_shape(leaf) for leaf in leaves)


def _shape(leaf):
  weak = getattr(leaf, "weak_type", False)
  sharding = getattr(leaf, "sharding", None)
  return np.shape(leaf), str(leaf.dtype), weak, sharding


def _context():
  """The configuration of JAX, on which traced functions depend."""
  names = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_disable_jit",
    "jax_debug_nans",
  )
  return jax.default_backend(), *(getattr(jax.config, n, None) for n in names)
