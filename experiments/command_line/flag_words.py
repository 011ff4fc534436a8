"""Flags: read from the words of a command line, and written as such words."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from absl import flags

from experiments.command_line import mistakes
from experiments.specification import spec as specs
from experiments.specification.flag import kinds_of
from experiments.specification.spec import Spec

# Names between commas; in quotation marks they may have commas.
names = flags.ListParser().parse
# Flag -> the type of its values, or `names`.
Kinds = Mapping[str, Callable[[str], Any]]
# Values of other kinds stay text. So does a list of a run, which makes a grid.
_PARSERS = {
  bool: flags.BooleanParser(),
  int: flags.IntegerParser(),
  float: flags.FloatParser(),
  names: flags.ListParser(),
}


class _Flag(flags.Flag):
  """A flag that notes its values, so that the order of flags is known."""

  def __init__(self, name, kind, given):
    parser = _PARSERS.get(kind, flags.ArgumentParser())
    super().__init__(parser, None, name, None, "", boolean=kind is bool)
    self._given = given

  def parse(self, argument):
    super().parse(argument)
    self._given.append((self.name, self.value))


@functools.lru_cache(maxsize=8)
def _defined(kinds: tuple[tuple[str, Any], ...]) -> tuple[Any, list[Any]]:
  """Flags of these kinds, and the list in which they note their values."""
  values, given = flags.FlagValues(), []
  for name, kind in kinds:
    values[name] = _Flag(name, kind, given)
  return values, given


def kinds() -> dict[str, type]:
  """The flags of a run, with the types of their values."""
  return kinds_of(specs.all_flags())


def read(words: Iterable[str], kinds: Kinds) -> list[tuple[str, Any]]:
  """The flags that are given, and their values, in order.

  Args:
    words: the words of a command line: --name=value, --name value, --name or
      --noname.
    kinds: the flags that there are.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
  """
  values, given = _defined(tuple(kinds.items()))
  given.clear()
  try:
    _, *others = values(["", *words])
  except flags.Error as error:
    raise ValueError(mistakes.of_flags(error, kinds)) from None
  finally:
    values.unparse_flags()
  if others:
    raise ValueError(mistakes.not_a_flag(others[0], kinds))
  return list(given)


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
  """The values of all flags of a run, of which some are given."""
  return {n: flag.default for n, flag in specs.all_flags().items()} | given


def typed(given: Mapping[str, Any]) -> dict[str, Any]:
  """The values of all flags; some are given, as text or in their own type.

  Raises:
    ValueError: one line, for an unknown flag or an invalid value.
  """
  run_kinds = kinds()
  for name in given:
    if name not in run_kinds:  # Such as flagfile, which absl would read.
      raise ValueError(mistakes.no_such_flag(name, run_kinds, ""))
  words = [argument(name, value) for name, value in given.items()]
  with_values = [word for word in words if "=" in word]
  # A flag whose value is missing would take the next word for it.
  groups = [with_values, *([word] for word in words if "=" not in word)]
  return completed(
    dict(pair for group in groups for pair in read(group, run_kinds))
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
    for name, flag in specs.all_flags().items()
    if name in run_spec.user_flags and not flag.is_of_process
  ]
