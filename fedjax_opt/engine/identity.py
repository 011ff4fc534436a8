"""When two functions are the same, for programs that were compiled before.

A user who runs a line twice makes new functions of the same code: `fed_avg(
loss_fn, optax.sgd(0.1))` is never the object that it was. They are the same
here if their code, defaults, closures and the globals that they read are.
"""

import dataclasses
import functools
import pathlib
import types
from collections.abc import Hashable
from typing import Any

import jax
import numpy as np

_PACKAGE = pathlib.Path(__file__).parents[1]
# Arrays up to this size are compared by their content, larger ones by identity.
_SMALL = 10_000


def key_of(value: Any) -> tuple[Hashable, list[Any]]:
  """What is equal for values that give the same program.

  Args:
    value: a function, algorithm, setting, or a structure of them.

  Returns:
    The key, and objects that are to be held as long as it is used: it has the
    `id` of those that are equal to themselves alone.
  """
  seen = {}
  key = _key(value, seen)
  return key, [held for _, held in seen.values()]


def _key(value: Any, seen: dict[int, tuple[int, Any]]) -> Hashable:
  if value is None or isinstance(value, str | bytes | bool | type):
    return value
  if isinstance(value, int | float | complex):
    return type(value), repr(value)
  if id(value) in seen:  # Such as a function that reads itself.
    return "seen", seen[id(value)][0]
  seen[id(value)] = len(seen), value  # Held, so that its id stays its own.
  if isinstance(value, types.FunctionType):
    return _key_of_function(value, seen)
  if isinstance(value, types.MethodType):
    return _key(value.__func__, seen), _key(value.__self__, seen)
  if isinstance(value, functools.partial):
    parts = (value.func, value.args, value.keywords)
    return "partial", *(_key(part, seen) for part in parts)
  if type(value).__name__ == "PjitFunction":  # What `jax.jit` gives.
    return "jit", _key(value.__wrapped__, seen)
  if isinstance(value, tuple | list):
    return type(value), *(_key(item, seen) for item in value)
  if isinstance(value, dict):
    items = ((_key(k, seen), _key(v, seen)) for k, v in value.items())
    return type(value), *items
  if isinstance(value, np.ndarray | np.generic | jax.Array):
    return _key_of_array(value)
  if dataclasses.is_dataclass(value) and value.__dataclass_params__.frozen:
    fields = (field.name for field in dataclasses.fields(value))
    values = ((name, _key(getattr(value, name), seen)) for name in fields)
    return type(value), *values
  if isinstance(value, types.CodeType):
    consts = tuple(_key(const, seen) for const in value.co_consts)
    return value.co_code, consts, value.co_names, value.co_varnames
  return _same(value)


def _key_of_function(function, seen):
  cells = []
  for cell in function.__closure__ or ():
    try:
      cells.append(_key(cell.cell_contents, seen))
    except ValueError:  # Not assigned yet.
      cells.append("empty")
  return (
    "function",
    _key(function.__code__, seen),
    _key(function.__defaults__, seen),
    _key(function.__kwdefaults__, seen),
    *cells,
    *_globals_of(function, seen),
  )


def _globals_of(function, seen):
  """The globals that a function of a user, or one inside it, may read."""
  if _is_installed(function.__code__.co_filename):
    return
  found = function.__globals__
  for name in sorted(_names(function.__code__)):
    if name not in found:
      continue
    value = found[name]
    if not isinstance(value, types.ModuleType):
      yield name, _key(value, seen)
      continue
    # Of a module the numbers that it holds, such as a module of settings; its
    # functions do not change.
    seen[id(value)] = len(seen), value
    yield name, _same(value)
    for attribute in sorted(_names(function.__code__)):
      plain = getattr(value, attribute, None)
      if isinstance(plain, int | float | str | tuple):
        yield name, attribute, _key(plain, seen)


@functools.cache
def _is_installed(filename):
  """Whether a file is a library's, whose globals do not change."""
  path = pathlib.Path(filename)
  return "site-packages" in path.parts or _PACKAGE in path.parents


def _names(code):
  inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
  return {*code.co_names}.union(*map(_names, inner))


def _same(value):
  """The key of an object that is equal to itself alone, and is in `seen`."""
  return "id", id(value)


def _key_of_array(value):
  is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended)
  if is_key or value.size > _SMALL or isinstance(value, jax.core.Tracer):
    return _same(value)
  array = np.asarray(value)
  return array.dtype.str, array.shape, array.tobytes()
