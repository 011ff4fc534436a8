"""Cells for tests of workers; a module that is imported quickly.

  python -m tests.experiments.some_cells FOLDER

runs six cells that take their time, two at a time.
"""

import os
import pathlib
import signal
import sys
import time

from experiments import workers


def sleep(number, folder):
  """A cell: says in which process it is, then takes its time."""
  (folder / f"{number}").write_text(str(os.getpid()))
  time.sleep(60)


def square(number, folder):
  return number**2


def fail(number, folder):
  if number:
    time.sleep(60)
  raise workers.RunFailed("of no use")


def die(number, folder):
  os._exit(3)


def main(folder):
  # What starts the tests may ignore Ctrl-C, as a shell does in the background.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  try:
    list(workers.run_all(sleep, range(6), pathlib.Path(folder), jobs=2))
  except KeyboardInterrupt:
    sys.exit(130)
  except workers.Interrupted as error:
    sys.exit(error.status)


if __name__ == "__main__":
  main(sys.argv[1])
