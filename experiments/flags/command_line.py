"""The command line: flags in groups, their values, one line for a mistake.

Flags are defined once, when `experiments.flags` is imported. Each call of
`parse` starts from their defaults.
"""

import contextlib
import copy
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags

from experiments import command
from experiments.flags import flagfiles, mistakes
from fedjax_opt.registry import Choice

_FLAGS = flags.FlagValues()  # What is defined; without values between calls.


class Group(NamedTuple):
  """Flags that stand under one title in the help.

  Attributes:
    title: in the help.
    key: one word for it, as in `--help=KEY`.
    names: of the flags.
  """

  title: str
  key: str
  names: list[str]


GROUPS: list[Group] = []

# Answer to an option such as `--help=WORD`: (WORD or None, intro) -> text.
Answer = Callable[[str | None, str], str]
_ANSWERS: dict[str, Answer] = {}


@contextlib.contextmanager
def group(title: str, key: str) -> Iterator[None]:
  """The flags that are defined inside stand under this title in the help."""
  before = set(_FLAGS)
  yield
  added = [name for name in _FLAGS if name not in before]
  GROUPS.append(Group(title, key, added))


def answer(option: str, of: Answer) -> None:
  """Defines an option, such as --help, that is answered instead of a run."""
  _ANSWERS[option] = of


def text(name: str, default: str | None, help: str) -> None:
  """Defines a flag whose value is text."""
  flags.DEFINE_string(name, default, help, flag_values=_FLAGS)


def integer(name: str, default: int | None, help: str) -> None:
  """Defines a flag whose value is a whole number."""
  flags.DEFINE_integer(name, default, help, flag_values=_FLAGS)


def number(name: str, default: float | None, help: str) -> None:
  """Defines a flag whose value is a number."""
  flags.DEFINE_float(name, default, help, flag_values=_FLAGS)


def switch(name: str, default: bool | None, help: str) -> None:
  """Defines a flag that is given as --name or --noname."""
  flags.DEFINE_bool(name, default, help, flag_values=_FLAGS)


def listed(registry: Mapping[str, Choice]) -> str:
  """The entries of a registry, one on each line, for a flag's help."""
  width = max(map(len, registry))
  return "".join(
    f"\n{name:{width}}  {choice.help}" for name, choice in registry.items()
  )


def parse(argv: Sequence[str], intro: str) -> dict[str, Any]:
  """The values of all flags; prints help instead if asked for it.

  Args:
    argv: name of the program, then its arguments.
    intro: first lines of the help.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
    SystemExit: after `--help`, `--list` or `--version`.
  """
  try:  # A copy would take ten times as long as all the rest.
    values = _read(argv, intro, _FLAGS)
    return {name: values[name].value for name in names()}
  finally:
    _FLAGS.unparse_flags()


def given(
  argv: Sequence[str],
  intro: str,
  define: Callable[[flags.FlagValues], None],
  listed: Sequence[str],
) -> dict[str, Any]:
  """The values of those flags that were given, for a program that has more.

  Args:
    argv: name of the program, then its arguments.
    intro: first lines of the help.
    define: defines the program's own flags.
    listed: flags that take several values between commas here.

  Returns:
    name -> value: as the flag reads it, for `listed` its text.

  Raises:
    ValueError: see `parse`.
    SystemExit: see `parse`.
  """
  values = copy.deepcopy(_FLAGS)
  for name in listed:
    help = values[name].help
    delattr(values, name)
    flags.DEFINE_string(name, None, help, flag_values=values)
  define(values)
  values = _read(argv, intro, values)
  return {name: values[name].value for name in values if values[name].present}


def _read(
  argv: Sequence[str], intro: str, values: flags.FlagValues
) -> flags.FlagValues:
  """Fills in the values of a command line; see `parse`."""
  asked = _question(argv[1:])
  if asked is not None:
    option, word = asked
    _print(_ANSWERS[option](word, intro))
    sys.exit(0)
  try:
    _, *others = values([*argv[:1], *flagfiles.expanded(argv[1:])])
  except flags.Error as error:
    raise ValueError(mistakes.of_flags(error, values)) from None
  if others:
    raise ValueError(mistakes.not_a_flag(others[0], values))
  return values


def _print(text: str) -> None:
  """Prints to a reader that may stop reading, such as `head`."""
  try:
    print(command.as_called_here(text), flush=True)
  except BrokenPipeError:
    # What Python would write at its end goes nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _question(arguments: Sequence[str]) -> tuple[str, str | None] | None:
  """The first option that asks for an answer, and its word."""
  options = {"h": "help", "helpfull": "help"} | {n: n for n in _ANSWERS}
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


def argument(name: str, value: Any) -> str:
  """A flag with its value as a command line has it."""
  if isinstance(value, bool):
    return f"--{name}" if value else f"--no{name}"
  return f"--{name}={value}"


def refuse(error: Exception) -> int:
  """Prints in one line what cannot be; returns the exit status."""
  print(f"error: {command.as_called_here(line_of(error))}", file=sys.stderr)
  return 1


def line_of(error: Exception) -> str:
  """What an error says, in one line; most of MemoryError say nothing."""
  return " ".join(str(error).split()) or "out of memory"


def names() -> list[str]:
  """All flags, in the order of the help."""
  return [name for group in GROUPS for name in group.names]


def flag(name: str) -> flags.Flag:
  """A flag as it was defined."""
  return _FLAGS[name]


# Flags of a process or of its folder, which say nothing about the run itself.
_OF_A_PROCESS = (
  "cluster", "coordinator", "num_processes", "output_dir", "process_id",
  "progress", "resume",
)  # fmt: skip


def flagfile(values: Mapping[str, Any]) -> str:
  """A flagfile that gives these values again: those that are no defaults.

  Args:
    values: of all flags, as `parse` gives them.

  Returns:
    One `--name=value` a line, in the order of the help.
  """
  lines = []
  for name in names():
    value = values[name]
    if name in _OF_A_PROCESS or value == _FLAGS[name].default:
      continue
    shown = str(value).lower() if _FLAGS[name].boolean else value
    lines.append(f"--{name}={shown}\n")
  return "".join(lines)
