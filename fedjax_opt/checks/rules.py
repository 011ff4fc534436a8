"""Client rules, server rules and learning rates, as callers give them."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax

from fedjax_opt.checks import values as checks
from fedjax_opt.checks.values import shown

EXAMPLE = "an optimizer, such as optax.sgd(0.1)"
_OF_ROUND = "or a function from the round to one"
# A function of one of these is no function of the round.
_RATES = ("learning_rate", "lr")


def client(name: str, rule: Any) -> None:
  """That a client rule is an optimizer, or a function from the round to one.

  Raises:
    TypeError: if it is none of these.
  """
  if isinstance(rule, optax.GradientTransformation):
    return
  _check_called(name, rule)
  is_function = callable(rule) and not isinstance(rule, type)
  if not is_function or _is_optimizer_object(rule):
    raise TypeError(
      f"{name}={shown(rule)}: must be {EXAMPLE}, {_OF_ROUND}{_hint(rule)}"
    )
  checks.function(name, rule, f"(round) -> optimizer, or {EXAMPLE}")
  first = next(iter(_parameters(rule)), "round")
  if first in _RATES:
    raise TypeError(
      f"{name}={shown(rule)}: takes ({first}), and would be given the round; "
      f"must be {EXAMPLE}, {_OF_ROUND}"
    )


def optimizer(name: str, rule: Any) -> None:
  """That a rule is an optimizer.

  Raises:
    TypeError: if it is not.
  """
  if not isinstance(rule, optax.GradientTransformation):
    _check_called(name, rule)
    hint = _hint(rule)
    if inspect.isfunction(rule):
      hint = "; for a rate that changes give it a schedule of optax"
    raise TypeError(f"{name}={shown(rule)}: must be {EXAMPLE}{hint}")


def rate(
  name: str,
  value: Any,
  interval: str = "[0, inf)",
  *,
  may_drop: bool = True,
  hint: str = "",
) -> None:
  """That a learning rate is a number, or a function from the round to one.

  Args:
    name: of the argument.
    value: given for it.
    interval: of the numbers allowed.
    may_drop: whether it may be a function.
    hint: where an optimizer can be given instead.

  Raises:
    ValueError: if it is an optimizer, or outside the interval.
    TypeError: if it is something else.
  """
  wanted = "a number"
  if may_drop:
    wanted += ", or a function from the round to one"
  if isinstance(value, optax.GradientTransformation):
    raise ValueError(
      f"{name}: must be {wanted}; this algorithm takes plain steps, not those "
      f"of another rule{hint}"
    )
  if callable(value) and not hasattr(value, "shape"):
    _check_called(name, value, optimizer=False)
    if not may_drop or isinstance(value, type):
      raise TypeError(f"{name}={shown(value)}: must be {wanted}")
    checks.function(name, value, "(round) -> number")
    return
  checks.in_interval(name, value, interval, wanted)


def needs(
  name: str, params: Any, extra: Mapping[str, Any] | None = None
) -> None:
  """That `update` of a rule was given what it needs.

  Args:
    name: of the rule.
    params: the current point.
    extra: the extra arguments, if it needs `grad_fn`.

  Raises:
    ValueError: if it was not.
  """
  wanted = "params, the current point"
  if extra is not None:
    wanted += ", and grad_fn, the gradient of the current batch at any point"
  if params is None or (extra is not None and extra.get("grad_fn") is None):
    raise ValueError(f"{name}: update needs {wanted}")


def rate_of_round(value: Any, round: jax.Array) -> Any:
  """A learning rate in a round.

  Raises:
    ValueError: for an optimizer, where steps are plain ones, and for a negative
      rate; of a traced one that is not known.
    TypeError: for a function that gives no number.
  """
  rate("learning_rate", value)
  if not callable(value):
    return value
  found = checks.call("learning_rate", "(round) -> number", value, round)
  is_number = isinstance(found, int | float) or hasattr(found, "dtype")
  if not is_number or np.shape(found):
    raise TypeError(
      f"learning_rate: its function of the round returned {shown(found)}; must "
      "return a number"
    )
  checks.in_interval("learning_rate", found, "[0, inf)")
  return found


def _check_called(name, rule, optimizer=True):
  """That it is not a factory of rules, which was to be called."""
  inner = rule
  while isinstance(inner, functools.partial):
    inner = inner.func
  module = getattr(inner, "__module__", None) or ""
  is_factory = module.startswith(("optax.", "fedjax_opt.rules"))
  if not (is_factory and hasattr(inner, "__name__")):
    return
  # What a schedule of optax returns is a function of the step.
  if "<locals>" in getattr(inner, "__qualname__", ""):
    if optimizer:
      raise TypeError(
        f"{name}={shown(rule)}: is a schedule; must be an optimizer, such as "
        "optax.sgd(schedule)"
      )
    return
  root = "optax" if module.startswith("optax") else "fedjax_opt"
  if root == "optax" and not hasattr(optax, inner.__name__):
    root = "optax.contrib"
  call = f"{root}.{inner.__name__}(...)"
  if optimizer:
    raise TypeError(f"{name}={shown(rule)}: was not called; write {call}")
  if inner is rule and root != "fedjax_opt":
    raise TypeError(
      f"{name}={shown(rule)}: must be a number, or a function from the round "
      "to one"
    )


def _is_optimizer_object(rule):
  return hasattr(rule, "init") and hasattr(rule, "update")


def _hint(rule):
  if hasattr(rule, "gradient_transformation"):
    return "; give its .gradient_transformation()"
  if isinstance(rule, str) and hasattr(optax, rule):
    return f"; write optax.{rule}(...)"
  if isinstance(rule, int | float) and not isinstance(rule, bool):
    return f"; write optax.sgd({shown(rule)})"
  return ""


def _parameters(function):
  try:
    return list(inspect.signature(function).parameters)
  except (TypeError, ValueError):
    return []
