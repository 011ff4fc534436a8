"""A digest of an algorithm, which tells another one when a run is resumed.

Each call of `fed_avg(loss_fn, optax.sgd(0.1))` makes new function objects, of
the same code. Two functions have one digest if their code, defaults, closures
and the globals that they read have; objects if what they hold has, and arrays
if their content is the same. So two processes give the same digest.
"""

import dataclasses
import functools
import hashlib
import pathlib
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

_PACKAGE = pathlib.Path(__file__).parent
_STANDARD = pathlib.Path(sysconfig.get_path("stdlib"))
# Some objects of these packages remember what they were used for.
_COMPILERS = ("jax", "jaxlib", "numpy")
# Of further objects the type alone counts.
_MANY = 10_000


def digest_of(value: Any) -> str:
  """A digest that two processes give alike.

  What cannot be read counts by its type alone.

  Args:
    value: a function, algorithm, setting, or a structure of them.
  """
  try:
    return _Digests().of(value)
  except RecursionError:
    return "unknown"


class _Digests:
  """The digests of all objects that one refers to."""

  def __init__(self):
    self._done: dict[int, str] = {}
    self._held = []  # So that an id stays its object's.

  def of(self, value: Any) -> str:
    """The digest of an object."""
    # Schedules of optax turn whole numbers of theirs into floats as they run.
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and abs(value) < 1 << 53:
      value = float(value)
    if value is None or isinstance(value, str | bytes | int | float | complex):
      return f"{type(value).__name__} {value!r}"
    if id(value) in self._done:
      return self._done[id(value)]
    if len(self._held) >= _MANY:
      return _name(value)
    self._held.append(value)
    self._done[id(value)] = "itself"  # As a function may read itself.
    content = repr([_name(type(value)), *self._parts(value)]).encode()
    self._done[id(value)] = hashlib.sha256(content).hexdigest()[:32]
    return self._done[id(value)]

  def _parts(self, value: Any) -> Iterator[str]:
    """What an object holds."""
    if isinstance(value, types.FunctionType):
      yield from self._of_function(value)
    elif isinstance(value, types.CodeType):
      counts = (value.co_argcount, value.co_posonlyargcount, value.co_flags)
      names = (value.co_names, value.co_varnames, value.co_kwonlyargcount)
      yield repr((value.co_code, *counts, *names))
      yield from map(self.of, value.co_consts)
    elif isinstance(value, set | frozenset):  # Processes order them otherwise.
      yield from sorted(map(self.of, value))
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
      yield _content(value)
    else:
      yield _name(value)
      yield from map(self.of, _held_by(value))

  def _of_function(self, function):
    """Its code, and all that this reads."""
    cells = []
    for cell in function.__closure__ or ():
      try:
        cells.append(cell.cell_contents)
      except ValueError:  # Not assigned yet.
        cells.append("empty")
    more = (function.__defaults__, function.__kwdefaults__, function.__dict__)
    yield from map(self.of, (function.__code__, *more, *cells))
    if _is_installed(function.__code__.co_filename):
      return
    names = sorted(_names(function.__code__))
    for name in names:
      value = function.__globals__.get(name)
      if not isinstance(value, types.ModuleType):
        yield f"{name} {self.of(value)}"
        continue
      yield f"{name} {value.__name__}"
      # Of a module of settings what may be read; of a library numbers alone.
      is_users = not _is_installed(getattr(value, "__file__", None))
      for attribute in names:
        held = getattr(value, attribute, None)
        if is_users or isinstance(held, int | float | str | tuple):
          yield f"{name}.{attribute} {self.of(held)}"


def _held_by(value):
  """The objects that one refers to, where that can be read."""
  kind = value if isinstance(value, type) else type(value)
  if isinstance(value, functools.partial):
    return (value.func, value.args, value.keywords)
  if isinstance(value, types.MethodType):
    return (value.__func__, value.__self__)
  if isinstance(value, staticmethod | classmethod):
    return (value.__func__,)
  if isinstance(value, property):
    return (value.fget,)
  if type(value).__name__ == "PjitFunction":  # What `jax.jit` gives.
    return (value.__wrapped__,)
  if isinstance(value, tuple | list):
    return value
  if isinstance(value, dict):
    return [each for item in value.items() for each in item]
  if _is_of_fields(value):
    fields = [field.name for field in dataclasses.fields(value)]
    return (kind, *(getattr(value, name) for name in fields))
  if kind.__module__.partition(".")[0] in _COMPILERS:
    return ()
  if isinstance(value, types.ModuleType):
    return ()
  if value is kind:
    return () if _is_librarys(kind) else _of_class(kind)
  if any(vars(base).get("__slots__") for base in kind.__mro__):
    return ()
  items = sorted(getattr(value, "__dict__", {}).items())
  return (*(each for item in items for each in item), kind)


def _of_class(kind):
  """What a class of a user holds: methods, what they read, and attributes."""
  held = [
    (name, each)
    for name, each in sorted(vars(kind).items())
    if isinstance(each, types.FunctionType)
    or not name.startswith(("__", "_abc_"))
  ]
  return (*(each for item in held for each in item), *kind.__bases__)


def _is_of_fields(value):
  """Whether the fields of an object say all: frozen, or a model of flax."""
  if isinstance(value, type) or not dataclasses.is_dataclass(value):
    return False
  kinds = type(value).__mro__
  is_flax = any(kind.__module__.startswith("flax.") for kind in kinds)
  return is_flax or value.__dataclass_params__.frozen


def _content(array):
  """The type, shape and content of an array."""
  if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
    array = jax.random.key_data(array)
  if isinstance(array, jax.core.Tracer) or array.dtype == object:
    return _name(type(array))
  array = np.ascontiguousarray(array)
  content = hashlib.sha256(array.reshape(-1).view(np.uint8)).hexdigest()
  return f"{array.dtype} {array.shape} {content}"


def _name(value):
  """The name of a class, function or module; of another object its class's."""
  named = value if hasattr(value, "__name__") else type(value)
  name = getattr(named, "__qualname__", None) or named.__name__
  return f"{getattr(named, '__module__', None)} {name}"


@functools.cache
def _is_installed(filename):
  """Whether a file is a library's, whose globals do not change."""
  if filename is None:  # Built in.
    return True
  path = pathlib.Path(filename)
  ours = _PACKAGE in path.parents or _STANDARD in path.parents
  return ours or "site-packages" in path.parts


def _is_librarys(kind):
  """Whether a class is of a library."""
  if kind.__module__ == "__main__":
    return False
  module = sys.modules.get(kind.__module__)
  return _is_installed(getattr(module, "__file__", None))


def _names(code):
  inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
  return {*code.co_names}.union(*map(_names, inner))
