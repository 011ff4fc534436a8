"""From a command line to the values that were given."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import command
from experiments.command_line import flagfiles, help, mistakes
from experiments.command_line.flags import Reader, defined, value_of
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
  _answer(argv[1:], intro)
  known = defined()
  given = read(argv[1:], {name: flag.type for name, flag in known.items()})
  return {name: flag.default for name, flag in known.items()} | given


def given(
  argv: Sequence[str], intro: str, own: Mapping[str, Reader]
) -> dict[str, Any]:
  """The values of those flags that were given, for a program that has more.

  Conditions take several values between commas here, and are text.

  Args:
    argv: name of the program, then its arguments.
    intro: first lines of the help.
    own: name -> type of the program's own flags.

  Returns:
    name -> value.

  Raises:
    ValueError: see `parse`.
    SystemExit: see `parse`.
  """
  _answer(argv[1:], intro)
  types = {name: flag.type for name, flag in defined().items()}
  return read(argv[1:], types | dict.fromkeys(spec.conditions(), str) | own)


def read(
  arguments: Sequence[str], types: Mapping[str, Reader]
) -> dict[str, Any]:
  """The values that a command line gives, in the order of the flags.

  Args:
    arguments: --name=value, --name value, --name or --noname.
    types: of all flags, by name.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
  """
  found: dict[str, Any] = {}
  words = iter(flagfiles.expanded(arguments))
  for word in words:
    name, equals, text = word.lstrip("-").partition("=")
    if not word.startswith("-") or not name:
      raise ValueError(mistakes.not_a_flag(word, types))
    switch = name if name in types else name.removeprefix("no")
    if not equals and types.get(switch) is bool:
      found[switch] = switch == name
      continue
    if name not in types:
      raise ValueError(mistakes.no_such_flag(name, types))
    text = text if equals else next(words, None)
    if text is None:
      raise ValueError(mistakes.no_value(name))
    if types[name] is list:
      found[name] = [*found.get(name, []), text]
    else:
      found[name] = value_of(name, text, types[name])
  return {name: found[name] for name in types if name in found}


def _answer(arguments: Sequence[str], intro: str) -> None:
  """Prints what an option asks for, and ends the program, if there is one."""
  asked = _question(arguments)
  if asked is not None:
    _print(help.ANSWERS[asked[0]](asked[1], intro))
    sys.exit(0)


def _print(text: str) -> None:
  """Prints to a reader that may stop reading, such as `head`."""
  try:
    print(command.as_called_here(text), flush=True)
  except BrokenPipeError:
    # What Python would write at its end goes nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
