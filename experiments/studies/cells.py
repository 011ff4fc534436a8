"""Runs the cells of a study: each once, several at a time, none twice."""

import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments import job, once, workers
from experiments.flags import command_line
from experiments.studies.plan import Planned
from fedjax_opt.results.load import Run
from fedjax_opt.results.selection import Criterion, tune
from fedjax_opt.study import words

_TUNING = "tuning"  # The folder of a cell's grid.


class Done(NamedTuple):
  """A cell that ran.

  Attributes:
    cell: which.
    tuning: folder of its grid; None if there was nothing to tune.
    report: folder of the chosen setting; None if all settings diverged.
    seconds: time that it took now; 0 if all was there.
  """

  cell: Planned
  tuning: pathlib.Path | None
  report: pathlib.Path | None
  seconds: float


def check(cells: Sequence[Planned], folder: pathlib.Path) -> bool:
  """Checks with their data what is to run; nothing is compiled or written.

  Each method is checked under one condition, each condition with one method.

  Args:
    cells: which.
    folder: of all runs; cells that are there are not checked again.

  Returns:
    Whether there is any whose task has classes, and so an accuracy.

  Raises:
    ValueError: naming the flag that cannot be, or the folder of a cell that ran
      on other data.
    ImportError: naming the package to install.
  """
  methods, conditions, has_classes = set(), set(), False
  for cell in cells:
    condition = str(cell.condition)
    if _has_begun(cell, folder / cell.name):
      continue
    if cell.method in methods and condition in conditions:
      continue
    methods.add(cell.method)
    conditions.add(condition)
    try:
      found = job.prepare(command_line.parse(["run", *cell.tuning], ""))
    except ValueError as error:
      raise ValueError(f"method {cell.method}: {error}") from None
    has_classes |= found.task.num_classes is not None
  return has_classes


def run_all(
  cells: Sequence[Planned], folder: pathlib.Path, jobs: int
) -> Iterator[Done]:
  """Runs all cells that are not there, and yields each as it is done.

  Args:
    cells: which.
    folder: of all runs; each cell has a folder in it.
    jobs: cells at a time. One runs in this process, so that methods share what
      was compiled; several each in a process of its own, on one core.

  Raises:
    Interrupted: if Ctrl-C ended one; those that are done stay.
    RunFailed: if a run failed, with what it said.
  """
  if jobs == 1:
    for cell in cells:
      yield run_cell(cell, folder)
  else:
    yield from workers.run_all(run_cell, cells, folder, jobs)


def run_cell(cell: Planned, folder: pathlib.Path) -> Done:
  """Runs one cell: its grid, then its best setting with fresh seeds.

  A run whose folder is complete is not run again; one that was stopped goes on
  from its last checkpoint, or starts again.
  """
  start = time.monotonic()
  was_there = True
  own, tuning, setting = folder / cell.name, None, {}
  if cell.grid:
    tuning = own / _TUNING
    tuned, found = once.run(tuning, cell.tuning)
    was_there = found
    best = tune(tuned.history, tuned.points, criterion_of(tuned)).best
    if best is None:
      return Done(cell, tuning, None, time.monotonic() - start)
    setting = best.hyperparameters
  report = own / _report_folder(cell)
  _, found = once.run(report, cell.report(setting))
  seconds = 0.0 if was_there and found else time.monotonic() - start
  return Done(cell, tuning, report, seconds)


def _has_begun(cell: Planned, own: pathlib.Path) -> bool:
  """Whether the first of a cell's runs is there."""
  if cell.grid:
    return once.find(own / _TUNING, cell.tuning) is not None
  return once.find(own / _report_folder(cell), cell.report({})) is not None


def _report_folder(cell: Planned) -> str:
  """Of the report, by its seeds: with others the grid is not run again."""
  seeds = words.counted(len(cell.report_seeds), "seed")
  return f"report-{seeds.replace(' ', '-')}"


def criterion_of(done: Run) -> Criterion:
  """The criterion by which a run's settings are compared."""
  return Criterion(**done.summary["criterion"])
