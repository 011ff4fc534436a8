"""Metrics of each client on its own test examples, measured after a run."""

import pathlib
from collections.abc import Mapping

import numpy as np

import fedjax_opt as fo
from experiments.single_run.building import client_rule, trained_paths
from experiments.single_run.job import Job
from fedjax_opt.engine.client_evaluation import STEP_OPTIONS
from fedjax_opt.results.metric_names import is_accuracy
from fedjax_opt.results.names import capitalized

# File -> the clients that are measured; and the kinds of models.
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
    parts = getattr(job.loaded.client_parts, name).get(setting["seed"])
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
    options |= {name: job.options[name] for name in STEP_OPTIONS}
    # Clients that never train may be smaller.
    largest = int(parts.train.sizes.max())
    options["batch_size"] = min(options["batch_size"], largest)
  return fo.evaluate_clients(result, task.per_example, parts.test, **options)


def write(folder: pathlib.Path, groups: Mapping[str, fo.ClientMetrics]) -> None:
  """Writes a table for each group of clients, and one picture of all."""
  for group, metrics in groups.items():
    metrics.to_csv(folder / f"{group}.csv")
  panels = {
    capitalized(_GROUPS[group]): {
      capitalized(_KINDS[kind]): values[_metric(metrics)][metrics.num_test > 0]
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
  has_seeds = len(job.clients) > 1 and point is not None
  seed = f", seed {job.points[point]['seed']}" if has_seeds else ""
  return [
    f"{_GROUPS[group]}, {_KINDS[kind]}{seed}: {_short(metrics, kind)}"
    for group, metrics in groups.items()
    for kind in metrics.values
  ]


def _short(metrics, kind):
  name = _metric(metrics)
  mean, worst = metrics.mean(kind, name), metrics.worst_decile(kind, name)
  show = lambda x: f"{100 * x:.2f} %" if is_accuracy(name) else f"{x:.4g}"
  return f"{name} {show(mean)}, worst 10 % of clients {show(worst)}"
