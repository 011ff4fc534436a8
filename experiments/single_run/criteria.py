"""How the settings of a run are compared."""

import dataclasses

from experiments.specification.spec import Spec
from experiments.tasks import Task, base
from fedjax_opt.results.history import direction
from fedjax_opt.results.selection import Criterion
from fedjax_opt.scores import SCORES


def has_accuracy(task: Task) -> bool:
  """Whether an accuracy is measured; also of several labels of 0 or 1."""
  return any(c.metric.endswith("_accuracy") for c in task.criteria.values())


def criterion_of(spec: Spec, task: Task) -> Criterion:
  """How the settings of a run are compared.

  Raises:
    ValueError: if the task has no such metric.
  """
  name, last_rounds = spec.select_metric, spec.select_over
  is_of_clients = spec.select_on == "clients"
  split = "client_validation" if is_of_clients else spec.select_on
  criterion = task.criteria["validation" if is_of_clients else split]
  if spec.regularizer is None:
    metric = criterion.metric.removeprefix("regularized_")
    criterion = dataclasses.replace(criterion, metric=metric)
  if is_of_clients:
    metric = f"client_{criterion.metric}"
    criterion = dataclasses.replace(criterion, metric=metric)
  if name == "accuracy" and not has_accuracy(task):
    raise ValueError(
      f"select_metric={name!r}: task {spec.task.name} has no accuracy; leave "
      "select_metric out"
    )
  has_scores = spec.select_on not in ("train", "clients")
  measured = base.names(spec.metrics) if has_scores else []
  if name in SCORES and name not in measured:
    raise ValueError(
      f"select_metric={name!r}: must be accuracy or loss, or with select_on "
      "validation or test a score that --metrics names"
    )
  if name is not None:
    metric = f"{split}_{name}"
    way = direction(metric)
    criterion = dataclasses.replace(criterion, metric=metric, direction=way)
  if last_rounds is not None:
    n = _evaluations(spec.rounds, spec.eval_every, last_rounds)
    criterion = dataclasses.replace(criterion, rule="worst_last_n", n=n)
  return criterion


def _evaluations(rounds: int, interval: int, last: int) -> int:
  """The number of evaluations in the last rounds, with that at the end.

  The one before the first round does not count: all settings have that model.
  """
  evaluated_rounds = range(interval, rounds, interval)
  return 1 + sum(rounds - i < last for i in evaluated_rounds)
