"""Clients' own models, measured at each evaluation of a run."""

import csv
from collections.abc import Mapping

import numpy as np

from experiments.job import Job
from fedjax_opt import Report
from fedjax_opt.own_models import OwnModels
from fedjax_opt.per_client import SETTINGS

_PARTS = ("validation", "test")
_BEGINNINGS = tuple(f"client_{part}_" for part in _PARTS)


class OfRun:
  """Their metrics, if settings are chosen by them (`--select_on=clients`).

  Metrics from before a run was resumed are those that its folder has.
  """

  def __init__(self, job: Job):
    """Reads what a run that is resumed has measured.

    Args:
      job: the run, whose folder was not written yet.
    """
    self._own, self._before = None, {}
    if job.spec.select_on != "clients":
      return
    parts = job.loaded.held_out.per_client
    held_out = {
      name: {seed: getattr(each, name) for seed, each in parts.items()}
      for name in _PARTS
    }
    self._own = OwnModels(
      job.make,
      job.points,
      job.task.per_example,
      {seed: each.train for seed, each in parts.items()},
      {
        name: each
        for name, each in held_out.items()
        if None not in each.values()
      },
      **{name: job.settings[name] for name in SETTINGS},
    )
    self._before = _measured(job)

  def measure(self, report: Report) -> Mapping[str, np.ndarray]:
    """The metrics of an evaluation, {name: [S]}; {} if none are wanted."""
    if self._own is None:
      return {}
    if report.params is None:  # From before the run was resumed.
      return self._before[report.round]
    return self._own.measure(report)


def _measured(job):
  """Round -> {name: [S]}, of the file of a run that is resumed."""
  path, found = job.output_dir / "metrics.csv", {}
  if not (job.spec.resume and path.exists()):
    return found
  with open(path, encoding="utf-8", newline="") as file:
    for row in csv.DictReader(file):
      values = found.setdefault(int(row["round"]), {})
      for name, cell in row.items():
        if name.startswith(_BEGINNINGS):
          column = values.setdefault(name, np.full(len(job.points), np.nan))
          column[int(row["point"])] = float(cell or "nan")
  return found
