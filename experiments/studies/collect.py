"""From the folders of runs to a study that can be reported."""

import csv
import pathlib
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from experiments import command
from experiments.specification.spec import FLAGS, conditions
from experiments.studies.cells import Done, ran
from experiments.studies.plan import Planned, labels_of
from fedjax_opt.data import digest
from fedjax_opt.results.history import History
from fedjax_opt.results.load import Run, load_run
from fedjax_opt.results.selection import tune
from fedjax_opt.study.cells import Cell, Measured
from fedjax_opt.study.tuning import Tuned

# Parts of a config.json that say nothing of the method.
_OF_A_RUN = {"device", "streams", "versions", "seed", digest.NAME} | {
  name for name, flag in FLAGS.items() if not flag.is_identity
}


def cell_of(done: Done) -> Cell:
  """What a planned cell left."""
  tuned = done.tuned
  report = None if tuned.report is None else tuned.report.run
  return tuned.cell(
    done.cell.method,
    done.cell.condition,
    commands=tuple(_command(part.run) for part in tuned.parts),
    per_client=_per_client(report),
    step_sizes=_step_sizes(report),
    is_verified=all(part.run.is_verified for part in tuned.parts),
  )


def load_runs(folders: Sequence[str]) -> list[Run]:
  """Runs that are there.

  Raises:
    ValueError: if a folder holds no complete run.
  """
  runs = [_load(folder) for folder in folders]
  for folder, run in zip(folders, runs, strict=True):
    if not run.is_complete:
      raise ValueError(
        f"runs={folder!r}: the run did not end; go on with it by --resume"
      )
  return runs


def varied_among(configs: Sequence[Mapping[str, Any]]) -> list[str]:
  """Of all conditions, the flags that are not the same in all runs."""
  return [
    name
    for name in conditions()
    if len({str(config.get(name)) for config in configs}) > 1
  ]


def cells_of_runs(runs: Sequence[Run], varied: Sequence[str]) -> list[Cell]:
  """Runs that are there, each with its own choice among its settings.

  Methods are told by what their flags choose and, where that is the same, by
  what else differs.

  Args:
    runs: which.
    varied: flags whose values are the conditions, see `varied_among`.

  Raises:
    ValueError: if two hold the same.
  """
  each = [{n: run.config.get(n) for n in varied} for run in runs]
  labels = _labels(runs, each)
  return [
    _cell_of_run(run, label, condition)
    for run, label, condition in zip(runs, labels, each, strict=True)
  ]


def _load(folder: str) -> Run:
  try:
    return load_run(folder)
  except ValueError as error:
    raise ValueError(str(error).replace("folder=", "runs=", 1)) from None


def _labels(
  runs: Sequence[Run], conditions: Sequence[Mapping[str, Any]]
) -> list[str]:
  """A label for each run; the same for one method under several conditions.

  What is tuned in one run says nothing of another, unless it tells them apart.
  """
  texts = [{n: str(v) for n, v in run.config.items()} for run in runs]
  tuned = {name for text in texts for name, v in text.items() if "[" in v}
  for ignored in (tuned, set()):
    labels = _labels_without(texts, ignored)
    cells = list(zip(labels, map(str, conditions), strict=True))
    if len(set(cells)) == len(cells):
      return labels
  i = next(i for i, cell in enumerate(cells) if cell in cells[:i])
  raise ValueError(
    f"runs: {str(runs[cells.index(cells[i])].folder)!r} and "
    f"{str(runs[i].folder)!r} hold the same method under the same conditions; "
    "give one of them"
  )


def _labels_without(
  texts: Sequence[Mapping[str, str]], tuned: Collection[str]
) -> list[str]:
  """Labels by what flags choose and what else differs, but for some flags."""
  choices = ("algorithm", "client", "server", "regularizer")
  ignored = {*conditions(), *choices, *tuned, *_OF_A_RUN}
  given = [
    {n: text[n] for n in choices if n in text}
    | {n: v for n, v in text.items() if n not in ignored and "[" not in v}
    for text in texts
  ]
  # What is the same in all runs says nothing.
  shared = {
    name
    for name in given[0]
    if name != "algorithm" and all(g.get(name) == given[0][name] for g in given)
  }
  given = [{n: v for n, v in g.items() if n not in shared} for g in given]
  keys = [tuple(sorted(g.items())) for g in given]
  different = list(dict.fromkeys(keys))
  label_of = dict(
    zip(different, labels_of([dict(key) for key in different]), strict=True)
  )
  return [label_of[key] for key in keys]


def _cell_of_run(run: Run, label: str, condition: Mapping[str, Any]) -> Cell:
  """A run whose best setting is reported with the seeds that chose it."""
  whole = ran(run)
  tuning = tune(run.history, run.points, whole.criterion)
  report = None
  if tuning.best is not None:
    report = whole._replace(
      measured=_part(whole.measured, tuning.best.points), seconds=0.0
    )
  tried = whole if tuning.budget > 1 else None
  if tried is None:
    report = whole
  return Tuned(tried, report).cell(
    label,
    condition,
    commands=(_command(run),),
    per_client=_per_client(run),
    step_sizes=_step_sizes(run),
    is_verified=run.is_verified,
  )


def _part(whole: Measured, points: Sequence[int]) -> Measured:
  """Some of the points."""
  history = whole.history
  metrics = {name: values[points] for name, values in history.metrics.items()}
  return Measured(
    [whole.points[point] for point in points], History(history.rounds, metrics)
  )


def shared_flags(planned: Sequence[Planned]) -> dict[str, Any]:
  """Flags that were given and are the same in all cells."""
  each = [cell.asked for cell in planned]
  return {
    name: value
    for name, value in each[0].items()
    if all(given.get(name) == value for given in each)
    and name not in ("data_dir", "compilation_cache", "seed")
  }


def metric_of(cells: Sequence[Cell]) -> str:
  """What methods are compared by, if nothing else is asked for.

  The test examples' part of what settings are chosen by, or that itself.
  """
  criterion = cells[0].criterion
  found = [cell.measured or cell.tried for cell in cells]
  measured = [each.history.metrics for each in found if each]
  tested = criterion.metric.replace("validation_", "test_")
  for name in ("test_accuracy", tested, criterion.metric):
    if measured and all(name in metrics for metrics in measured):
      return name
  return criterion.metric


def _command(run: Run) -> str:
  """The command that ran it."""
  lines = (run.folder / "flags.txt").read_text().split("\n")
  flags = [line for line in lines if line.startswith("--")]
  program = command.as_called_here("python -m experiments.run")
  return f"{program} {shlex.join([*flags, f'--output_dir={run.folder}'])}"


def _per_client(run: Run | None) -> dict[str, np.ndarray]:
  """kind of model -> accuracy of each client on its held-out examples."""
  path = None if run is None else run.folder / "per_client.csv"
  if path is None or not path.exists():
    return {}
  with open(path, newline="") as file:
    rows = list(csv.DictReader(file))
  end = "_accuracy"
  return {
    name.removesuffix(end): np.array([float(r[name] or "nan") for r in rows])
    for name in rows[0]
    if name.endswith(end)
  }


def _step_sizes(run: Run | None) -> dict[str, np.ndarray] | None:
  """The traces of the first point, each [R, C, K]."""
  path: pathlib.Path | None = None if run is None else run.folder / "traces.npz"
  if path is None or not path.exists():
    return None
  with np.load(path) as traces:
    return {name: traces[name][0] for name in traces.files}
