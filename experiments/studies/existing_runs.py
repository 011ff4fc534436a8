"""Cells made of the folders of runs that are there."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.specification import spec as specs
from experiments.stored.same_data import check_same_data
from experiments.stored.store import Store
from experiments.studies import planned_cells
from experiments.studies.cell_runs import results_of, with_files
from experiments.studies.labels import labels_of_runs
from experiments.studies.planned_cells import PlannedCell
from experiments.studies.request import Request
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.data import digest
from fedjax_opt.results.load import Run, load_run
from fedjax_opt.study.cells import Cell, PointResults

# Flags of a study that say how methods run.
_HOW_METHODS_RUN = (
  "jobs", "executor", "report_seeds", "nested", "crossed", "budget",
)  # fmt: skip


def planned_and_existing(
  request: Request,
) -> tuple[list[PlannedCell], list[Cell]]:
  """The cells that are to run, and cells made of existing runs."""
  if not request.runs:
    return planned_cells.plan(request), []
  runs = load_runs(request.runs)
  if request.methods:
    return _beside_runs(request, runs)
  _check_alone(request)
  varied = varied_among([run.config for run in runs])
  return [], cells_of_runs(runs, varied)


def _check_alone(request: Request) -> None:
  """Checks that a study of existing runs alone has no flag of methods."""
  changed = request.changed()
  unused = request.flags | {
    name: changed[name] for name in _HOW_METHODS_RUN if name in changed
  }
  if name := next(iter(unused), None):
    raise ValueError(
      f"{name}={unused[name]}: the runs have their own flags; leave {name} "
      "out, or give methods too"
    )


def _beside_runs(
  request: Request, runs: Sequence[Run]
) -> tuple[list[PlannedCell], list[Cell]]:
  """The cells of methods that run, and those of runs that are there.

  Their conditions are all flags that may be conditions and differ between a run
  and any other run or cell.
  """
  planned, configs = planned_cells.plan(request), [run.config for run in runs]
  # Defaults that the clients limit count as those of the runs.
  values = [cell.spec.as_limited_in(configs[0]).values() for cell in planned]
  # A flag that differs only between planned cells may be a method's own. What
  # the clients limit everywhere is told by their flags.
  varied = list(planned[0].condition)
  limited = [
    name
    for name in specs.SIZE_FLAGS
    if all(name in config.get(specs.LIMITED, ()) for config in configs)
    and all(name not in cell.spec.user_flags for cell in planned)
  ]
  for config in values:
    names = varied_among([*configs, config])
    varied += [name for name in names if name not in (*varied, *limited)]
  planned = [
    cell._replace(condition={n: config.get(n) for n in varied})
    for cell, config in zip(planned, values, strict=True)
  ]
  own_labels = [method.get("label") for method in request.methods]
  unlabelled = [cell for cell in planned if cell.method not in own_labels]
  existing = cells_of_runs(runs, varied, unlabelled)
  check_labels(planned, existing)
  return planned, existing


def load_runs(folders: Sequence[str]) -> list[Run]:
  """Runs that are there.

  Raises:
    ValueError: if a folder holds no complete run.
  """
  runs = []
  for folder in folders:
    with reworded_errors(folder="runs"):
      run = load_run(folder)
    if not run.is_complete:
      raise ValueError(
        f"runs={folder!r}: the run did not end; go on with it by --resume"
      )
    runs.append(run)
  return runs


def varied_among(configs: Sequence[Mapping[str, Any]]) -> list[str]:
  """The flags that may be conditions and differ between runs."""
  return [
    name
    for name in specs.conditions()
    if len({str(config.get(name)) for config in configs}) > 1
  ]


def cells_of_runs(
  runs: Sequence[Run],
  varied: Sequence[str],
  planned: Sequence[PlannedCell] = (),
) -> list[Cell]:
  """Cells of existing runs, each with its own choice among its settings.

  Methods are named by the choices of their flags and, if these are the same, by
  other flags that differ.

  Args:
    runs: which.
    varied: flags whose values are the conditions, see `varied_among`.
    planned: cells of the same study that are to run, whose labels are made of
      their flags; a run of one of these methods has its label.

  Raises:
    ValueError: if two runs have the same method and condition.
  """
  by_run = [{n: run.config.get(n) for n in varied} for run in runs]
  methods = [(cell.method, cell.spec.values()) for cell in planned]
  labels = labels_of_runs(runs, by_run, methods)
  return [
    with_files(Cell(label, condition, *_tuned(run)))
    for run, label, condition in zip(runs, labels, by_run, strict=True)
  ]


def _tuned(run: Run) -> tuple[PointResults | None, PointResults | None]:
  """A run whose best setting is reported with the seeds that chose it."""
  results = results_of(run)
  outcome = results.outcome
  if outcome.budget == 1:
    return None, results
  return results, results.take(outcome.best.points) if outcome.best else None


def check_labels(
  planned: Sequence[PlannedCell], existing: Sequence[Cell]
) -> None:
  """Checks that no method has the label of a run under the same condition.

  Raises:
    ValueError: naming the label and the run.
  """
  for cell, old in itertools.product(planned, existing):
    if (cell.method, cell.condition) == (old.method, old.condition):
      raise ValueError(
        f"method: the run {str(old.parts[0].run.folder)!r} has the label "
        f"{cell.method!r} too; give the method a label=NAME of its own"
      )


def check_data(
  existing: Sequence[Cell], planned: Sequence[PlannedCell], store: Store
) -> None:
  """Checks that existing runs have the data of all else of their condition.

  The test examples are always the same; all data are, if the seeds and the
  flags that say what they are agree.
  """
  names = [
    name
    for name, flag in specs.all_flags().items()
    if flag.is_identity and flag.group.key in ("task", "data", "selection")
  ]
  found = [
    (cell.condition, f"the run {str(run.folder)!r}", run.config, digests)
    for cell in existing
    for run in [cell.parts[0].run]
    for digests in [run.config.get(digest.DATA_DIGESTS, {})]
  ]
  for cell in planned if existing else ():
    if digests := store.digests_of(cell.spec):
      flags = cell.spec.values()
      found.append((cell.condition, f"method {cell.method}", flags, digests))
  tests = [
    (condition, whose, {"test": digests.get("test")})
    for condition, whose, _, digests in found
  ]
  alike = [
    ((condition, [flags.get(n) for n in ("seed", *names)]), whose, digests)
    for condition, whose, flags, digests in found
  ]
  check_same_data("runs", [*tests, *alike], "give runs on the same data")
