"""The command line, and the experiments of the papers.

CONTRIBUTING.md shows, file by file, how a flag takes effect.
"""

import sys
import time

# It is set before any import that takes long.
_process_started: float | None = time.monotonic()

if sys.argv[:1] == ["-m"]:  # While Python looks for the program to run.
  from experiments.processes import command

  command.begin()


def start_of_run() -> float:
  """When a run began, in seconds of `time.monotonic`.

  The first run of a process began when the process did, so it includes the
  imports. Any other run begins now.
  """
  global _process_started
  started, _process_started = _process_started, None
  return time.monotonic() if started is None else started
