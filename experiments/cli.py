"""One command for all that can be run: `fedjax-opt COMMAND [flags]`.

  fedjax-opt run --client=sgd --client_lr=0.01,0.1

is `python -m experiments.run` with these flags, and works in every folder.
"""

import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

from experiments.processes import command


class _Command(NamedTuple):
  """What a command does.

  Attributes:
    help: one line.
    module: has `main(argv) -> int`; imported only if the command is called.
    example: arguments with which the command works as it is.
    option: its first argument, if the command is an option of that program. A
      word after the command is then the option's value.
  """

  help: str
  module: str
  example: str | None = None
  option: str | None = None


_COMMANDS = {
  "run": _Command(
    "an algorithm on a task, or a grid of settings at once",
    "experiments.run",
    "--client=sgd --client_lr=0.03,0.1,0.3",
  ),
  "compare": _Command(
    "several methods, tuned alike, with a report",
    "experiments.compare",
    "--method=fed_avg --method=scaffold --seed=0,1",
  ),
  "reproduce": _Command(
    "the papers' tables and figures, made again",
    "experiments.reproduce",
    "--artefact=domo/table1 --size=cpu",
  ),
  "convert": _Command(
    "a task's clients into a folder that is read from disk",
    "experiments.convert",
    "--task=digits --population_dir=clients",
  ),
  "list": _Command(
    "all choices by name, or list KIND", "experiments.run", option="--list"
  ),
  "version": _Command(
    "versions and device", "experiments.run", option="--version"
  ),
}
_HELP = ("-h", "-help", "--help", "help")
_COMPLETION = "--completion="
_WIDTH = max(map(len, _COMMANDS))


def script() -> None:
  """The console script: exits with the status of `main`."""
  command.run(main)


def main(argv: Sequence[str]) -> int:
  """Runs a command.

  Args:
    argv: name of the program, the command, then its arguments.

  Returns:
    The exit status; 1 if there is no such command.
  """
  name, *arguments = argv[1:] or ["help"]
  if name in _HELP:
    print(_help())
    return 0
  if name.startswith(_COMPLETION):
    return _complete(name.removeprefix(_COMPLETION))
  name = "version" if name == "--version" else name
  if name not in _COMMANDS:
    print(f"error: {_unknown(name)}", file=sys.stderr)
    return 1
  entry = _COMMANDS[name]
  program = importlib.import_module(entry.module)
  if entry.option is not None:
    arguments = [entry.option, *arguments]
  return program.main([f"fedjax-opt {name}", *arguments])


def _complete(shell: str) -> int:
  """Prints what a shell completes; returns the exit status."""
  from experiments import completion  # It imports JAX, as all commands do.

  if shell not in completion.SHELLS:
    shells = " or ".join(completion.SHELLS)
    print(f"error: completion={shell!r}: must be {shells}", file=sys.stderr)
    return 1
  print(completion.script(shell, _COMMANDS))
  return 0


def _help() -> str:
  lines = []
  for name, entry in _COMMANDS.items():
    lines.append(f"  {name:{_WIDTH}}  {entry.help}")
    if entry.example is not None:
      lines.append(f"  {'':{_WIDTH}}  fedjax-opt {name} {entry.example}")
  return "\n".join(
    [
      "usage: fedjax-opt COMMAND [flags]",
      "",
      *lines,
      "",
      "fedjax-opt run --help shows the flags of run. To let the shell complete",
      "them, source what fedjax-opt --completion=bash (or zsh) prints.",
    ]
  )


def _unknown(name: str) -> str:
  """The message for an unknown command; a flag was probably meant for `run`."""
  if name.startswith("-"):
    return f"{name!r}: must come after a command: fedjax-opt run {name}"
  near = difflib.get_close_matches(name, _COMMANDS, 1)
  hint = f"; did you mean {near[0]}?" if near else ""
  return f"{name!r}: must be one of {', '.join(_COMMANDS)}{hint}"
