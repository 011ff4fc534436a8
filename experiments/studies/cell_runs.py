"""Runs the cells of a study."""

import csv
import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from experiments.processes import command
from experiments.single_run import extra_metrics, job
from experiments.single_run.loading import Loaded, Loader
from experiments.specification.spec import Spec
from experiments.stored.store import Store
from experiments.studies.planned_cells import PlannedCell, of_method
from experiments.studies.request import Request
from fedjax_opt.checks.values import nearest
from fedjax_opt.results.load import Run
from fedjax_opt.results.metric_names import direction
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import sizes
from fedjax_opt.study.cells import Cell, PointResults


def check(cells: Sequence[PlannedCell], store: Store, request: Request) -> None:
  """Checks the cells that will run, with their data; compiles nothing.

  Each method and each condition is in a cell that is checked; not each pair of
  them.

  Args:
    cells: which.
    store: store of all runs; cells that it has are not checked again.
    request: of the study; its metric must be measured, and its target and
      effect possible where the default metric is the accuracy.

  Raises:
    ValueError: naming the invalid flag, or the folder of a cell that ran
      on other data.
    ImportError: naming the package to install.
  """
  checked_methods, checked_conditions = set(), set()
  spec_of = {(cell.method, str(cell.condition)): cell.spec for cell in cells}
  for cell in cells:
    condition = str(cell.condition)
    if store.find(cell.first_run) is not None:
      continue
    if cell.method in checked_methods and condition in checked_conditions:
      continue
    checked_methods.add(cell.method)
    checked_conditions.add(condition)
    prepared = lambda label, of=condition: _prepared(spec_of[label, of], store)
    methods = {label: () for label, of in spec_of if of == condition}
    prepared_job = of_method(cell.method, methods, prepared)
    if request.metric:
      names = prepared_job.simulator.metric_names(prepared_job.task.init)
      names += extra_metrics.names_of(prepared_job)
      check_measured(request.metric, cell.method, names)
    if prepared_job.task.has_accuracy:
      request.check_numbers(request.metric or "test_accuracy")


def _prepared(spec: Spec, store: Store) -> job.Job:
  """A job with its data."""
  return job.prepare(spec, store.loader.load(spec))


def check_measured(metric: str, method: str, names: Collection[str]) -> None:
  """Checks that a method measures the metric of the comparison.

  Args:
    metric: its name.
    method: its label.
    names: the metrics that it measures.

  Raises:
    ValueError: if it is not among them.
  """
  if metric in names:
    return
  usual = [n for n in names if direction(n) and "decile" not in n]
  near = nearest(metric, names)
  raise ValueError(
    f"metric={metric!r}: {method} does not measure it; it measures "
    f"{', '.join(usual)}{f'; did you mean {near[0]}?' if near else ''}"
  )


def run_cell(cell: PlannedCell, store: Store) -> tuple[PlannedCell, Cell]:
  """Runs one cell: its grid, then its best setting with fresh seeds."""
  run = lambda *args: results_of(*store.run(cell.at(*args)))
  ran = with_files(cell.tune(run))
  # Its data are in memory still, also if the cell has no grid.
  if loaded := loaded_data(cell.first_run, store.loader):
    task = loaded.task
    sets = sizes.example_sets(task.validation, task.test)
    ran = dataclasses.replace(ran, sets=sets)
  return cell, ran


def loaded_data(spec: Spec, loader: Loader) -> Loaded | None:
  """The data of a run; None if they can no longer be read."""
  try:
    return loader.load(spec)
  except (OSError, ValueError, ImportError):
    return None


def results_of(run: Run, was_stored: bool = False) -> PointResults:
  """What a stored run measured."""
  timing = run.summary["timing"]
  return PointResults(
    run.points,
    run.history,
    Criterion(**run.summary["criterion"]),
    timing["compile_seconds"] + timing["run_seconds"],
    was_stored,
    # The models of all cells would fill the memory.
    dataclasses.replace(run, params=None),
  )


def with_files(cell: Cell) -> Cell:
  """The cell, with what the folders of its runs hold; see `Cell`."""
  runs = [part.run for part in cell.parts]
  # A nested run stores this for one point, not for its first seed's choice.
  has_own = cell.report_runs is not None and not cell.is_nested
  report = cell.report_runs.run if has_own else None
  files = cell.files._replace(
    commands=tuple(dict.fromkeys(map(_command, runs))),
    per_client=_per_client(report),
    step_sizes=_step_sizes(report, cell) if report else {},
    is_verified=all(run.is_verified for run in runs),
  )
  return dataclasses.replace(cell, files=files)


def _command(run: Run) -> str:
  """The command that ran it."""
  lines = (run.folder / "flags.txt").read_text("utf-8").split("\n")
  flags = [line for line in lines if line.startswith("--")]
  return command.line("run", [*flags, f"--output_dir={run.folder}"])


def _per_client(run: Run | None) -> dict[str, np.ndarray]:
  """kind of model -> accuracy of each client on its held-out examples."""
  path = None if run is None else run.folder / "per_client.csv"
  if path is None or not path.exists():
    return {}
  # Not with pandas: no reader of it returns every number exactly in all
  # versions.
  with open(path, encoding="utf-8", newline="") as file:
    header, *rows = csv.reader(file)
  end, number = "_accuracy", lambda cell: float(cell or "nan")
  return {
    name.removesuffix(end): np.array([number(row[i]) for row in rows])
    for i, name in enumerate(header)
    if name.endswith(end)
  }


def _step_sizes(run: Run, cell: Cell) -> dict[str, np.ndarray]:
  """The traces of the first point of the chosen setting, each [R, C, K]."""
  path = run.folder / "traces.npz"
  if not path.exists():
    return {}
  first = run.points.index(cell.report_runs.points[0])
  with np.load(path) as traces:
    return {name: traces[name][first] for name in traces.files}
