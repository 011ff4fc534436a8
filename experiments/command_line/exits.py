"""How a command does its work, and how bad input or a signal ends it."""

import sys
from collections.abc import Callable, Mapping, Sequence

from experiments.command_line import mistakes
from experiments.processes import command, failures
from experiments.specification.flag import Flag


def run_program(
  argv: Sequence[str],
  work: Callable[[], int],
  line: Callable[[], str],
  stream: int = 1,
  own_flags: Mapping[str, Flag] = {},
) -> int:
  """Does a program's work; bad input or a signal ends it in one line.

  A defect is raised: its whole traceback is shown.

  Args:
    argv: name of the program, then its arguments.
    work: function that returns the exit status.
    line: function that returns the line for an interrupted program.
    stream: where that line goes: 1 for stdout, 2 for stderr.
    own_flags: flags of the program, beside those of a run.

  Returns:
    The exit status.
  """
  command.set_last_line(line, stream)
  try:
    return work()
  except KeyboardInterrupt as error:
    print(line(), file=sys.stdout if stream == 1 else sys.stderr)
    return command.status_of(error)
  except Exception as error:
    if not failures.is_refusal(error):
      raise
    return refuse(error, argv, own_flags)


def refuse(
  error: Exception, argv: Sequence[str], own_flags: Mapping[str, Flag] = {}
) -> int:
  """Prints an error in one line; returns the exit status."""
  line = mistakes.with_dashes(command.line_of(error), argv, own_flags)
  print(f"error: {command.as_called_here(line)}", file=sys.stderr)
  return 1
