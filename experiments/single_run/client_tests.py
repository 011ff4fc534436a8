"""Metrics of each client, on its own examples that loading.py holds out.

If settings are chosen by the clients' own models, these are measured at each
evaluation of a run. After the run, the selected model is measured on the
clients' test examples.
"""

import pathlib
from collections.abc import Mapping

import numpy as np

import fedjax_opt as fo
from experiments.single_run.job import Job, client_rule, trained_paths
from fedjax_opt.checks import errors
from fedjax_opt.results import folder_digests
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.results.metric_names import is_fraction
from fedjax_opt.results.metrics_file import read_metrics
from fedjax_opt.results.names import sentence
from fedjax_opt.study.client_results import OPTIONS
from fedjax_opt.study.own_models import OwnModels

_PARTS = ("validation", "test")
_BEGINNINGS = tuple(f"client_{part}_" for part in _PARTS)


class OwnModelMetrics:
  """Metrics of clients' own models at each evaluation (`--select_on=clients`).

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
      **{name: job.options[name] for name in OPTIONS},
    )
    is_resumed = Checkpoints.are_in(job.output_dir / "checkpoints")
    if job.spec.resume and is_resumed:
      self._before = measured_in(job.output_dir / "metrics.csv")

  def measure(self, report: fo.Report) -> Mapping[str, np.ndarray]:
    """The metrics of an evaluation, {name: [S]}; {} if none are wanted."""
    if self._own is None:
      return {}
    if report.params is None:  # An evaluation from before the run was resumed.
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


# After a run: file -> the clients that are measured; and the kinds of models.
_GROUPS = {
  "per_client": "clients' own test examples",
  "heldout_clients": "clients that never trained",
}
_KINDS = {
  "global": "global model",
  "personalized": "personalized models",
  "personal": "their own models",
}


def measure(
  job: Job, result: fo.Result, point: int | None
) -> dict[str, fo.ClientMetrics]:
  """The metrics of the clients' own test examples, by file.

  Args:
    job: the run.
    result: the run's result.
    point: the selected point; None if all diverged.
  """
  if point is None or result.interrupted:
    return {}
  metrics, setting = {}, job.points[point]
  for name in _GROUPS:
    parts = getattr(job.loaded.client_tests, name).get(setting["seed"])
    if parts is not None and parts.test is not None:
      is_new = name == "heldout_clients"
      metrics[name] = _measure(job, result, point, parts, is_new)
  return metrics


def _measure(job, result, point, parts, is_new):
  spec, task, setting = job.spec, job.task, job.points[point]
  hyperparameters = {name: setting[name] for name in spec.grid}
  steps = spec.personalize_steps
  options = {"seed": setting["seed"], "point": point, "train": parts.train}
  algorithm = job.make(**hyperparameters)
  # Clients that never trained keep nothing.
  if not is_new or algorithm.client_params is None:
    options["algorithm"] = algorithm
  if steps is not None:
    rule, loss_fn = client_rule(spec, setting), task.loss_fn
    if paths := trained_paths(spec, task):
      rule = fo.trainable.only(rule, paths)
      loss_fn = fo.trainable.differentiated(loss_fn, paths)
    options |= {"loss_fn": loss_fn, "client": rule, "local_steps": steps}
    options |= {name: job.options[name] for name in OPTIONS}
    # Clients that never train may be smaller.
    largest = int(parts.train.sizes.max())
    options["batch_size"] = min(options["batch_size"], largest)
  return fo.evaluate_clients(result, task.per_example, parts.test, **options)


def write(folder: pathlib.Path, groups: Mapping[str, fo.ClientMetrics]) -> None:
  """Writes a table for each group of clients, and one picture of all."""
  for group, metrics in groups.items():
    metrics.to_csv(folder / f"{group}.csv")
  panels = {
    sentence(_GROUPS[group]): {
      sentence(_KINDS[kind]): values[_metric(metrics)][metrics.num_test > 0]
      for kind, values in metrics.values.items()
    }
    for group, metrics in groups.items()
  }
  values = [v for of_kind in panels.values() for v in of_kind.values()]
  if values and all(v.size and np.isfinite(v).all() for v in values):
    name = f"client_test_{_metric(next(iter(groups.values())))}"
    fo.plots.client_distribution(panels, folder / "per_client.png", metric=name)


def _metric(metrics):
  """The accuracy, or else the first metric."""
  names = metrics.values["global"]
  return "accuracy" if "accuracy" in names else next(iter(names))


def lines(
  job: Job, groups: Mapping[str, fo.ClientMetrics], point: int | None
) -> list[str]:
  """The lines for the terminal, one for each group and kind of model."""
  has_seeds = len(job.data) > 1 and point is not None
  seed = f", seed {job.points[point]['seed']}" if has_seeds else ""
  return [
    f"{_GROUPS[group]}, {_KINDS[kind]}{seed}: {_short(metrics, kind)}"
    for group, metrics in groups.items()
    for kind in metrics.values
  ]


def _short(metrics, kind):
  name = _metric(metrics)
  mean, worst = metrics.mean(kind, name), metrics.worst_decile(kind, name)
  show = lambda x: f"{100 * x:.2f} %" if is_fraction(name) else f"{x:.4g}"
  return f"{name} {show(mean)}, worst 10 % of clients {show(worst)}"
