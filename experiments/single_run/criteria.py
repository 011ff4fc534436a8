"""How the settings of a run are compared."""

import dataclasses

from experiments.specification.spec import Spec
from experiments.tasks import Task, base
from fedjax_opt.results.metric_names import direction
from fedjax_opt.results.selection import Criterion
from fedjax_opt.scores import SCORES


def criterion_of(spec: Spec, task: Task) -> Criterion:
  """How the settings of a run are compared.

  Raises:
    ValueError: if the task has no such metric.
  """
  name, is_of_clients = spec.select_metric, spec.select_on == "clients"
  split = "client_validation" if is_of_clients else spec.select_on
  criterion = task.criteria["validation" if is_of_clients else split]
  metric, way = criterion.metric, criterion.direction
  if name is not None:
    _check_metric(spec, task)
    metric, way = f"{split}_{name}", direction(f"{split}_{name}")
  else:
    if spec.regularizer is None:
      metric = metric.removeprefix("regularized_")
    if is_of_clients:
      metric = f"client_{metric}"
  criterion = dataclasses.replace(criterion, metric=metric, direction=way)
  if spec.select_over is not None:
    n = _evaluations(spec.rounds, spec.eval_every, spec.select_over)
    criterion = dataclasses.replace(criterion, rule="worst_last_n", n=n)
  return criterion


def _check_metric(spec: Spec, task: Task) -> None:
  """Checks that the metric of `--select_metric` is measured."""
  name = spec.select_metric
  if name == "accuracy" and not task.has_accuracy:
    raise ValueError(
      f"select_metric={name!r}: task {spec.task.name} has no accuracy; leave "
      "select_metric out"
    )
  has_scores = spec.select_on not in ("train", "clients")
  measured = base.split_names(spec.metrics) if has_scores else []
  if name in SCORES and name not in measured:
    raise ValueError(
      f"select_metric={name!r}: must be accuracy or loss, or with select_on "
      "validation or test a score that --metrics names"
    )


def _evaluations(rounds: int, interval: int, last: int) -> int:
  """The number of evaluations in the last rounds, with that at the end.

  The one before the first round does not count: all settings have that model.
  """
  evaluated_rounds = range(interval, rounds, interval)
  return 1 + sum(rounds - i < last for i in evaluated_rounds)
