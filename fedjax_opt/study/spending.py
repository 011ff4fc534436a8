"""What tuning is worth, and what a run spends until it reaches a target.

Public as `statistics.expected_best` and `statistics.to_target`.

Axis letters: `N` settings, `S` grid points, `E` evaluated rounds.
"""

from typing import Any

import numpy as np

from fedjax_opt.checks.fields import Scalar, checked, instance_of, one_of
from fedjax_opt.results import metric_names
from fedjax_opt.results.history import History
from fedjax_opt.study import bootstrap

_FINITE = Scalar(words="finite")


@checked(direction=bootstrap.DIRECTION, if_diverged=_FINITE)
def expected_best(
  validation: Any,
  report: Any = None,
  *,
  direction: str = "max",
  replace: bool = True,
  if_diverged: float | None = None,
) -> np.ndarray:
  """A tuning curve: the best result to expect after trying n settings.

  The N settings that were tried are taken as the distribution from which a
  setting is drawn. If n are drawn with replacement, all are among the k worst
  with probability (k / N)^n, so that, with the validation values
  v_1 <= ... <= v_N,

    E[best of n] = sum_k v_k ((k / N)^n - ((k - 1) / N)^n).

  This is exact, not a bootstrap. For n = 1 it is the mean of the values. For n
  = N it is still below the best, which N draws may miss. Without replacement
  (`replace=False`), (k / N)^n becomes (k choose n) / (N choose n): n
  different settings of the grid are tried, and for n = N the best is among
  them. Either curve compares methods fairly only if their grids were chosen
  with equal care.

  Args:
    validation: the value by which the best one is chosen, for each setting;
      such as its mean over seeds. [N].
    report: what is reported of the chosen setting, such as its test accuracy;
      the validation value if None. Settings of equal validation values are
      chosen equally often. [N].
    direction: 'max' if larger validation values are better, 'min' if smaller
      ones are.
    replace: whether a setting can be drawn twice.
    if_diverged: the value that counts for a setting that diverged (NaN), in
      validation and in report, such as the value of the model before training.
      Without it there is no expectation.

  Returns:
    [N] float64, for n = 1, ..., N; NaN if a setting diverged and `if_diverged`
    is None.

  Raises:
    TypeError: if an argument has another type.
    ValueError: if an argument has another shape or is out of range.

  Source: Dodge et al. 2019, "Show your work: improved reporting of experimental
  results". Without replacement: Tang et al. 2020, "Showing your work doesn't
  always work".
  """
  chosen_by = _of_settings("validation", validation, if_diverged)
  num, reported = len(chosen_by), chosen_by
  if report is not None:
    reported = _of_settings("report", report, if_diverged, num)
  if not np.isfinite(chosen_by).all():
    return np.full(num, np.nan)
  sign = 1.0 if direction == "max" else -1.0
  # Equal values make one group; any of its members may be the chosen one.
  _, group, sizes = np.unique(
    sign * chosen_by, return_inverse=True, return_counts=True
  )
  means = np.bincount(group, reported) / sizes
  among_worst = np.concatenate([[0], np.cumsum(sizes)])  # [groups + 1]
  num_tried = np.arange(num)[:, None]
  if replace:
    factors = np.broadcast_to(among_worst / num, (num, len(among_worst)))
  else:
    factors = np.clip(among_worst - num_tried, 0, None) / (num - num_tried)
  return np.diff(np.cumprod(factors, axis=0), axis=1) @ means


@checked(
  history=instance_of(History, "a History, such as result.history"),
  target=_FINITE,
  cost=one_of(*metric_names.COSTS),
  direction=bootstrap.DIRECTION,
)
def to_target(
  history: History,
  metric: str,
  target: float,
  cost: str = "rounds",
  *,
  direction: str | None = None,
) -> np.ndarray:
  """What each point had spent when a metric first reached a target.

  Only evaluated rounds are seen, so the result is too large by up to one
  interval between evaluations. A point that diverged later has reached the
  target; values from the divergence on do not count.

  Args:
    history: the metrics of every point.
    metric: name of the metric.
    target: the value to reach: a larger or equal one is good enough, or a
      smaller or equal one, as `direction` says.
    cost: 'rounds', 'time' (simulated seconds), or of a client of the cohort on
      average so far: 'bytes' (down and up) or 'gradient_evaluations' (in
      examples).
    direction: 'max' if larger values are better, 'min' if smaller ones are;
      that of the metric's name if None.

  Returns:
    [S] float64, NaN for a point that never reached the target.

  Raises:
    TypeError: if an argument has another type.
    ValueError: if the metric or the cost was not measured, no direction is
      known, or the target is not finite.
  """
  values = history.values(metric)  # [S, E]
  direction = direction or metric_names.direction(metric)
  if direction is None:
    raise ValueError(
      f"direction=None: not known of metric {metric!r}; must be 'max' or 'min'"
    )
  spent = history.spent(cost)
  if spent is None:
    raise ValueError(f"cost={cost!r}: was not measured; choose 'rounds'")
  reached = values >= target if direction == "max" else values <= target
  if not history.rounds:
    return np.full(len(values), np.nan)
  first = np.argmax(reached, axis=1)[:, None]
  at_first = np.take_along_axis(spent, first, axis=1)[:, 0]
  return np.where(reached.any(axis=1), at_first, np.nan)


def _of_settings(
  name: str, values: Any, if_diverged: float | None, number: int | str = "N"
) -> np.ndarray:
  """The values of the settings as [N] float64, NaN where one diverged."""
  array = bootstrap.number_array(name, values, f"[{number}]")
  default = np.nan if if_diverged is None else if_diverged
  return np.where(np.isfinite(array), array, default)
