"""Compilation of programs that run once."""

import collections
import threading
from collections.abc import Callable, Hashable
from typing import Any

import jax

from fedjax_opt.engine.identity import key_of

# So many functions keep what was compiled of them.
_KEPT = 64
_jitted: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
_lock = threading.Lock()


def run_once(fn: Callable[..., Any]) -> Callable[..., Any]:
  """As `jax.jit`, with little effort to make the program fast.

  On CPU an initial model then compiles in a quarter of the time. Its bits are
  the same; at level 0 they are not. Other backends know no such option.
  What was compiled of the same function before, see `identity`, is taken again.
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


def clear() -> None:
  """Forgets all of them, and the arrays that they hold."""
  with _lock:
    _jitted.clear()
