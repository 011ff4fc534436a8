"""Logs runs and studies with a tracker, whose own library writes them.

Nothing is sent anywhere unless the tracker's own variables say so: Weights &
Biases is offline unless WANDB_MODE is set, MLflow writes into the output folder
unless MLFLOW_TRACKING_URI is. A run writes TensorBoard's events of its metrics
in any case; config and pictures are added to them.
"""

import collections
import math
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedjax_opt.checks import errors
from fedjax_opt.results.event_files import sub_run_names
from fedjax_opt.results.history import History
from fedjax_opt.results.load import load_run

_MODULES = {"tensorboard": "tensorboardX"}  # Where names differ.
PROJECT = "fedjax_opt"
Values = Mapping[str, float]


class Track(NamedTuple):
  """What trackers call a run: a grid point, or a cell of a study.

  Attributes:
    name: the run's name.
    config: what ran.
    steps: (round, {metric: value}), in order.
    files: pictures and tables.
  """

  name: str
  config: Mapping[str, Any]
  steps: Iterable[tuple[int, Values]]
  files: tuple[pathlib.Path, ...] = ()


def check_installed(tracker: str | None) -> None:
  """Raises ImportError, before anything runs, if the library is missing."""
  if tracker is not None:
    module = _MODULES.get(tracker, tracker)
    errors.imported(module, f"track={tracker}", module)


def log_run(tracker: str, folder: pathlib.Path) -> None:
  """Logs each grid point of a run; the first one has its pictures too."""
  run = load_run(folder)
  pictures = tuple(sorted(folder.glob("*.png")))
  name = folder.name
  names = [f"{name}/{i}" for i in range(len(run.points))]
  names = names if len(names) > 1 else [name]
  if tracker == "tensorboard":  # In folders of these names metrics are there.
    names = sub_run_names(run.points)
  entries = [
    Track(
      names[i],
      {**run.config, **point},
      _steps(run.history, i),
      () if i else pictures,
    )
    for i, point in enumerate(run.points)
  ]
  log(tracker, folder, entries)


def log_study(tracker: str, folder: pathlib.Path, study: Any) -> None:
  """Logs each cell of a study; the first one has the report's files too.

  TensorBoard's events of an earlier report in the folder are replaced.
  """
  if tracker == "tensorboard":
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
  suffixes = (".png", ".html", ".csv", ".md")
  paths = [*folder.iterdir(), *folder.glob("pictures/*")]
  files = tuple(sorted(path for path in paths if path.suffix in suffixes))
  entries = []
  for cell in study.cells:
    if cell.report_runs is None:
      continue
    conditions = [f"{name}={value}" for name, value in cell.condition.items()]
    for i, point in enumerate(cell.report_runs.points):
      entries.append(
        Track(
          ", ".join([cell.method, *conditions, f"seed={point['seed']}"]),
          {**study.about, "method": cell.method, **cell.condition, **point},
          _steps(cell.report_runs.history, i),
          () if entries else files,
        )
      )
  log(tracker, folder, entries)


def _steps(history: History, point: int) -> list[tuple[int, Values]]:
  """The metrics of one grid point, without values that are not finite."""
  metrics = {name: history.values(name)[point] for name in history.metrics}
  return [
    (
      int(round_number),
      {n: float(v[i]) for n, v in metrics.items() if math.isfinite(v[i])},
    )
    for i, round_number in enumerate(history.rounds)
  ]


def log(tracker: str, folder: pathlib.Path, entries: Iterable[Track]) -> None:
  """Logs entries, which share a group that has the folder's name.

  Args:
    tracker: one of `specification.spec.TRACKERS`.
    folder: the folder of the run or study.
    entries: what is logged.

  Raises:
    OSError: if the library fails, such as for want of a key.
  """
  write = {"wandb": _wandb, "mlflow": _mlflow, "tensorboard": _tensorboard}
  try:
    write[tracker](folder, entries)
  except Exception as error:
    raise OSError(f"track={tracker!r}: {errors.first_line(error)}") from error


def _wandb(folder, entries):
  library = errors.imported("wandb", "track=wandb", "wandb")
  for entry in entries:
    with library.init(
      project=PROJECT,
      group=folder.name,
      name=entry.name,
      config=dict(entry.config),
      dir=str(folder),
      mode=os.environ.get("WANDB_MODE", "offline"),
      reinit="finish_previous",
      settings=library.Settings(silent=True),
    ) as run:
      for round_number, values in entry.steps:
        run.log(values, step=round_number)
      for path in entry.files:
        if path.suffix == ".png":
          run.log({path.stem: library.Image(str(path))})
        else:
          run.save(str(path), base_path=str(folder))


def _mlflow(folder, entries):
  library = errors.imported("mlflow", "track=mlflow", "mlflow")
  if "MLFLOW_TRACKING_URI" not in os.environ:
    library.set_tracking_uri(f"sqlite:///{folder.resolve() / 'mlflow.db'}")
    # The database does not say where pictures go; the default would be
    # ./mlruns.
    if library.get_experiment_by_name(PROJECT) is None:
      library.create_experiment(
        PROJECT, artifact_location=(folder / "mlflow").resolve().as_uri()
      )
  library.set_experiment(PROJECT)
  for entry in entries:
    with library.start_run(run_name=entry.name):
      library.set_tag("group", folder.name)
      library.log_params({n: str(v)[:500] for n, v in entry.config.items()})
      for round_number, values in entry.steps:
        library.log_metrics(dict(values), step=round_number)
      for path in entry.files:
        library.log_artifact(str(path))


def _tensorboard(folder, entries):
  from matplotlib import image  # Only an extra has it.

  library = errors.imported("tensorboardX", "track=tensorboard", "tensorboardX")
  counts = collections.Counter()
  for entry in entries:
    place = folder / "tensorboard" / re.sub(r"[^\w.=,+-]", "_", entry.name)
    counts[place] += 1
    if counts[place] > 1:  # Another name is written alike.
      place = place.with_name(f"{place.name}-{counts[place]}")
    steps = [] if place.exists() else entry.steps
    # Otherwise a file of the same second would be replaced.
    with library.SummaryWriter(str(place), filename_suffix=".about") as events:
      table = [f"| {name} | {value} |" for name, value in entry.config.items()]
      events.add_text("config", "\n".join(["| | |", "|-|-|", *table]))
      for round_number, values in steps:
        for name, value in values.items():
          events.add_scalar(name, value, round_number)
      for path in entry.files:
        if path.suffix == ".png":
          pixels = image.imread(path)
          events.add_image(path.stem, pixels, dataformats="HWC")
