"""Runs the cells of a study: each once, several at a time, none twice."""

import concurrent.futures
import contextlib
import io
import multiprocessing
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments import reproduce, run
from experiments.studies.plan import Planned
from fedjax_opt.results.load import Run
from fedjax_opt.results.selection import Criterion, tune

INTERRUPTED = 130  # The exit status of a run that Ctrl-C ended.


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


class Interrupted(Exception):
  """Ctrl-C ended a run."""


class RunFailed(Exception):
  """A run failed, with what it said."""


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
    return
  # The workers read it as they start.
  flags = os.environ.get("XLA_FLAGS", "")
  os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false"
  try:
    with concurrent.futures.ProcessPoolExecutor(
      jobs, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
      waiting = [pool.submit(run_cell, cell, folder) for cell in cells]
      try:
        for done in concurrent.futures.as_completed(waiting):
          yield done.result()
      except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
  finally:
    os.environ["XLA_FLAGS"] = flags


def run_cell(cell: Planned, folder: pathlib.Path) -> Done:
  """Runs one cell: its grid, then its best setting with fresh seeds.

  A run whose folder is complete is not run again; one that was stopped goes on
  from its last checkpoint, or starts again.
  """
  start = time.monotonic()
  was_there = True
  own, tuning, setting = folder / cell.name, None, {}
  if cell.grid:
    tuning = own / "tuning"
    tuned, found = _run(tuning, cell.tuning)
    was_there = found
    best = tune(tuned.history, tuned.points, criterion_of(tuned)).best
    if best is None:
      return Done(cell, tuning, None, time.monotonic() - start)
    setting = best.hyperparameters
  report = own / "report"
  _, found = _run(report, cell.report(setting))
  seconds = 0.0 if was_there and found else time.monotonic() - start
  return Done(cell, tuning, report, seconds)


def criterion_of(done: Run) -> Criterion:
  """The criterion by which a run's settings are compared."""
  return Criterion(**done.summary["criterion"])


def _run(folder: pathlib.Path, arguments: list[str]) -> tuple[Run, bool]:
  """A run with these flags, and whether it was there already."""
  found = reproduce.find(folder, arguments)
  if found is not None:
    return found, True
  command = [*arguments, f"--output_dir={folder}", "--noprogress"]
  if (folder / "config.json").exists():
    command.append("--resume")
  said = io.StringIO()
  with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
    status = run.main(["experiments.run", *command])
  if status >= 128:
    raise Interrupted
  found = reproduce.find(folder, arguments)
  if found is None:  # Of a grid whose points all diverged there is a result.
    lines = [line for line in said.getvalue().splitlines() if line.strip()]
    raise RunFailed(lines[-1] if lines else f"exit status {status}")
  return found, False
