"""The flags of a run, made from the fields of `Spec` and the registries."""

import csv
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments.command_line import mistakes, texts
from experiments.specification import spec
from experiments.specification.kinds import KINDS, Kind
from experiments.specification.spec import FLAGS, Spec
from fedjax_opt.registry import Hyperparameter, Parameter

_SWITCHES = {
  **dict.fromkeys(("true", "t", "1"), True),
  **dict.fromkeys(("false", "f", "0"), False),
}

# What makes a flag's value of its text: str, int, float or `words`; bool for
# --name and --noname; list for a flag that may be given several times.
Reader = Callable[[str], Any]


class Definition(NamedTuple):
  """A flag as a command line has it."""

  type: Reader
  default: Any
  help: str


def defined() -> dict[str, Definition]:
  """All flags by name; anew if a registry has got another entry."""
  return _defined(tuple((f, *kind.entries) for f, kind in KINDS.items()))


@functools.lru_cache(maxsize=2)
def _defined(entries: tuple[tuple[str, ...], ...]) -> dict[str, Definition]:
  del entries
  found = {}
  for name, flag in FLAGS.items():
    found[name] = Definition(flag.type, flag.default, texts.of_field(name))
    for own, owners in (flag.choice.owners() if flag.choice else {}).items():
      type, is_list = _type_of(flag.choice, next(iter(owners.values())))
      help = texts.of_hyperparameter(own, owners)
      found[own] = Definition(type, None, f"[list] {help}" if is_list else help)
  return found


def _type_of(kind: Kind, parameter: Parameter) -> tuple[type, bool]:
  """The type of a hyperparameter's flag, and whether a list makes a grid."""
  if not isinstance(parameter, Hyperparameter) or parameter.takes_range:
    return str, False
  if isinstance(parameter.default, bool):
    return bool, False
  if kind.has_lists and parameter.is_tuned:
    return str, True
  is_whole = parameter.is_static or isinstance(parameter.default, int)
  return int if is_whole else float, False


def words(text: str) -> list[str]:
  """The words between the commas of a text; those in quotes may have some."""
  found = next(csv.reader([text], strict=True), [])
  return [word.strip() for word in found]


def value_of(name: str, text: str, type: Reader) -> Any:
  """A flag's value, from its text.

  Raises:
    ValueError: one line, if it cannot be its value.
  """
  try:
    return _SWITCHES[text.lower()] if type is bool else type(text)
  except (KeyError, ValueError, csv.Error):
    raise ValueError(mistakes.wrong_value(name, text, type)) from None


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
  """The values of all flags, of which some are given as text or by type.

  Args:
    values: flag -> value; all others have their defaults.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
  """
  known = defined()
  found = {name: flag.default for name, flag in known.items()}
  for name, value in values.items():
    if name not in known:
      raise ValueError(mistakes.no_such_flag(name, known))
    if not isinstance(value, bool):
      value = value_of(name, str(value), known[name].type)
    elif known[name].type is not bool:
      raise ValueError(
        mistakes.no_value(name)
        if value
        else mistakes.no_such_flag(f"no{name}", known)
      )
    found[name] = value
  return found


def argument(name: str, value: Any) -> str:
  """A flag with its value as a command line has it."""
  if isinstance(value, bool):
    return f"--{name}" if value else f"--no{name}"
  if isinstance(value, list):
    value = ",".join(map(str, value))
  return f"--{name}={value}"


def arguments(found: Spec) -> list[str]:
  """The flags that give a specification again, in the order of the help."""
  return [
    argument(name, found.given[name])
    for name in spec.names()
    if name in found.given and not (name in FLAGS and FLAGS[name].is_of_process)
  ]
