"""Whether two functions give the same program.

Each call of `fed_avg(loss_fn, optax.sgd(0.1))` makes new function objects, of
the same code. Two functions are the same here if their code, defaults, closures
and the globals that they read are the same.
"""

import collections
import dataclasses
import functools
import hashlib
import inspect
import pathlib
import sys
import sysconfig
import types
from collections.abc import Hashable
from typing import Any

import jax
import numpy as np

_PACKAGE = pathlib.Path(__file__).parent
_STANDARD = pathlib.Path(sysconfig.get_path("stdlib"))
# Arrays of JAX up to this size are compared by their content, larger ones by
# identity, as they do not change; so are NumPy's of more than these bytes.
_SMALL = 10_000
_LARGE = 1 << 26
# Of these packages objects are not changed once they are made.
_UNCHANGED = ("fedjax_opt", "flax", "jax", "jaxlib", "numpy", "optax")
_COMPILERS = ("jax", "jaxlib", "numpy")
# What refers to more objects than this is never the same.
_MANY = 10_000


def key_of(value: Any) -> tuple[Hashable, list[Any]]:
  """A key that is equal for values that give the same program.

  Args:
    value: a function, algorithm, setting, or a structure of them.

  Returns:
    The key, and the objects that must live as long as it is used, because it
    contains the `id` of some of them.
  """
  seen = _Seen()
  try:
    key = _key(value, seen)
  except RecursionError:
    key = object()
  return key, [value for _, value in seen.values()]


def digest_of(value: Any) -> str:
  """A digest that two processes give alike, for a run that is resumed.

  What `key_of` compares by identity counts here by its name or content, and
  what cannot be read by its type alone.

  Args:
    value: a function, algorithm, setting, or a structure of them.
  """
  seen = _Digests()
  try:
    return seen.of(_key(value, seen))
  except RecursionError:
    return "unknown"


class _Seen(dict):
  """id -> (number, object), of what was looked at."""

  is_digest = False

  def again(self, value: Any) -> Hashable:
    """The key of what was seen before, such as a function that reads itself."""
    return "seen", self[id(value)][0]

  def done(self, value: Any, key: Hashable) -> Hashable:
    """The key of what was looked at to its end."""
    del value
    return key


class _Digests(_Seen):
  """Digests in place of keys: equal objects have one, whether shared or not."""

  is_digest = True

  def __init__(self):
    super().__init__()
    self._done: dict[int, str] = {}

  def again(self, value: Any) -> Hashable:
    return self._done.get(id(value), "itself")

  def done(self, value: Any, key: Hashable) -> Hashable:
    self._done[id(value)] = self.of(key)
    return self._done[id(value)]

  def of(self, key: Hashable) -> str:
    """The digest of a key whose parts are digests."""
    return hashlib.sha256(repr(self._stable(key)).encode()).hexdigest()[:32]

  def _stable(self, key: Hashable) -> Any:
    if isinstance(key, tuple):
      if len(key) == 2 and key[0] == "id":
        return self._described(self[key[1]][1])
      return tuple(map(self._stable, key))
    if isinstance(key, frozenset):  # Their order differs between processes.
      return sorted(repr(self._stable(item)) for item in key)
    if isinstance(key, type) or type(key) is object:
      return self._described(key)
    return key

  def _described(self, value: Any) -> Any:
    """An object by its content, if it is an array; or else by its name."""
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(
      value.dtype, jax.dtypes.prng_key
    ):
      value = jax.random.key_data(value)
    if isinstance(value, np.ndarray | jax.Array) and value.dtype != object:
      array = np.asarray(value)
      content = hashlib.sha256(
        np.ascontiguousarray(array).reshape(-1).view(np.uint8)
      )
      return str(array.dtype), array.shape, content.hexdigest()
    named = value if hasattr(value, "__name__") else type(value)
    module = getattr(named, "__module__", None)
    return module, getattr(named, "__qualname__", named.__name__)


def _key(value: Any, seen: _Seen) -> Hashable:
  if value is None or isinstance(value, str | bytes | bool):
    return value
  if isinstance(value, int | float | complex):
    return type(value), repr(value)
  if isinstance(value, type) and _is_librarys(value):
    return value
  if id(value) in seen:
    return seen.again(value)
  if len(seen) >= _MANY:
    return object()
  seen[id(value)] = len(seen), value  # Held, so that its id stays its own.
  return seen.done(value, _key_of_new(value, seen))


def _key_of_new(value, seen):
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
  if isinstance(value, set | frozenset):
    return type(value), frozenset(_key(item, seen) for item in value)
  if isinstance(value, dict):
    items = ((_key(k, seen), _key(v, seen)) for k, v in value.items())
    return type(value), *items
  if isinstance(value, np.ndarray | np.generic | jax.Array):
    return _key_of_array(value)
  if _is_of_fields(value):
    fields = (field.name for field in dataclasses.fields(value))
    values = ((name, _key(getattr(value, name), seen)) for name in fields)
    return _key(type(value), seen), *values
  if isinstance(value, staticmethod | classmethod):
    return type(value), _key(value.__func__, seen)
  if isinstance(value, property):
    return type(value), _key(value.fget, seen)
  if isinstance(value, types.CodeType):
    consts = tuple(_key(const, seen) for const in value.co_consts)
    counts = (value.co_argcount, value.co_posonlyargcount, value.co_flags)
    names = (value.co_names, value.co_varnames, value.co_kwonlyargcount)
    return value.co_code, consts, *names, *counts
  if not _can_be_read(value):
    return object()  # Equal to no other: it may have been changed.
  return _same(value), *_attributes_of(value, seen)


def _attributes_of(value, seen):
  """What an object, or a class of a user, holds; it may have been changed."""
  kind = value if isinstance(value, type) else type(value)
  is_class = value is kind
  # Some of these remember what they were used for.
  if seen.is_digest and kind.__module__.partition(".")[0] in _COMPILERS:
    return
  if isinstance(value, types.ModuleType) or (is_class and _is_librarys(kind)):
    return
  for name, held in sorted(getattr(value, "__dict__", {}).items()):
    if name == "_jit_info":  # As of `jax.nn.relu`; `__wrapped__` says it too.
      continue
    is_method = isinstance(held, types.FunctionType)
    if not is_class or is_method or not name.startswith(("__", "_abc_")):
      yield name, _key(held, seen)
  # Its methods, and what they read.
  for own in kind.__bases__ if is_class else (kind,):
    yield _key(own, seen)


# What holds nothing that could be changed, although it cannot be read.
_PLAIN = (
  types.BuiltinFunctionType,
  types.MethodDescriptorType,
  types.WrapperDescriptorType,
  types.MethodWrapperType,
  types.GetSetDescriptorType,
  types.EllipsisType,
  types.GenericAlias,
  types.UnionType,
  inspect.Signature,
  type(collections.namedtuple("Tuple", "field").field),
)


def _can_be_read(value):
  """Whether all that an object holds is in its `__dict__`."""
  if isinstance(value, (type, *_PLAIN)) or type(value) is object:
    return True
  if isinstance(value, types.ModuleType):
    return _is_installed(getattr(value, "__file__", None))
  kind = type(value)
  if kind.__module__.partition(".")[0] in _UNCHANGED:
    return True
  has_slots = any(vars(base).get("__slots__") for base in kind.__mro__)
  return hasattr(value, "__dict__") and not has_slots


def _is_of_fields(value):
  """Whether the fields of an object say all: frozen, or a model of flax."""
  if isinstance(value, type) or not dataclasses.is_dataclass(value):
    return False
  kinds = type(value).__mro__
  is_flax = any(kind.__module__.startswith("flax.") for kind in kinds)
  return is_flax or value.__dataclass_params__.frozen


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
    _key(function.__dict__, seen),
    *_globals_of(function, seen),
  )


def _globals_of(function, seen):
  """The globals that a function of a user, or one inside it, may read."""
  if _is_installed(function.__code__.co_filename):
    return
  found = function.__globals__
  for name in sorted(_names(function.__code__)):
    if name not in found:
      if not _is_installed(getattr(sys.modules.get(name), "__file__", None)):
        yield object()  # A module of a user that the function imports.
      continue
    value = found[name]
    if not isinstance(value, types.ModuleType):
      yield name, _key(value, seen)
      continue
    # Of a module what may be read, such as of a module of settings; of a
    # library that are numbers alone.
    seen[id(value)] = len(seen), value
    yield name, _same(value)
    is_users = not _is_installed(getattr(value, "__file__", None))
    for attribute in sorted(_names(function.__code__)):
      held = getattr(value, attribute, None)
      if is_users or isinstance(held, int | float | str | tuple):
        yield name, attribute, _key(held, seen)


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


def _same(value):
  """The key of an object that is equal to itself alone, and is in `seen`."""
  return "id", id(value)


def _key_of_array(value):
  is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended)
  is_tracer = isinstance(value, jax.core.Tracer)
  if is_key or is_tracer or value.dtype == object:
    return _same(value)
  if isinstance(value, jax.Array) and value.size > _SMALL:
    return _same(value)
  array = np.asarray(value)
  if array.nbytes > _LARGE:
    return _same(value)
  content = hashlib.blake2b(np.ascontiguousarray(array)).digest()
  return array.dtype.str, array.shape, content
