"""Experiments of the papers, from the command line: see run.py."""

import sys
import time

# Before anything that takes long to import.
_process_started: float | None = time.monotonic()

if sys.argv[:1] == ["-m"]:  # While Python looks for the program to run.
  from experiments import command

  command.begin()


def start_of_run() -> float:
  """When a run began, in seconds of `time.monotonic`.

  The first run of a process began with the process, imports included; any other
  begins now.
  """
  global _process_started
  started, _process_started = _process_started, None
  return time.monotonic() if started is None else started
