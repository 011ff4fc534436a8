"""Compilation of programs that run once."""

from collections.abc import Callable
from typing import Any

import jax


def run_once(fn: Callable[..., Any]) -> Callable[..., Any]:
  """As `jax.jit`, with little effort to make the program fast.

  On CPU that halves the time to compile it; other backends know no such option.
  """
  options = None
  if jax.default_backend() == "cpu":
    options = {"xla_backend_optimization_level": "0"}
  return jax.jit(fn, compiler_options=options)
