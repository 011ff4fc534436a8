"""What a study says: values with intervals, and what can be told from chance.

The rule of every verdict: under one condition the method with the best mean
over the seeds of the report is 'best'. Another is 'worse' if the interval of
the paired difference to the best, over the same seeds, is on one side of 0, and
'not told apart' if it is not. Intervals are of 95 %, each by itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.comparison.cells import Cell, Study, condition_label
from fedjax_opt.results import statistics
from fedjax_opt.results.history import is_fraction
from fedjax_opt.results.names import metric_name, name_of
from fedjax_opt.results.statistics import Interval

BEST, WORSE, TIED, DIVERGED = "best", "worse", "not told apart", "diverged"
COSTS = ("rounds", "bytes", "gradient_evaluations")

_NONE = Interval(np.nan, np.nan, np.nan)


class Verdict(NamedTuple):
  """What is said of one cell.

  Attributes:
    cell: which.
    value: mean of the metric over the seeds of the report, with its interval.
    num_seeds: seeds of the report.
    num_diverged: of these, how many diverged; then `value` is NaN.
    verdict: 'best', 'worse', 'not told apart' or 'diverged'.
    behind: by how much it is worse than the best, the mean of the paired
      differences with its interval; NaN for the best itself.
    probability: that a run of the best is better than one of this method.
    to_target: cost -> its mean over seeds until the metric reached the target,
      NaN if a seed never did; {} without a target.
  """

  cell: Cell
  value: Interval
  num_seeds: int
  num_diverged: int
  verdict: str
  behind: Interval
  probability: Interval
  to_target: dict[str, float]


def verdicts(study: Study) -> list[Verdict]:
  """The verdict on every cell, condition after condition."""
  found = []
  for condition in study.conditions:
    cells = study.under(condition)
    finals = {m: cell.final(study.metric) for m, cell in cells.items()}
    best = _best(finals, study.is_larger_better)
    for method, cell in cells.items():
      found.append(_verdict(study, cell, finals, method, best))
  return found


def _best(finals: Mapping[str, np.ndarray], is_larger_better: bool) -> Any:
  """The method with the best mean of those of which no seed diverged."""
  whole = {m: v.mean() for m, v in finals.items() if np.isfinite(v).all()}
  if not whole:
    return None
  return (max if is_larger_better else min)(whole, key=whole.get)


def _verdict(
  study: Study,
  cell: Cell,
  finals: Mapping[str, np.ndarray],
  method: str,
  best: str | None,
) -> Verdict:
  values = finals[method]
  behind, probability, verdict = _NONE, _NONE, BEST
  if not np.isfinite(values).all():
    verdict = DIVERGED
  elif method != best:
    one, other = finals[best], values
    sign = 1 if study.is_larger_better else -1
    if len(one) == len(other):
      behind = statistics.paired_difference(sign * one, sign * other)
    way = "max" if study.is_larger_better else "min"
    probability = statistics.probability_of_improvement(
      one, other, direction=way
    )
    verdict = WORSE if behind.low > 0 else TIED
  return Verdict(
    cell,
    statistics.mean_interval(values),
    len(values),
    int(np.sum(~np.isfinite(values))),
    verdict,
    behind,
    probability,
    _to_target(study, cell),
  )


def _to_target(study: Study, cell: Cell) -> dict[str, float]:
  if study.target is None:
    return {}
  if cell.measured is None:
    return dict.fromkeys(COSTS, np.nan)
  history = cell.measured.history
  return {
    cost: float(
      statistics.to_target(history, study.metric, study.target, cost).mean()
    )
    for cost in COSTS
  }


# Over all conditions.


def overall(study: Study) -> dict[str, Interval]:
  """method -> interquartile mean over all conditions and seeds.

  Only of methods that ran under all conditions with as many seeds, and only if
  there are several conditions.
  """
  matrices = matrices_of(study)
  return {m: statistics.interquartile_mean(v) for m, v in matrices.items()}


def matrices_of(study: Study) -> dict[str, np.ndarray]:
  """method -> the metric, [seeds, conditions]; {} if there is one condition."""
  conditions = study.conditions
  if len(conditions) < 2:
    return {}
  found = {}
  for method in study.methods:
    cells = [study.cell(method, condition) for condition in conditions]
    if any(cell is None or cell.measured is None for cell in cells):
      continue
    columns = [cell.final(study.metric) for cell in cells]
    if len({len(column) for column in columns}) == 1:
      found[method] = np.stack(columns, 1)
  return found


# Sentences.


def sentences(study: Study, found: Sequence[Verdict]) -> list[str]:
  """What the numbers say, a sentence for each condition.

  Every claim follows the rule at the head of this file.
  """
  lines = []
  for condition in study.conditions:
    here = [v for v in found if dict(v.cell.condition) == condition]
    where = f"At {condition_label(condition)} " if condition else ""
    best = [v for v in here if v.verdict == BEST]
    if not best:
      lines.append(f"{where or 'Here '}every method diverged.")
      continue
    way = "highest" if study.is_larger_better else "lowest"
    text = (
      f"{where}{best[0].cell.method} has the {way} mean "
      f"{metric_name(study.metric).removesuffix(' (%)').lower()}, "
      f"{shown(best[0].value, study.metric)}"
    )
    for verdict, words in (
      (TIED, "not told apart from it"),
      (WORSE, "worse"),
      (DIVERGED, "diverged"),
    ):
      names = [v.cell.method for v in here if v.verdict == verdict]
      if names:
        is_are = "" if verdict == DIVERGED else "is " * (len(names) == 1)
        is_are = "" if verdict == DIVERGED else is_are or "are "
        text += f"; {_listed(names)} {is_are}{words}"
    text = text[0].upper() + text[1:]
    lines.append(text + ".")
  return lines


def warnings(study: Study, found: Sequence[Verdict]) -> list[str]:
  """What limits the comparison: edges of grids, divergence, seeds, budgets."""
  lines = []
  for verdict in found:
    cell = verdict.cell
    where = cell.method
    if cell.condition:
      where += f" at {condition_label(cell.condition)}"
    for edge in cell.tuning.edges if cell.tuning else ():
      lines.append(
        f"{where}: the best {name_of(edge.name)}, {edge.value:g}, is the "
        f"{edge.side} that was tried; a better one may be outside the grid."
      )
    if cell.measured is None:
      lines.append(f"{where}: every setting diverged.")
    elif verdict.num_diverged:
      lines.append(
        f"{where}: {verdict.num_diverged} of {verdict.num_seeds} seeds of the "
        "report diverged."
      )
    if not cell.is_fresh:
      lines.append(
        f"{where}: the seeds of the report were used for the choice too, so "
        "its values are somewhat too good."
      )
  budgets = {cell.method: cell.budget for cell in study.cells}
  if len({n for n in budgets.values() if n > 1}) > 1:
    each = ", ".join(f"{method} {n}" for method, n in budgets.items())
    lines.append(f"Tuning budgets differ: {each} settings.")
  untuned = [method for method, n in budgets.items() if n == 1]
  if untuned and len(untuned) < len(budgets):
    are = "was" if len(untuned) == 1 else "were"
    lines.append(f"{_listed(untuned)} {are} not tuned: a single setting.")
  if any(v.num_seeds == 1 for v in found):
    lines.append("With one seed there is no interval, and no verdict.")
  return list(dict.fromkeys(lines))


def shown(value: Interval, metric: str) -> str:
  """A mean with its interval, such as '91.2 % (90.1 to 92.3)'."""
  estimate, low, high = value
  if not np.isfinite(estimate):
    return "–"
  scale, unit, digits = 1.0, "", ".4g"
  if is_fraction(metric):
    scale, unit, digits = 100.0, " %", ".1f"
    low, high = max(low, 0.0), min(high, 1.0)
  text = f"{scale * estimate:{digits}}{unit}"
  if np.isfinite(low):
    text += f" ({scale * low:{digits}} to {scale * high:{digits}})"
  return text


def _listed(names: Sequence[str]) -> str:
  if len(names) == 1:
    return names[0]
  return f"{', '.join(names[:-1])} and {names[-1]}"
