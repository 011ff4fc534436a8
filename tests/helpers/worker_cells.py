"""Cells for tests of workers; a module that is imported quickly.

  python -m tests.helpers.worker_cells FOLDER [program]

runs six cells that take their time, two at a time: as a command, or as a
program of one's own, which answers no signals.
"""

import os
import pathlib
import signal
import sys
import time

from experiments.processes import command, workers


def sleep(number, folder):
  """A cell: says in which process it is, then takes its time."""
  (folder / f"{number}-{os.getpid()}").touch()  # Whole as soon as it is there.
  for _ in range(600):  # A signal just before a sleep does not shorten it.
    time.sleep(0.1)


def square(number, folder):
  return number**2


def process(number, folder):
  return os.getpid()


def flags(number, folder):
  """A cell: of the compiler, which then has one core."""
  return os.environ["XLA_FLAGS"]


def fail(number, folder):
  if number:
    time.sleep(60)
  raise workers.RunFailed("of no use")


def die(number, folder):
  os._exit(3)


def counted(cell, store):
  """One cell of a study: says in which process it begins and ends."""
  from experiments.studies import cell_runs  # Slow.

  name = store.folder_of(cell.first_run).name
  log = store.folder.parent.parent / f"log-{name}"
  with open(log, "a") as file:
    file.write(f"{os.getpid()}\n")
  result = cell_runs.run_cell(cell, store)
  with open(log, "a") as file:
    file.write("end\n")
  return result


def main(argv):
  list(workers.map_cells(sleep, range(6), pathlib.Path(argv[1]), jobs=2))
  return 0


if __name__ == "__main__":
  # What starts the tests may ignore Ctrl-C, as a shell does in the background.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  sys.exit(main(sys.argv)) if sys.argv[2:] else command.run(main)
