"""Metrics of clients' own models, during a run with `--select_on=clients`."""

import pathlib
from collections.abc import Mapping

import numpy as np

import fedjax_opt as fo
from experiments.single_run.job import Job
from fedjax_opt.checks import errors
from fedjax_opt.engine.client_evaluation import STEP_OPTIONS
from fedjax_opt.engine.own_models import OwnModels
from fedjax_opt.results import folder_digests
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.results.metrics_file import read_metrics

_PARTS = ("validation", "test")
_BEGINNINGS = tuple(f"client_{part}_" for part in _PARTS)


class OwnModelMetrics:
  """Metrics of clients' own models at each evaluation.

  In a resumed run, earlier metrics are read from its folder.
  """

  def __init__(self, job: Job):
    """Reads what a resumed run has measured before.

    Args:
      job: the run; its folder has not been written to yet.

    Raises:
      ValueError: if that cannot be read.
    """
    self._own, self._before = None, {}
    if job.spec.select_on != "clients":
      return
    parts = job.loaded.client_tests.per_client
    of_all = lambda part: [getattr(of_seed, part) for of_seed in parts.values()]
    self._own = OwnModels(
      job.make,
      job.points,
      job.task.per_example,
      parts,
      [part for part in _PARTS if None not in of_all(part)],
      **{name: job.options[name] for name in STEP_OPTIONS},
    )
    is_resumed = Checkpoints.are_in(job.output_dir / "checkpoints")
    if job.spec.resume and is_resumed:
      self._before = measured_in(job.output_dir / "metrics.csv")

  def measure(self, report: fo.Report) -> Mapping[str, np.ndarray]:
    """The metrics of an evaluation, {name: [S]}; {} if none are wanted."""
    if self._own is None:
      return {}
    if report.is_repeated:
      return self._before[report.round]
    return self._own.measure(report)


def measured_in(path: pathlib.Path) -> dict[int, dict[str, np.ndarray]]:
  """Round -> metrics of clients' own models, {name: [S]}.

  Raises:
    ValueError: if the file is damaged. It cannot be written again, because no
      checkpoint has these metrics.
  """
  try:
    covered = folder_digests.check(path.parent, path.name) or {}
    _, history = read_metrics(path, covered.get(path.name))
  except (OSError, ValueError) as error:
    raise ValueError(
      f"resume=True: {str(path)!r} cannot be read ({errors.reason(error)}), "
      "and nothing else has the metrics of the clients' own models; restore "
      "it, or give another folder"
    ) from None
  own_metrics = {
    n: v for n, v in history.metrics.items() if n.startswith(_BEGINNINGS)
  }
  return {
    round: {name: values[:, i] for name, values in own_metrics.items()}
    for i, round in enumerate(history.rounds)
  }
