"""What ends a run before its last round: a target, or no more improvement."""

from typing import Any

import numpy as np

from experiments.specification.spec import Spec
from fedjax_opt.results.history import History
from fedjax_opt.results.metric_names import COSTS
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study.spending import to_target


class Stopping:
  """Decides when a run ends early.

  Attributes:
    stopped_by: 'target' or 'patience'; None while the run is to go on.
  """

  def __init__(self, spec: Spec, criterion: Criterion):
    """Begins with nothing reached.

    Args:
      spec: the run's spec, with `target_accuracy` and `patience`.
      criterion: the criterion by which points are selected.
    """
    self._target = spec.target_accuracy
    self._patience = spec.patience
    self._criterion = criterion
    self.stopped_by: str | None = None

  def is_over(self, history: History) -> bool:
    """Whether the run ends after the last evaluation of this history."""
    if self._target is not None and self._has_reached(history):
      self.stopped_by = "target"
    elif self._patience is not None and self._is_stuck(history):
      self.stopped_by = "patience"
    return self.stopped_by is not None

  def target(self, history: History) -> dict[str, Any] | None:
    """The target, `metric` and `value`; None without a target."""
    if self._target is None or not history.rounds:
      return None
    return {"metric": self._metric(history), "value": self._target}

  def spent(self, history: History) -> list[dict[str, Any]]:
    """The cost of each point up to the target; None if it is not reached.

    Returns:
      [S] of `rounds_to_target`, `bytes_to_target`,
      `gradient_evaluations_to_target` and, on a schedule, `time_to_target`; []
      without a target.
    """
    if self._target is None or not history.rounds:
      return []
    metric, least = self._metric(history), self._rounded_target
    rows: list[dict[str, Any]] = [{} for _ in range(history.num_points)]
    costs = [cost for cost in COSTS if history.spent(cost) is not None]
    for cost in costs:
      kind = int if cost == "rounds" else float
      for point, value in enumerate(to_target(history, metric, least, cost)):
        is_reached = np.isfinite(value)
        rows[point][f"{cost}_to_target"] = kind(value) if is_reached else None
    return rows

  def _metric(self, history: History) -> str:
    """The accuracy with the target: on the examples that select points.

    If these have no accuracy, it is that on validation examples, or without
    them on test examples.
    """
    metric = self._criterion.metric.removeprefix("regularized_")
    split, *_ = metric.removeprefix("client_").split("_")
    if metric.startswith("client_"):
      split = f"client_{split}"
    names = (f"{split}_accuracy", "validation_accuracy", "test_accuracy")
    return next(name for name in names if name in history.metrics)

  @property
  def _rounded_target(self) -> float:
    """The target, rounded down to float32, where 0.9 is a little less."""
    return min(self._target, float(np.float32(self._target)))

  def _has_reached(self, history: History) -> bool:
    goes_on = ~history.diverged()[:, -1]
    values = history.values(self._metric(history))
    is_reached = (values >= self._rounded_target).any(axis=1)
    return bool(goes_on.any() and is_reached[goes_on].all())

  def _is_stuck(self, history: History) -> bool:
    """Whether the last evaluations did not improve any point's best value."""
    if len(history.rounds) <= self._patience:
      return False
    sign = 1.0 if self._criterion.direction == "max" else -1.0
    values = sign * history.values(self._criterion.metric)
    values = np.where(np.isnan(values), -np.inf, values)
    best_before = values[:, : -self._patience].max(axis=1)
    best_since = values[:, -self._patience :].max(axis=1)
    return not (best_since > best_before).any()
