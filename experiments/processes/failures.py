"""Which errors are of what a command was given, and which are defects."""

import pathlib
import traceback

from experiments.processes import command
from experiments.processes.command import RunFailed
from fedjax_opt.checks import errors

_EXPERIMENTS = pathlib.Path(__file__).parents[1]


class CellFailed(Exception):
  """A defect ended a cell in another process; the message is its traceback."""


def is_refusal(error: Exception) -> bool:
  """Whether one line says all of an error.

  So it is if a check raised it, or if the machine did: a file cannot be read,
  or memory is full. All else, such as a ValueError of NumPy, is a defect, and
  only its traceback says where.
  """
  if isinstance(error, RunFailed | OSError | MemoryError):
    return True
  return errors.is_own(error) or errors.is_own(error, _EXPERIMENTS)


def across_processes(error: Exception) -> Exception:
  """What the parent raises for an error of a worker, without its traceback."""
  if is_refusal(error):
    return RunFailed(command.line_of(error))
  return CellFailed("".join(traceback.format_exception(error)))
