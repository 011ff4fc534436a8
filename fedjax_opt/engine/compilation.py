"""Compiled programs, which are found again by their text.

Most of the time until a program runs is spent in XLA. A program with the text
of one that was compiled before is not compiled again. The text contains all
that was traced. So equal functions that are made anew share a program, and a
function in which anything changed gets a new one.
"""

import contextlib
import ctypes
import functools
import hashlib
import re
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt.arrays import target

# The number of programs kept. A run has two, one for its rounds and one for
# evaluations, and some small ones, such as that of its initial model. A cell of
# a study has ten to fifteen, and a later cell may have the same.
_MOST = 64
_programs: dict[Hashable, jax.stages.Compiled] = {}


def compiled(
  lowered: jax.stages.Lowered,
  inputs: Any,
  options: dict[str, Any] | None = None,
) -> jax.stages.Compiled:
  """Compiles a program, or returns the one compiled before; in any thread.

  Args:
    lowered: from a function that keeps unused inputs. Without them, two
      functions of different inputs could have the same text.
    inputs: the function's inputs, arrays or their shapes.
    options: the compiler's options.
  """
  key = _key(lowered, inputs, options)
  program = _programs.pop(key, None)
  if program is None:
    program = lowered.compile(compiler_options=options)
    _return_memory()
  if key is not None:
    _programs[key] = program
  for old_key in list(_programs)[:-_MOST]:  # Other threads may remove some.
    _programs.pop(old_key, None)
  return program


def _return_memory() -> None:
  """Gives memory that a compilation has freed back to the system (glibc).

  XLA compiles in many threads. Each has a heap of its own, and glibc keeps the
  memory that is freed in it. So a process that compiles again and again would
  grow.
  """
  with contextlib.suppress(OSError, AttributeError):  # Not glibc.
    ctypes.CDLL(None).malloc_trim(0)


_MAIN = re.compile(r"@main\((.*)\) -> ")


def _key(lowered, inputs, options):
  """The key of a program; None if its text does not tell it from others.

  It does not if the program calls back Python functions, which its text names
  only by a number, or if it takes arrays beside its inputs.
  """
  text, args = lowered.as_text(), jax.tree.leaves(lowered.args_info)
  main = _MAIN.search(text)
  if main is None or "callback" in text:
    return None
  if len(re.findall(r"%arg\d+: ", main.group(1))) != len(args):
    return None
  return (
    hashlib.sha256(text.encode()).digest(),
    (lowered.in_tree, *args),
    (lowered.out_tree, *jax.tree.leaves(lowered.out_info)),
    tuple(getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(inputs)),
    (jax.config.jax_default_device, *target.devices()),
    repr(options),
  )


def num_compiled() -> int:
  """The number of programs that are kept."""
  return len(_programs)


def clear() -> None:
  """Forgets all programs."""
  _programs.clear()


# XLA's number of O1, the level that compiles fast.
_LEVEL_1 = 19


def large_options() -> dict[str, int] | None:
  """The options to compile rounds and evaluation with; None for JAX's own.

  A TPU's compiler takes a minute for the rounds of ResNet-18. At level 1 it
  takes less than half of that, and the program has as many FLOPs and reads and
  writes fewer bytes (docs/compiled.md). JAX_OPTIMIZATION_LEVEL=O3 asks for
  full optimization.
  """
  is_chosen = getattr(jax.config, "jax_optimization_level", "O3") != "UNKNOWN"
  if is_chosen or target.platform() != "tpu":
    return None
  return {"optimization_level": _LEVEL_1}


def quickly_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
  """As `jax.jit`, for a program that compiles quickly and runs once.

  On CPU an initial model then compiles in a quarter of the time, and has the
  same bits; at level 0 it has other ones. Other backends have no such option.
  """
  jitted = jax.jit(function, keep_unused=True)

  def run(*inputs):
    is_cpu = target.platform() == "cpu"
    options = {"xla_backend_optimization_level": "1"} if is_cpu else None
    return compiled(jitted.lower(*inputs), inputs, options)(*inputs)

  return run


def map_arrays(function: Callable[..., Any], tree: Any, *arguments: int) -> Any:
  """A function of every leaf; NumPy arrays stay on the host.

  One program computes it for all arrays on devices: it compiles faster than a
  program for each shape.

  Args:
    function: `(array, *arguments) -> array`, the same object in each call.
    tree: a tree of arrays.
    *arguments: to `function`.
  """
  leaves, structure = jax.tree.flatten(tree)
  is_host = [isinstance(leaf, np.ndarray) for leaf in leaves]
  on_device = [x for x, host in zip(leaves, is_host, strict=True) if not host]
  mapped = iter(_mapped_on_devices(function, arguments, on_device))
  return structure.unflatten(
    function(leaf, *arguments) if host else next(mapped)
    for leaf, host in zip(leaves, is_host, strict=True)
  )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _mapped_on_devices(fn, args, leaves):
  return [fn(leaf, *args) for leaf in leaves]


def copies(tree: Any) -> Any:
  """The same arrays in buffers of their own, on the devices or the host."""
  return map_arrays(_copy, tree)


def _copy(array):
  return array.copy() if isinstance(array, np.ndarray) else jnp.array(array)
