"""Fields: what an argument may be, described once; checks are made of it.

The annotation of an argument says most of it: `loss_fn: LossFn` is a function
of parameters, batch and key, and `mu: NonNegative` a number in [0, inf).
`checked` is given what an annotation does not say. A field checks a
value, and says what it accepts. A factory carries its fields as
`checked_fields`, from which its entry in a registry and its tests are made.

A public function checks the arguments that its caller gives. Defaults are not
checked, and functions that are not public check nothing again.
"""

import dataclasses
import functools
import inspect
import operator
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import jax
import numpy as np
import optax

from fedjax_opt.checks import functions, rules
from fedjax_opt.checks.values import (
  MAX_INT32,
  brief,
  check_at_least,
  check_choice,
  check_function,
  check_in_interval,
  check_instance,
  check_iterable,
  check_path,
  check_plain_array,
  check_real_array,
  check_strings,
  check_switch,
  check_text,
  check_tree,
  check_word,
  checked_array,
  checked_length,
  is_real,
)


@dataclasses.dataclass(frozen=True, repr=False)
class Field:
  """What an argument may be.

  Attributes:
    accepts: `(name, value)`, raises ValueError or TypeError if a value is not
      accepted.
    optional: whether None is accepted too.
    interval: of the numbers accepted.
    value_type: type of the values on a command line, where all but numbers and
      switches is text.
    choices: the words accepted; () if others are.
  """

  accepts: Callable[..., None]
  optional: bool = False
  interval: str = "(-inf, inf)"
  value_type: type = str
  choices: tuple[str, ...] = ()

  def __repr__(self) -> str:
    return "checked"  # In a signature, whose docstring says the rest.

  def check(self, name: str, value: Any) -> None:
    """Raises ValueError or TypeError if a value is not accepted.

    Args:
      name: of the argument.
      value: given for it.
    """
    if value is not None or not self.optional:
      self.accepts(name, value)


@dataclasses.dataclass(frozen=True, repr=False)
class Scalar(Field):
  """A number, or a scalar array; the value of a traced one is not checked.

  Attributes:
    words: the interval in words.
  """

  accepts: Callable[..., None] = check_in_interval
  value_type: type = float
  words: str = ""

  def check(self, name: str, value: Any) -> None:
    """See `Field`."""
    if value is not None or not self.optional:
      wanted = "a number, or None" if self.optional else "a number"
      self.accepts(name, value, self.interval, wanted, self.words)


def plain_number(
  interval: str, words: str = "", value_type: type = float
) -> Scalar:
  """A plain number, not an array, because it shapes the program.

  Args:
    interval: of the numbers accepted.
    words: the interval in words.
    value_type: int for whole numbers, of 32 bits.
  """

  def accepts(name, value, *how):
    if value_type is int:
      check_at_least(name, value, -MAX_INT32)
    if not is_real(value):
      raise TypeError(f"{name}={brief(value)}: must be a number")
    check_in_interval(name, value, *how)

  return Scalar(accepts, interval=interval, value_type=value_type, words=words)


def integer(
  least: int = 0,
  may_be_array: bool = False,
  most: int | None = MAX_INT32,
) -> Field:
  """A whole number, by default of 32 bits.

  Args:
    least: the smallest number accepted.
    may_be_array: whether it may be an array [], also a traced one.
    most: the largest number accepted, if there is one.
  """

  def accepts(name, value):
    if may_be_array and isinstance(value, jax.Array):
      scalar = checked_array(name, value, "[]", of_integers=True)
      if isinstance(scalar, jax.core.Tracer):
        return
      value = scalar.item()
    check_at_least(name, value, least, most)

  end = f"{most}]" if most not in (None, MAX_INT32) else "inf)"
  return Field(accepts, interval=f"[{least}, {end}", value_type=int)


def one_of(*accepted: str) -> Field:
  """One of a few words."""
  accepts = functools.partial(check_choice, accepted=accepted)
  return Field(accepts, choices=accepted)


def array(axes: str, **options: Any) -> Field:
  """An array of real numbers, or (lists of) numbers, see `checked_array`.

  Args:
    axes: its shape, such as "[M, C]".
    **options: `of_integers` and `interval`.
  """
  return Field(functools.partial(checked_array, axes=axes, **options))


def function(takes: str) -> Field:
  """A function of a given form, such as "(params, batch) -> {name: [B]}"."""
  return Field(functools.partial(check_function, takes=takes))


def rate(may_drop: bool = True, hint: str = "") -> Field:
  """A learning rate: a number, or a function from the round to one.

  Args:
    may_drop: whether it may be a function.
    hint: end of the message, which says where an optimizer can be given.
  """
  accepts = functools.partial(rules.check_rate, may_drop=may_drop, hint=hint)
  return Field(accepts, interval="[0, inf)", value_type=float)


ANYTHING = Field(lambda name, value: None)


def sequence_of(field: Field, words: str, least: int = 0) -> Field:
  """A list of values, also as an array [n].

  Args:
    field: of each value.
    words: what the list must be, such as "a list of whole numbers".
    least: the fewest values that it must have.
  """

  def accepts(name, entries):
    check_plain_array(name, entries)
    is_array = getattr(entries, "ndim", 0) > 0
    if not is_array and not isinstance(entries, list | tuple | range):
      raise TypeError(f"{name}={brief(entries)}: must be {words}")
    if len(entries) < least:
      raise ValueError(f"{name}={brief(entries)}: must be {words}")
    for i, value in enumerate(entries):
      field.check(f"{name}[{i}]", value)

  return Field(accepts)


def _pair(*inner: Field) -> Field:
  """A tuple of values, each with a field of its own."""

  def accepts(name, entries):
    if not isinstance(entries, list | tuple) or len(entries) != len(inner):
      raise TypeError(
        f"{name}={brief(entries)}: must be a tuple of {len(inner)}"
      )
    for i, field in enumerate(inner):
      field.check(f"{name}[{i}]", entries[i])

  return Field(accepts)


def mapping_of(field: Field | None, words: str) -> Field:
  """A dictionary of values by their names.

  Args:
    field: of each value; None for any value.
    words: what the dictionary must be, such as "a dict of numbers".
  """

  def accepts(name, mapping):
    if not isinstance(mapping, Mapping):
      raise TypeError(f"{name}={brief(mapping)}: must be {words}")
    for key, value in mapping.items():
      if not isinstance(key, str):
        text = brief(key)
        raise TypeError(f"{name}: the name {text} must be a string")
      if field is not None:
        field.check(f"{name}[{key!r}]", value)

  return Field(accepts)


def instance_of(
  kind: Any, words: str, error: type[Exception] = TypeError
) -> Field:
  """A value of a type that is not named, but said in words.

  Args:
    kind: the type, or a union of types.
    words: what it is, such as ..., with an example and what else is accepted.
    error: of other types.
  """
  noun, _, example = words.partition(", such as ")

  def accepts(name, value):
    if not isinstance(value, kind):
      hint = " (it was not called)" * callable(value)
      raise error(
        f"{name}={brief(value)}: must be {noun}{hint}, such as {example}"
      )

  return Field(accepts)


SWITCH = Field(check_switch, value_type=bool)
SEED_OF_RUN = integer(most=(1 << 32) - 1)
NAMES = Field(check_strings)
NAME = Field(check_word)
ARRAY = Field(check_real_array)
PARAMS = Field(check_tree)
POOL = Field(checked_length)
PATH = Field(check_path)
LOSS = Field(functions.check_loss)
CLIENT_RULE = Field(rules.check_client_rule)

# Annotations that also say which values are accepted: by a field, or numbers by
# an interval. Those of arrays are for numbers that may be traced.
Positive = Annotated[jax.typing.ArrayLike, "(0, inf)"]
NonNegative = Annotated[jax.typing.ArrayLike, "[0, inf)"]
Fraction = Annotated[jax.typing.ArrayLike, "[0, 1]"]
Decay = Annotated[jax.typing.ArrayLike, "[0, 1)"]  # Of a momentum or a moment.
PositiveFloat = Annotated[float, "(0, inf)"]
NonNegativeFloat = Annotated[float, "[0, inf)"]
Count = Annotated[int, integer(1)]
# Seeds of NumPy's generators, which take more than 32 bits.
Seed = Annotated[int, integer(most=None)]
# Seeds of JAX's random keys, which take 32 bits.
SeedOfRun = Annotated[int, SEED_OF_RUN]

# A pytree of floating-point arrays: a model.
Params = Annotated[Any, PARAMS]
State = Any  # A pytree of arrays: what the server keeps between rounds.
# A learning rate, or a function from the round to one.
Rate = jax.typing.ArrayLike | Callable[[jax.Array], jax.Array]

# The field of an argument whose annotation allows anything.
_ANYTHING = (inspect.Parameter.empty, Any, object)
# Annotation -> field. Modules add the types that they define.
KINDS: dict[Any, Field] = {
  Rate: rate(),
  bool: SWITCH,
  int: integer(),
  float: Scalar(),
  str: Field(check_text),
  str | os.PathLike: PATH,
  np.ndarray: ARRAY,
  jax.Array: ARRAY,
  Mapping[str, np.ndarray]: POOL,
  Sequence[str]: NAMES,
  Sequence[int]: sequence_of(integer(), "a list of whole numbers"),
  Sequence[float]: sequence_of(Scalar(), "a list of numbers"),
  jax.typing.ArrayLike: Scalar(),
  optax.GradientTransformation: Field(rules.check_optimizer),
}


def checked(**own_fields: Field | str) -> Callable[[Callable], Callable]:
  """A decorator of public functions and classes, which checks their arguments.

  Args:
    **own_fields: fields of arguments whose annotation says nothing, or too
      little. A string is the interval of a number, as in `Positive`. Whether
      None is accepted follows from the annotation.

  Returns:
    The decorator; the target has its fields as `checked_fields`, by name.
  """

  def decorate(target):
    if not inspect.isclass(target):
      return _checking(
        target, fields_of(target, **own_fields), inspect.signature(target)
      )
    maker = "__new__" if issubclass(target, tuple) else "__init__"
    make, fields = getattr(target, maker), fields_of(target, **own_fields)
    setattr(target, maker, _checking(make, fields, inspect.signature(make)))
    target.checked_fields = fields
    return target

  return decorate


def _checking(function, fields, signature):
  """The function, which now checks its arguments first."""

  @functools.wraps(function)
  def call(*args, **kwargs):
    try:
      arguments = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:  # The call itself will say what is wrong.
      arguments = {}
    for name, value in arguments.items():
      if name in fields:
        fields[name].check(name, value)
    return function(*args, **kwargs)

  call.checked_fields = fields
  return call


def parameters_of(
  function: Callable[..., Any],
) -> Mapping[str, inspect.Parameter]:
  """The arguments of a function or class by name, with their annotations.

  Annotations that are texts, as in a file with `from __future__ import
  annotations`, are evaluated, if all names in them are known.
  """
  try:
    return inspect.signature(function, eval_str=True).parameters
  except NameError:  # A name is imported for type checkers alone.
    return inspect.signature(function).parameters


def fields_of(
  function: Callable[..., Any], **specs: Field | str
) -> dict[str, Field]:
  """The fields of the arguments of a function or a dataclass.

  Args:
    function: the function or class.
    **specs: see `checked`.
  """
  parameters = parameters_of(function)
  if unknown := specs.keys() - parameters.keys():
    raise TypeError(
      f"{function.__qualname__}: has no argument {', '.join(sorted(unknown))}"
    )
  fields = {
    name: _field_of(parameter.annotation, specs.get(name))
    for name, parameter in parameters.items()
    if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
  }
  return {name: field for name, field in fields.items() if field is not None}


def _field_of(annotation, given):
  """The field of an argument, or None if nothing is known of it."""
  inner, optional = annotation, False
  if annotation not in KINDS and type(None) in typing.get_args(annotation):
    optional = True
    kinds = [k for k in typing.get_args(annotation) if k is not type(None)]
    inner = functools.reduce(operator.or_, kinds)
  if typing.get_origin(inner) is Annotated:
    inner, of_annotation = typing.get_args(inner)
    given = given or of_annotation
  field = (
    given if isinstance(given, Field) else KINDS.get(inner, _of_form(inner))
  )
  if isinstance(given, str):
    field = dataclasses.replace(field, interval=given)
  if field is None or field.optional or not optional:
    return field
  return dataclasses.replace(field, optional=True)


def _of_form(annotation):
  """The field of an annotation that is not in `KINDS`, or None."""
  origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
  inner_field = lambda i: _field_of(inner[i], None) or ANYTHING
  if origin is typing.Literal:
    return one_of(*inner)
  if origin is Callable:
    names = "xyzuvw"[: len(inner[0])] if inner[0] is not ... else ["..."]
    return function(f"({', '.join(names)})")
  if origin is Iterable:
    return Field(check_iterable)
  if origin is Sequence or (origin is tuple and ... in inner):
    return sequence_of(inner_field(0), "a list")
  if origin is tuple:
    return _pair(*map(inner_field, range(len(inner))))
  if origin is Mapping:
    return mapping_of(None, "a dict by names")
  kinds = inner if origin is types.UnionType else (annotation,)
  is_class = lambda kind: isinstance(kind, type) and kind not in _ANYTHING
  if not all(map(is_class, kinds)) or KINDS.keys() & set(kinds):
    return None
  return Field(functools.partial(check_instance, kinds=kinds))
