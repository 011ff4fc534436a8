"""How much a compiler does for programs that run once, and for large ones."""

import collections
import threading
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import target
from fedjax_opt.identity import key_of

# So many functions keep what was compiled of them.
_KEPT = 64
_jitted: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
_lock = threading.Lock()


def run_once(fn: Callable[..., Any]) -> Callable[..., Any]:
  """As `jax.jit`, with little effort to make the program fast.

  On CPU an initial model then compiles in a quarter of the time. Its bits are
  the same; at level 0 they are not. Other backends know no such option. What
  was compiled of the same function before, see `identity`, is taken again.
  """
  options = None
  if jax.default_backend() == "cpu":
    options = {"xla_backend_optimization_level": "1"}
  about, held = key_of(fn)
  key = about, options is None
  with _lock:
    if key not in _jitted:
      _jitted[key] = jax.jit(fn, compiler_options=options), held
      if len(_jitted) > _KEPT:
        _jitted.popitem(last=False)
    _jitted.move_to_end(key)
    return _jitted[key][0]


# XLA's number of O1, the level that compiles fast.
_LEVEL_1 = 19


def of_large_programs() -> dict[str, int] | None:
  """The options to compile rounds and evaluation with; None for JAX's own.

  A TPU's compiler takes a minute for the rounds of ResNet-18. At level 1 it
  takes less than half of that, for as many FLOPs and fewer bytes read and
  written (docs/accelerators.md). JAX_OPTIMIZATION_LEVEL=O3 asks for all that it
  can do.
  """
  is_chosen = getattr(jax.config, "jax_optimization_level", "O3") != "UNKNOWN"
  if is_chosen or target.platform() != "tpu":
    return None
  return {"optimization_level": _LEVEL_1}


def clear() -> None:
  """Forgets all of them, and the arrays that they hold."""
  with _lock:
    _jitted.clear()


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
