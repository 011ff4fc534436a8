"""Runs a cell of a reference: its grid, then its best setting, fresh seeds.

If the best value of a hyperparameter is at an edge of the grid, the grid is
extended there by one value, in the ratio of the last two, if the flag takes
that value. This is repeated until the best value is inside, or as often as is
allowed.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from experiments.command_line import flag_words
from experiments.processes import command
from experiments.reference.definition import ReferenceCell
from experiments.single_run import job
from experiments.single_run.loading import Loader
from experiments.specification.resolve import resolve
from experiments.specification.spec import Spec
from experiments.stored import records
from experiments.stored.records import Record, RecordedParts
from experiments.stored.store import Store
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.data import digest
from fedjax_opt.results.history import History
from fedjax_opt.results.metric_names import SPENT
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study.cells import Cell, CellFiles, PointResults
from fedjax_opt.study.sizes import ExampleSet, example_sets

_OF_REPORT = ("test_accuracy", "test_loss", "train_loss", "f1", *SPENT)


def check(cells: Sequence[ReferenceCell], loader: Loader) -> None:
  """Checks the cells that will run, with their data; compiles nothing.

  Raises:
    ValueError: naming the invalid flag.
    ImportError: naming the package to install.
  """
  for condition, planned, _ in cells:
    with reworded_errors(f"method {planned.method}, {condition.name}"):
      job.prepare(planned.spec, loader.load(planned.spec))


def run_cell(
  cell: ReferenceCell, store: Store
) -> tuple[ReferenceCell, list[Record]]:
  """Runs a cell; returns it with its records.

  These are the records of the grid, of its extensions, and of the report.
  """
  planned, found = cell.planned, []

  def run(grid, seeds, is_fresh):
    start, spec = len(found), planned.at(grid, seeds, is_fresh)
    while spec is not None:
      found.append(_record_of(spec, store, cell))
      results = joined(found[start:])
      may_extend = not is_fresh and len(found) <= cell.most_extensions
      spec = _extension(cell, results) if may_extend else None
    return results

  planned.tune(run)
  return cell, found


def _record_of(spec: Spec, store: Store, cell: ReferenceCell) -> Record:
  """The record of a run; it runs now if the store does not have it."""
  run, _ = store.run(spec)
  criterion = Criterion(**run.summary["criterion"])
  names, last = (criterion.metric, cell.condition.metric), criterion.n
  if spec.seed == cell.planned.design.report_seeds:
    names, last = (*names, *_OF_REPORT), None
  arguments = [
    flag
    for flag in flag_words.arguments(spec)
    if not flag.startswith("--data_dir=")
  ]
  record = records.of_run(run, arguments, RecordedParts(names, last=last))
  task = store.loader.load(spec).task
  record.about[digest.DATA_DIGESTS] = run.config[digest.DATA_DIGESTS]
  record.about["examples"] = example_sets(task.validation, task.test)
  # Choices are made from the numbers as recorded.
  return records.as_read(dataclasses.replace(record, flags=cell.record_key))


def joined(cell_records: Sequence[Record]) -> PointResults:
  """The metrics that several runs share, as if they had been one run."""
  metrics = {
    name: np.concatenate(
      [record.history.metrics[name] for record in cell_records]
    )
    for name in cell_records[0].history.metrics
  }
  return PointResults(
    [point for record in cell_records for point in record.points],
    History(cell_records[0].history.rounds, metrics),
    Criterion(**cell_records[0].about["criterion"]),
    sum(record.about["seconds"] for record in cell_records),
    was_stored=True,
    digests=cell_records[-1].about[digest.DATA_DIGESTS],
  )


def _extension(cell: ReferenceCell, runs: PointResults) -> Spec | None:
  """The extension of a grid whose best value is at an edge; None for none."""
  planned = cell.planned
  values = {
    name: sorted({point[name] for point in runs.points})
    for name in planned.grid
  }
  for edge in runs.outcome.edges:
    outer, inner = values[edge.name][:2]
    if edge.side == "largest":
      inner, outer = values[edge.name][-2:]
    if outer <= 0 or inner <= 0:
      continue
    grid = values | {edge.name: [float(f"{outer * outer / inner:.3g}")]}
    texts = {name: ",".join(map(repr, axis)) for name, axis in grid.items()}
    try:
      return resolve(flag_words.typed(planned.given_flags | texts))
    except ValueError:  # Not allowed, such as a momentum above 1.
      continue
  return None


def read(cell: ReferenceCell, folders: Sequence[pathlib.Path]) -> Cell | None:
  """A cell that ran, as a study has it; None if no folder has its records.

  Raises:
    ValueError: if the file is damaged.
  """
  for folder in folders:
    if stored_records := records.read(folder / cell.file):
      return _cell(cell, stored_records)
  return None


def _cell(cell: ReferenceCell, cell_records: Sequence[Record]) -> Cell:
  planned = cell.planned
  of_report = lambda record: (
    list(dict.fromkeys(point["seed"] for point in record.points))
    == planned.design.report_seeds
  )
  grid = [record for record in cell_records if not of_report(record)]
  report = [record for record in cell_records if of_report(record)]
  grid, report = (joined(part) if part else None for part in (grid, report))
  commands = (command.line("run", record.arguments) for record in cell_records)
  return Cell(
    planned.method,
    planned.condition,
    grid,
    report,
    files=CellFiles(tuple(commands)),
    sets={
      name: ExampleSet(size, np.nan if share is None else share)
      for name, (size, share) in cell_records[0].about["examples"].items()
    },
  )
