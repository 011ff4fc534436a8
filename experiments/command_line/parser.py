"""From a command line to the values that were given."""

import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.command_line import flag_words, help
from experiments.processes import command
from experiments.specification.flag import Flag
from fedjax_opt.checks import errors, memory
from fedjax_opt.files.folders import user_path
from fedjax_opt.results import folder_digests

_MAX_BYTES = 1_000_000  # Of a file of flags.
_INSTALLED = pathlib.Path(__file__).parents[2]  # The folder of `experiments`.


def parse(argv: Sequence[str], intro: str = "") -> dict[str, Any]:
  """The values of all flags; if help is asked for, prints it instead.

  Args:
    argv: name of the program, then its arguments.
    intro: first lines of the help.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
    SystemExit: after `--help`, `--list` or `--version`.
  """
  return flag_words.completed(dict(given(argv, intro, flag_words.kinds())))


def given(
  argv: Sequence[str],
  intro: str,
  kinds: flag_words.Kinds,
  own_flags: Mapping[str, Flag] = {},
) -> list[tuple[str, Any]]:
  """The flags that are given, and their values, in order; see `parse`.

  Args:
    argv: name of the program, then its arguments.
    intro: first lines of the help.
    kinds: the flags that there are.
    own_flags: see `help.answer`.
  """
  question = _question(argv[1:])
  if question is not None:
    show(help.ANSWERS[question[0]](question[1], intro, own_flags))
    sys.exit(0)
  return flag_words.read(expanded(argv[1:]), kinds)


def show(text: str) -> None:
  """Prints an answer, with commands as they are called in this installation."""
  print(command.as_called_here(text))


def _question(arguments: Sequence[str]) -> tuple[str, str | None] | None:
  """The first option that asks for an answer, and its word."""
  options = {"h": "help"} | {n: n for n in help.ANSWERS}
  for i, argument in enumerate(arguments):
    match = re.fullmatch(r"--?(\w+)(?:=(.*))?", argument)
    if not match or match[1] not in options:
      continue
    word = match[2]
    following = arguments[i + 1 : i + 2]
    if word is None and following and not following[0].startswith("-"):
      word = following[0]
    return options[match[1]], word or None
  return None


# Files of flags, one on each line, as `--flagfile=FILE` names them.


def expanded(
  arguments: Sequence[str], within: tuple[pathlib.Path, ...] = ()
) -> list[str]:
  """The arguments, with the lines of the files in place of `--flagfile`.

  A file that is not there is looked for among those installed with this
  program, so that `--flagfile=experiments/domo/cifar10.flags` works in every
  folder. Blank lines of a file and those that begin with # or // are left out.
  A file may name others; of a flag that is given twice, the last value counts.

  Args:
    arguments: the words of a command line, or the lines of a file.
    within: the files that contain these arguments.

  Raises:
    ValueError: for a file that cannot be read, or that names itself.
  """
  result, words = [], iter(arguments)
  for word in words:
    name, equals, file = word.partition("=")
    if name not in ("--flagfile", "-flagfile"):
      result.append(word)
      continue
    file = (file if equals else next(words, "")).strip()
    if not file:
      raise ValueError("flagfile: must be a file with a flag on each line")
    path = _found(file)
    if path in within:
      raise ValueError(f"flagfile='{file}': names itself")
    result += expanded(_lines(path), (*within, path))
  return result


def _found(file: str) -> pathlib.Path:
  """Where a file is: as given, or where this program is installed."""
  local = user_path(file)
  for path in (local, _INSTALLED / file, _INSTALLED / "experiments" / file):
    if path.is_file():
      return path.resolve()
  return local


def _lines(path: pathlib.Path) -> list[str]:
  with errors.reworded_errors(f"flagfile={str(path)!r}"):
    folder_digests.check(path.parent, path.name)  # If it is that of a run.
  remedy = "must be a file with a flag on each line"
  with errors.while_reading(f"flagfile={str(path)!r}", remedy, ValueError):
    text = memory.read_text(path, _MAX_BYTES)
  lines = [line.strip() for line in text.splitlines()]
  lines = [line for line in lines if line and not line.startswith(("#", "//"))]
  if lines and not lines[0].startswith("-"):
    raise ValueError(
      f"flagfile={str(path)!r}: begins with {lines[0][:40]!r}, which is no "
      f"flag; {remedy}, such as the flags.txt of a run"
    )
  return lines
