"""Client rules, server rules and learning rates, as callers give them."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import optax

from fedjax_opt.checks.values import brief, check_function, check_in_interval

EXAMPLE = "an optimizer, such as optax.sgd(0.1)"
_OF_ROUND = "or a function from the round to one"
# A function whose argument has one of these names takes no round.
_RATE_NAMES = ("learning_rate", "lr")


def check_client_rule(name: str, rule: Any) -> None:
  """Checks that a client rule is an optimizer, or a function from the round.

  Raises:
    TypeError: if it is neither an optimizer nor a function to one.
  """
  if isinstance(rule, optax.GradientTransformation):
    return
  _check_called(name, rule)
  is_object = hasattr(rule, "init") and hasattr(rule, "update")
  if not callable(rule) or isinstance(rule, type) or is_object:
    raise TypeError(
      f"{name}={brief(rule)}: must be {EXAMPLE}, {_OF_ROUND}{_hint(rule)}"
    )
  check_function(name, rule, f"(round) -> optimizer, or {EXAMPLE}")
  first = next(iter(inspect.signature(rule).parameters), "round")
  if first in _RATE_NAMES:
    raise TypeError(
      f"{name}={brief(rule)}: takes ({first}), and would be given the round; "
      f"must be {EXAMPLE}, {_OF_ROUND}"
    )


def check_optimizer(name: str, rule: Any) -> None:
  """Checks that a rule is an optimizer.

  Raises:
    TypeError: if it is not.
  """
  if not isinstance(rule, optax.GradientTransformation):
    _check_called(name, rule)
    hint = _hint(rule)
    if inspect.isfunction(rule):
      hint = "; for a rate that changes give it a schedule of optax"
    raise TypeError(f"{name}={brief(rule)}: must be {EXAMPLE}{hint}")


def check_rate(
  name: str, value: Any, *, may_drop: bool = True, hint: str = ""
) -> None:
  """Checks that a learning rate is a number, or a function from the round.

  Args:
    name: of the argument.
    value: given for it.
    may_drop: whether it may be a function from the round to a number.
    hint: end of the message, which says where an optimizer can be given.

  Raises:
    ValueError: if it is an optimizer, or negative.
    TypeError: if it is something else.
  """
  wanted = f"a number, {_OF_ROUND}" if may_drop else "a number"
  if isinstance(value, optax.GradientTransformation):
    raise ValueError(
      f"{name}: must be {wanted}; this algorithm takes plain steps, not those "
      f"of another rule{hint}"
    )
  if callable(value) and not hasattr(value, "shape"):
    is_factory = _is_of_library(value, "optax.") and not _is_made(value)
    if is_factory or not may_drop or isinstance(value, type):
      raise TypeError(f"{name}={brief(value)}: must be {wanted}")
    check_function(name, value, "(round) -> number")
    return
  check_in_interval(name, value, "[0, inf)", wanted)


def check_needs(
  name: str, params: Any, extra: Mapping[str, Any] | None = None
) -> None:
  """Checks that `update` of a rule was given what it needs.

  Args:
    name: of the rule.
    params: the current point.
    extra: the extra arguments, if it needs `grad_fn`.

  Raises:
    ValueError: if something is missing.
  """
  wanted = "params, the current point"
  if extra is not None:
    wanted += ", and grad_fn, the gradient of the current batch at any point"
  if params is None or (extra is not None and extra.get("grad_fn") is None):
    raise ValueError(f"{name}: update needs {wanted}")


def _check_called(name, rule):
  """Checks that a rule is no schedule, and no factory that was not called."""
  inner = rule
  while isinstance(inner, functools.partial):
    inner = inner.func
  if not _is_of_library(inner, "optax.", "fedjax_opt.rules"):
    return
  if _is_made(inner):
    raise TypeError(
      f"{name}={brief(rule)}: is a schedule; must be an optimizer, such as "
      "optax.sgd(schedule)"
    )
  is_own = _is_of_library(inner, "fedjax_opt.rules")
  remedy = f"write fo.{inner.__name__}()" if is_own else f"must be {EXAMPLE}"
  raise TypeError(f"{name}={brief(rule)}: was not called; {remedy}")


def _is_of_library(function, *modules):
  module = getattr(function, "__module__", None) or ""
  return module.startswith(modules) and hasattr(function, "__name__")


def _is_made(function):
  """Whether a factory returned a function, as optax's do for schedules."""
  return "<locals>" in getattr(function, "__qualname__", "")


def _hint(rule):
  if hasattr(rule, "gradient_transformation"):
    return "; give its .gradient_transformation()"
  if isinstance(rule, str) and hasattr(optax, rule):
    return f"; write optax.{rule}(...)"
  if isinstance(rule, int | float) and not isinstance(rule, bool):
    return f"; write optax.sgd({brief(rule)})"
  return ""
