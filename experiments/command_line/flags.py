"""Flags: read from the words of a command line, and written as such words."""

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from experiments.command_line import mistakes
from experiments.specification import spec
from experiments.specification.spec import Spec

# Flag -> the type of its values, or a function that makes them of a text.
Kinds = Mapping[str, Callable[[str], Any]]

_SWITCH = {
  word: value
  for value, words in ((True, "true t 1"), (False, "false f 0"))
  for word in words.split()
}
# The types whose values are made otherwise than by calling them; a list between
# commas makes a grid, and stays text.
_MAKE = {bool: lambda text: _SWITCH[text.lower()], list: str}


def names(text: str) -> list[str]:
  """Names between commas; in quotation marks they may have commas."""
  try:
    (items,) = csv.reader([text], strict=True) if text else [[]]
  except csv.Error as error:
    raise ValueError(str(error)) from None
  return [item.strip() for item in items]


def kinds() -> dict[str, type]:
  """The flags of a run, with the types of their values."""
  return {name: flag.type for name, flag in spec.all_flags().items()}


def read(words: Iterable[str], kinds: Kinds) -> list[tuple[str, Any]]:
  """The flags that are given, and their values, in order.

  Args:
    words: of a command line: --name=value, --name value, --name or --noname.
    kinds: the flags that there are.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
  """
  pairs, words = [], iter(words)
  for word in words:
    match = re.fullmatch(r"--?([^-=][^=]*)(?:=(.*))?", word, re.DOTALL)
    if match is None:
      raise ValueError(mistakes.not_a_flag(word, kinds))
    name, text = match.groups()
    positive = name.removeprefix("no")
    if name not in kinds and kinds.get(positive) is bool and text is None:
      name, text = positive, "false"
    if name not in kinds:
      raise ValueError(mistakes.no_such_flag(name, kinds))
    if text is None:
      text = "true" if kinds[name] is bool else next(words, None)
    if text is None:
      raise ValueError(f"--{name}: has no value; give --{name}=VALUE")
    try:
      pairs.append((name, _MAKE.get(kinds[name], kinds[name])(text)))
    except (ValueError, KeyError):
      message = mistakes.wrong_value(name, text, kinds[name])
      raise ValueError(message) from None
  return pairs


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
  """The values of all flags of a run, of which some are given."""
  return {n: flag.default for n, flag in spec.all_flags().items()} | given


def typed(given: Mapping[str, Any]) -> dict[str, Any]:
  """The values of all flags; some are given, as text or in their own type.

  Raises:
    ValueError: one line, for an unknown flag or an invalid value.
  """
  words = (argument(name, value) for name, value in given.items())
  return completed(
    dict(pair for word in words for pair in read([word], kinds()))
  )


def argument(name: str, value: Any) -> str:
  """A flag with its value as a command line has it."""
  if isinstance(value, bool):
    return f"--{name}" if value else f"--no{name}"
  if isinstance(value, list):
    value = ",".join(map(str, value))
  return f"--{name}={value}"


def arguments(run_spec: Spec) -> list[str]:
  """The flags that reproduce a specification, in the order of the help."""
  return [
    argument(name, run_spec.user_flags[name])
    for name, flag in spec.all_flags().items()
    if name in run_spec.user_flags and not flag.is_of_process
  ]
