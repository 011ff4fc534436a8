"""Runs the cells of a study: each once, several at a time, none twice."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments import job, workers
from experiments.specification.spec import Spec
from experiments.store import Store
from experiments.studies.plan import Planned
from fedjax_opt.results.load import Run
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study.cells import Measured
from fedjax_opt.study.tuning import Ran, Tuned, tune


class Done(NamedTuple):
  """A cell that ran."""

  cell: Planned
  tuned: Tuned


def check(cells: Sequence[Planned], store: Store) -> bool:
  """Checks with their data what is to run; nothing is compiled or written.

  Each method is checked under one condition, each condition with one method.

  Args:
    cells: which.
    store: of all runs; cells that are there are not checked again.

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
    if store.find(_first(cell)) is not None:
      continue
    if cell.method in methods and condition in conditions:
      continue
    methods.add(cell.method)
    conditions.add(condition)
    try:
      found = job.prepare(cell.spec, store.loader.of(cell.spec))
    except ValueError as error:
      raise ValueError(f"method {cell.method}: {error}") from None
    has_classes |= found.task.num_classes is not None
  return has_classes


def run_all(
  cells: Sequence[Planned], store: Store, jobs: int
) -> Iterator[Done]:
  """Runs all cells that are not there, and yields each as it is done.

  Args:
    cells: which.
    store: of all runs.
    jobs: cells at a time. One runs in this process, so that methods share what
      was compiled; several each in a process of its own, on one core.

  Raises:
    Interrupted: if Ctrl-C ended one; those that are done stay.
    RunFailed: if a run failed, with what it said.
  """
  if jobs == 1:
    for cell in cells:
      yield run_cell(cell, store)
  else:
    yield from workers.run_all(run_cell, cells, store, jobs)


def run_cell(cell: Planned, store: Store) -> Done:
  """Runs one cell: its grid, then its best setting with fresh seeds."""

  def run(grid, seeds, is_report):
    spec = cell.spec
    if is_report:
      spec = spec.at({name: v[0] for name, v in grid.items()}, seeds)
    return ran(*store.run(spec))

  return Done(cell, tune(run, cell.grid, cell.spec.seed, cell.report_seeds))


def _first(cell: Planned) -> Spec:
  """What a cell runs first: its grid, or its only setting."""
  return cell.spec if cell.grid else cell.spec.at({}, cell.report_seeds)


def ran(run: Run, was_there: bool = False) -> Ran:
  """What a stored run measured."""
  timing = run.summary["timing"]
  return Ran(
    Measured(run.points, run.history),
    Criterion(**run.summary["criterion"]),
    timing["compile_seconds"] + timing["run_seconds"],
    was_there,
    run,
  )
