"""Checks of what callers give, each answered with one clear line."""

import numbers
from typing import Any

import numpy as np


def shown(value: Any, limit: int = 60) -> str:
  """A value as a message shows it: short, on one line."""
  if callable(value) and hasattr(value, "__name__"):
    module = getattr(value, "__module__", "") or ""
    root = module.split(".")[0]
    prefix = f"{root}." if root not in ("", "builtins", "__main__") else ""
    return f"the function {prefix}{value.__name__}"
  if isinstance(value, str | numbers.Number | bool | None):
    return repr(value)
  text = " ".join(repr(value).split())
  if len(text) > limit or hasattr(value, "shape"):
    shape = f" of shape {np.shape(value)}" if hasattr(value, "shape") else ""
    return f"a {type(value).__name__}{shape}"
  return text


def whole(name: str, value: Any) -> None:
  """Raises TypeError if a value is no whole number."""
  is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
  if not is_whole:
    raise TypeError(f"{name}={shown(value)}: must be a whole number")


def at_least(name: str, value: Any, least: int) -> None:
  """Raises an error if a value is no whole number, or too small."""
  whole(name, value)
  if value < least:
    raise ValueError(
      f"{name}={value}: must not be negative"
      if least == 0
      else f"{name}={value}: must be at least {least}"
    )


def number(name: str, value: Any) -> None:
  """Raises TypeError if a value is no real number."""
  is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
  if not is_real:
    raise TypeError(f"{name}={shown(value)}: must be a number")


def switch(name: str, value: Any) -> None:
  """Raises TypeError if a value is neither True nor False."""
  if not isinstance(value, bool | np.bool_):
    raise TypeError(f"{name}={shown(value)}: must be True or False")


def names(name: str, values: Any) -> None:
  """Raises TypeError if the values are not strings in a list or tuple."""
  is_list = isinstance(values, list | tuple)
  if not is_list or not all(isinstance(value, str) for value in values):
    hint = f'; write {name}=("{values}",)' if isinstance(values, str) else ""
    raise TypeError(
      f"{name}={shown(values)}: must be a list or tuple of names{hint}"
    )


def optional_function(name: str, value: Any, form: str) -> None:
  """Raises TypeError if a value is neither None nor callable."""
  if value is not None and not callable(value):
    raise TypeError(f"{name}={shown(value)}: must be a function {form}")
