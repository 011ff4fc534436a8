"""Checks of values that callers give; each refusal is one clear line."""

import difflib
import functools
import inspect
import numbers
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax

# The largest number of rounds and steps: the program counts in 32 bits.
MAX_INT32 = (1 << 31) - 1
# The longest text of a value in a message, in characters; of a list, its
# entries.
_BRIEF = 60
# A name is not suggested if its likeness is this much below the nearest one's.
_LIKENESS_GAP = 0.25


def brief(value: Any) -> str:
  """A value as a message shows it: short, on one line."""
  if isinstance(value, str | bytes | numbers.Number | bool | None):
    text = repr(value)
    return text if len(text) <= _BRIEF else f"{text[:_BRIEF]}..."
  if hasattr(value, "shape") and hasattr(value, "dtype"):
    return f"an array {form(value)}"
  if isinstance(value, optax.GradientTransformation):
    return "an optimizer"
  if isinstance(value, functools.partial):
    return f"a partial of {brief(value.func).removeprefix('the function ')}"
  if isinstance(value, type):
    return f"the class {value.__name__}"
  if callable(value) and hasattr(value, "__name__"):
    module = getattr(value, "__module__", "") or ""
    root = module.split(".")[0]
    prefix = f"{root}." if root in ("optax", "fedjax_opt", "jax") else ""
    return f"the function {prefix}{value.__name__}"
  if isinstance(value, list | tuple | dict | set) and len(value) > _BRIEF:
    return f"a {type(value).__name__} of {len(value)}"
  try:
    is_table = hasattr(value, "iloc")  # Of pandas.
    text = "<" if is_table else " ".join(repr(value).split())
  except Exception:  # Such as a tree of deleted arrays.
    text = "<"
  if len(text) > _BRIEF or text.startswith("<"):
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeio' else 'a'} {name}"
  return text


def form(leaf: Any) -> str:
  """The type and shape of an array, such as float32[4, 3]."""
  dtype = leaf.dtype if hasattr(leaf, "dtype") else np.result_type(leaf)
  return f"{dtype}{list(np.shape(leaf))}"


def check_integer(name: str, value: Any) -> None:
  """Raises TypeError if a value is no whole number."""
  is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
  if not is_whole:
    raise TypeError(f"{name}={brief(value)}: must be a whole number")


def check_at_least(
  name: str, value: Any, least: int, most: int | None = MAX_INT32
) -> None:
  """Raises an error if a value is no whole number, too small or too large."""
  check_integer(name, value)
  if value < least:
    raise ValueError(
      f"{name}={value}: must not be negative"
      if least == 0
      else f"{name}={value}: must be at least {least}"
    )
  if most is not None and value > most:
    raise ValueError(f"{name}={brief(value)}: must be at most {most}")


def is_real(value: Any) -> bool:
  """Whether a value is a real number, and neither True nor False."""
  return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_in_interval(
  name: str,
  value: Any,
  interval: str,
  wanted: str = "a number",
  words: str = "",
) -> None:
  """Checks that a hyperparameter is a scalar in an interval like "[0, inf)".

  Args:
    name: of the argument.
    value: given for it.
    interval: of the numbers accepted.
    wanted: what it must be, for the message if it is no number.
    words: the interval in words, for the message.

  Raises:
    TypeError: if it is no scalar number.
    ValueError: if it is outside the interval. Traced numbers are not checked.
  """
  check_plain_array(name, value)
  is_array = hasattr(value, "shape") and hasattr(value, "dtype")
  if is_array and np.shape(value) == ():
    if isinstance(value, jax.core.Tracer):
      return
    value = np.asarray(value).item()
  if not is_real(value):
    raise TypeError(f"{name}={brief(value)}: must be {wanted}")
  if isinstance(value, int) and abs(value) > MAX_INT32:
    raise ValueError(
      f"{name}={brief(value)}: does not fit into 32 bits; write a float, such "
      "as 1e+12"
    )
  if not is_in(value, interval):
    accepted = words or in_words(interval, value)
    raise ValueError(f"{name}={float(value):g}: must be {accepted}")


def check_fits_float(name: str, value: Any) -> None:
  """Raises ValueError if JAX would turn a number into 0 or infinity."""
  limits = jax.numpy.finfo(jax.dtypes.canonicalize_dtype(float))
  low, high, size = float(limits.tiny), float(limits.max), abs(value)
  if 0 < size < low or high < size < float("inf"):
    raise ValueError(
      f"{name}={value:g}: must be 0, or from {low:.2g} to {high:.2g} in size, "
      f"which is what {limits.dtype} can hold"
    )


def is_in(value: Any, interval: str) -> Any:
  """Whether a number, or each of an array, is in an interval; NaN never is."""
  low, high = (float(end) for end in interval[1:-1].split(","))
  is_above = value >= low if interval[0] == "[" else value > low
  is_below = value <= high if interval[-1] == "]" else value < high
  return is_above & is_below


def in_words(interval: str, value: Any = 0) -> str:
  """An interval for people: "above 0" for (0, inf).

  Args:
    interval: such as "[0, 1)", which stays as it is: in [0, 1).
    value: number that is outside, if the words are for a refusal. Of a number
      that is not finite they say that it must be.
  """
  low, high = interval[1:-1].split(", ")
  if high != "inf" or interval[-1] == "]":
    return f"in {interval}"
  if low == "-inf":
    return "finite"
  words = f"{low} or more" if interval[0] == "[" else f"above {low}"
  return words if np.isfinite(value) else f"{words}, and finite"


def check_switch(name: str, value: Any) -> None:
  """Raises TypeError if a value is neither True nor False."""
  if not isinstance(value, bool | np.bool_):
    raise TypeError(f"{name}={brief(value)}: must be True or False")


def check_choice(
  name: str, value: Any, accepted: Iterable[str], listing: str | None = None
) -> None:
  """Raises an error if a value is not one of these words.

  Args:
    name: name of the argument or flag.
    value: value to be checked.
    accepted: all values allowed.
    listing: where the values are listed, such as "the tasks that --help lists",
      if they are too many for one line. The message then names only the
      nearest.
  """
  accepted = list(accepted)
  if not isinstance(value, str):
    raise TypeError(
      f"{name}={brief(value)}: must be one of {', '.join(accepted)}"
    )
  if value in accepted:
    return
  near = nearest(value, accepted, 3 if listing else 1)
  hint = f"; did you mean {listed(near, 'or')}?" if near else ""
  wanted = listing or ", ".join(accepted)
  raise ValueError(f"{name}={value!r}: must be one of {wanted}{hint}")


def listed(names: Sequence[str], last: str = "and") -> str:
  """'a', 'a and b' or 'a, b and c'; or with another word before the last."""
  if len(names) < 2:
    return "".join(names)
  return f"{', '.join(names[:-1])} {last} {names[-1]}"


def nearest(name: str, known: Iterable[str], most: int = 1) -> list[str]:
  """The names that were probably meant, the nearest first.

  Case, dashes and underscores do not matter: SCAFFOLD is scaffold. Names that
  begin with the name come before those that are only alike.
  """
  plain = lambda text: re.sub(r"[^a-z0-9]", "", text.lower())
  wanted, by_plain = plain(name), {}
  for known_name in known:
    by_plain.setdefault(plain(known_name), known_name)
  if wanted in by_plain:
    return [by_plain[wanted]]
  ratio = lambda n: difflib.SequenceMatcher(None, n, wanted).ratio()
  longer = [n for n in by_plain if wanted and n.startswith(wanted)]
  longer.sort(key=ratio, reverse=True)
  matches = difflib.get_close_matches(wanted, by_plain, most)
  matches = [n for n in matches if ratio(n) > ratio(matches[0]) - _LIKENESS_GAP]
  return [by_plain[key] for key in dict.fromkeys([*longer, *matches])][:most]


def checked_array(
  name: str,
  value: Any,
  axes: str,
  *,
  of_integers: bool = False,
  interval: str = "[-inf, inf]",
) -> np.ndarray:
  """A value as an array of real numbers.

  Args:
    name: of the argument.
    value: given for it: an array, or (lists of) numbers.
    axes: its shape, such as "[M, C]", in which a number is a length that must
      be met, "[M, 3]", and "..." any further axes, "[M, ...]".
    of_integers: whether its type must be one of integers; an empty array may
      be of any type.
    interval: of the numbers accepted, which never contains NaN. NaN is refused
      only if the interval has an end.

  Raises:
    TypeError: if it is no array of such numbers.
    ValueError: if its shape is wrong, or naming the first number outside.
  """
  wanted = f"{'whole ' * of_integers}numbers of shape {axes}"
  result = as_array(name, value, wanted)
  is_traced = isinstance(value, jax.core.Tracer)
  result = result if is_traced else np.asarray(result)
  if result.dtype.kind not in ("iu" if of_integers and result.size else "iuf"):
    raise TypeError(f"{name}={brief(value)}: must be {wanted}")
  lengths = re.findall(r"\w+", axes)
  has_too_few = len(lengths) < result.ndim and "..." not in axes
  if (
    has_too_few
    or len(lengths) > result.ndim
    or any(
      length.isdigit() and int(length) != size
      for length, size in zip(lengths, result.shape, strict=False)
    )
  ):
    raise ValueError(f"{name}: is {form(result)}; must be {wanted}")
  if interval != "[-inf, inf]" and not is_traced:
    outside = result[np.logical_not(is_in(result, interval))]
    if outside.size:
      accepted = in_words(interval, outside[0])
      raise ValueError(f"{name}: has {outside[0]}; must be {accepted}")
  return result


def as_array(
  name: str,
  value: Any,
  wanted: str,
  any_order: bool = False,
) -> Any:
  """An array as it is, also a traced one, or (lists of) numbers as an array.

  Args:
    name: of the argument.
    value: given for it.
    wanted: what it must be, for the message.
    any_order: see `check_plain_array`.

  Raises:
    TypeError: if it is something else, see `check_plain_array`.
  """
  check_plain_array(name, value, any_order)
  if hasattr(value, "dtype"):
    return value
  try:
    result = np.asarray(value)
  except ValueError:  # Rows of different lengths.
    result = np.array(None)
  if result.dtype.kind not in "biufcV":
    raise TypeError(f"{name}={brief(value)}: must be {wanted}")
  return result


def check_real_array(name: str, value: Any) -> None:
  """Checks that a value is an array or lists of real numbers, also traced."""
  wanted = "an array of real numbers"
  converted = as_array(name, value, wanted)
  is_array = converted is value or isinstance(value, list | tuple | range)
  if not is_array or converted.dtype.kind == "c":
    raise TypeError(f"{name}={brief(value)}: must be {wanted}")


def check_shape(name: str, value: Any, shape: Sequence[int], of: str) -> None:
  """Raises ValueError if an array is not of the shape of another one.

  Args:
    name: of the argument.
    value: given for it.
    shape: the shape that it must have.
    of: where that shape is from, such as "as labels".
  """
  if np.shape(value) != tuple(shape):
    raise ValueError(
      f"{name}: is {form(value)}; must be of shape {list(shape)}, {of}"
    )


def check_plain_array(name: str, value: Any, any_order: bool = False) -> None:
  """Checks that NumPy and JAX read the same numbers from an array.

  Args:
    name: of the argument.
    value: given for it.
    any_order: whether a byte order other than the machine's is accepted, which
      NumPy reads and JAX does not.

  Raises:
    TypeError: if it is masked, sparse, of keys, of objects, of another byte
      order, or deleted.
  """
  dtype, hint = getattr(value, "dtype", None), ""
  is_traced = isinstance(value, jax.core.Tracer)
  if isinstance(value, np.ma.MaskedArray):
    hint = "is masked; must be without a mask, such as its .filled(0)"
  elif hasattr(value, "todense"):
    hint = "is sparse; must be dense, such as its .todense()"
  elif isinstance(value, jax.ShapeDtypeStruct):
    hint = "is only the shape of an array; must be an array"
  elif not is_traced and isinstance(value, jax.Array) and value.is_deleted():
    hint = "was deleted, because a program took its memory; must still exist"
  elif dtype is not None and not isinstance(dtype, np.dtype):
    hint = f"is {dtype}; must be numbers"
  elif dtype is not None and not (dtype.isnative or any_order):
    native_dtype = dtype.newbyteorder("=")
    hint = f"is in another byte order; convert it by .astype('{native_dtype}')"
  elif dtype is not None and dtype.kind in "OSUMm":
    hint = f"is {form(value)}; must be numbers"
  if hint:
    raise TypeError(f"{name}: {hint}")


def checked_length(name: str, value: Any) -> int:
  """The number N of examples in a dict of arrays [N, ...].

  Raises:
    TypeError: if it is no dict of arrays, or empty, or one is refused by
      `check_plain_array`.
    ValueError: if their lengths differ.
  """
  if not isinstance(value, Mapping) or not len(value):
    raise TypeError(
      f"{name}={brief(value)}: must be a dict of arrays [N, ...], such as "
      "{'x': x, 'y': y}"
    )
  for key, values in value.items():
    if not isinstance(key, str):
      raise TypeError(f"{name}: the name {brief(key)} must be a string")
    field_name, wanted = f"{name}[{key!r}]", "an array [N, ...]"
    as_array(field_name, values, wanted, any_order=True)
    if not np.ndim(values):
      raise TypeError(f"{field_name}={brief(values)}: must be {wanted}")
  lengths = {field: len(values) for field, values in value.items()}
  if len(set(lengths.values())) > 1:
    sizes_text = ", ".join(f"{field} {size}" for field, size in lengths.items())
    raise ValueError(f"{name}: lengths differ ({sizes_text}); must be equal")
  return next(iter(lengths.values()))


def check_count(name: str, values: Sequence[Any], number: int, of: str) -> None:
  """Raises ValueError if there is not one value for each of something.

  Args:
    name: of the argument.
    values: given for it.
    number: how many values there must be.
    of: what each value is for, such as "clients".
  """
  if len(values) != number:
    raise ValueError(
      f"{name}: has {len(values)} entries; must have one for each of the "
      f"{number} {of}"
    )


def check_iterable(name: str, value: Any) -> None:
  """Raises TypeError if a value cannot be iterated over."""
  check_plain_array(name, value)
  if not isinstance(value, Iterable) or isinstance(value, str | bytes):
    raise TypeError(f"{name}={brief(value)}: must be a list, or an iterator")


def check_instance(name: str, value: Any, kinds: Sequence[type]) -> None:
  """Raises TypeError if a value is of none of these classes."""
  if not isinstance(value, tuple(kinds)):
    hint = " (it was not called)" * isinstance(value, type)
    names = [kind.__name__ for kind in kinds]
    words = " or ".join(("an " if n[0] in "AEIO" else "a ") + n for n in names)
    raise TypeError(f"{name}={brief(value)}: must be {words}{hint}")


def check_text(name: str, value: Any) -> None:
  """Raises TypeError if a value is no string."""
  if not isinstance(value, str):
    raise TypeError(f"{name}={brief(value)}: must be a string")


def check_word(name: str, value: Any) -> None:
  """Raises an error if a value is no string, or an empty one."""
  check_text(name, value)
  if not value.strip():
    raise ValueError(f"{name}={value!r}: must not be empty")


def check_path(name: str, value: Any) -> None:
  """Raises an error if a value is no path, or an empty one."""
  if not isinstance(value, str | os.PathLike):
    raise TypeError(
      f"{name}={brief(value)}: must be a path, a string or a pathlib.Path"
    )
  check_word(name, os.fspath(value))


def check_tree(name: str, value: Any) -> None:
  """Checks that a model is a pytree of floating-point arrays, also traced.

  Raises:
    TypeError: naming the leaf that is no such array.
  """
  hint = ""
  modules = [base.__module__ for base in type(value).__mro__]
  if any(module.startswith("flax.nnx.module") for module in modules):
    hint = "; of an nnx module give nnx.state(model, nnx.Param)"
  elif any(module.startswith("flax.linen") for module in modules):
    hint = '; give model.init(key, x)["params"]'
  is_leaf = jax.tree.structure(value) == jax.tree.structure(0)
  if hint or value is None or (is_leaf and not hasattr(value, "shape")):
    raise TypeError(f"{name}={brief(value)}: must be a pytree of arrays{hint}")
  # Without leaves it is the model of an algorithm whose state is its own.
  for path, leaf in jax.tree_util.tree_leaves_with_path(value):
    leaf_name = f"{name}{jax.tree_util.keystr(path)}"
    check_plain_array(leaf_name, leaf)
    if not hasattr(leaf, "dtype") and not isinstance(leaf, float):
      if any(module.startswith("equinox.") for module in modules):
        hint = "; give eqx.partition(model, eqx.is_inexact_array)[0]"
      raise TypeError(
        f"{leaf_name}={brief(leaf)}: must be an array of floating-point numbers"
        f"{hint}"
      )
    dtype = getattr(leaf, "dtype", np.dtype(float))
    if not jax.numpy.issubdtype(dtype, jax.numpy.floating):
      raise TypeError(
        f"{leaf_name}: is {dtype}; must be floating-point numbers, as local "
        "steps add fractions to it"
      )


def check_strings(name: str, values: Any) -> None:
  """Raises TypeError if the values are not strings in a list or tuple."""
  is_list = isinstance(values, list | tuple)
  if not is_list or not all(isinstance(value, str) for value in values):
    hint = f'; write {name}=("{values}",)' if isinstance(values, str) else ""
    raise TypeError(
      f"{name}={brief(values)}: must be a list or tuple of names{hint}"
    )


def check_function(name: str, value: Any, takes: str) -> None:
  """Raises TypeError if a value is no function of such arguments.

  Args:
    name: of the argument.
    value: given for it.
    takes: its form, such as "(params, batch, rng) -> [B]", or "(...) -> [B]"
      for any arguments.
  """
  if not callable(value):
    raise TypeError(f"{name}={brief(value)}: must be a function {takes}")
  if takes.startswith("(...)"):
    return
  inside = takes.partition(")")[0].removeprefix("(")
  count = inside.count(",") + bool(inside)
  try:
    signature = inspect.signature(value)
  except (TypeError, ValueError):  # It does not tell.
    if isinstance(value, type):
      raise TypeError(
        f"{name}={brief(value)}: must be a function {takes}"
      ) from None
    return
  try:
    signature.bind(*[None] * count)
  except TypeError:
    parameters = ", ".join(signature.parameters)
    raise TypeError(
      f"{name}={brief(value)}: takes ({parameters}); must be a function {takes}"
    ) from None
