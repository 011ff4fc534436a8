"""From a command line to the values that were given."""

import copy
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from experiments import command
from experiments.command_line import flagfiles, help, mistakes
from experiments.command_line.flags import defined
from experiments.specification import spec


def parse(argv: Sequence[str], intro: str = "") -> dict[str, Any]:
  """The values of all flags; prints help instead if asked for it.

  Args:
    argv: name of the program, then its arguments.
    intro: first lines of the help.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
    SystemExit: after `--help`, `--list` or `--version`.
  """
  values = defined()
  try:  # A copy would take ten times as long as all the rest.
    _read(argv, intro, values)
    return {name: values[name].value for name in spec.names()}
  finally:
    values.unparse_flags()


def given(
  argv: Sequence[str],
  intro: str,
  define: Callable[[flags.FlagValues], None],
) -> dict[str, Any]:
  """The values of those flags that were given, for a program that has more.

  Conditions take several values between commas here, and are text.

  Args:
    argv: name of the program, then its arguments.
    intro: first lines of the help.
    define: defines the program's own flags.

  Returns:
    name -> value.

  Raises:
    ValueError: see `parse`.
    SystemExit: see `parse`.
  """
  values = copy.deepcopy(defined())
  for name in spec.conditions():
    help = values[name].help
    delattr(values, name)
    flags.DEFINE_string(name, None, help, flag_values=values)
  define(values)
  _read(argv, intro, values)
  return {name: values[name].value for name in values if values[name].present}


def _read(argv: Sequence[str], intro: str, values: flags.FlagValues) -> None:
  """Fills in the values of a command line; see `parse`."""
  asked = _question(argv[1:])
  if asked is not None:
    show(help.ANSWERS[asked[0]](asked[1], intro))
    sys.exit(0)
  fill(values, [*argv[:1], *flagfiles.expanded(argv[1:])])


def fill(values: flags.FlagValues, argv: Sequence[str]) -> None:
  """Fills in the values of flags from a command line without flag files.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
  """
  try:
    _, *others = values(list(argv))
  except flags.Error as error:
    raise ValueError(mistakes.of_flags(error, values)) from None
  if others:
    raise ValueError(mistakes.not_a_flag(others[0], values))


def show(text: str) -> None:
  """Prints an answer, with commands as they are called here."""
  print(command.as_called_here(text))


def _question(arguments: Sequence[str]) -> tuple[str, str | None] | None:
  """The first option that asks for an answer, and its word."""
  options = {"h": "help", "helpfull": "help"} | {n: n for n in help.ANSWERS}
  for i, argument in enumerate(arguments):
    found = re.fullmatch(r"--?(\w+)(?:=(.*))?", argument)
    if not found or found[1] not in options:
      continue
    word = found[2]
    following = arguments[i + 1 : i + 2]
    if word is None and following and not following[0].startswith("-"):
      word = following[0]
    return options[found[1]], word or None
  return None


def refuse(error: Exception) -> int:
  """Prints in one line what cannot be; returns the exit status."""
  print(f"error: {command.as_called_here(line_of(error))}", file=sys.stderr)
  return 1


def line_of(error: Exception) -> str:
  """What an error says, in one line; most of MemoryError say nothing."""
  return " ".join(str(error).split()) or "out of memory"
