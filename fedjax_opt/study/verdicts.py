"""What a study says: values with intervals, and what can be told from chance.

The rule of every verdict is in words in report/templates/report.html.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.history import COSTS
from fedjax_opt.study import statistics, words
from fedjax_opt.study.cells import Cell, Cells
from fedjax_opt.study.statistics import Interval
from fedjax_opt.study.words import condition_label

BEST, WORSE, TIED, DIVERGED = "best", "worse", "not told apart", "diverged"
# Means that differ by less, relative to the larger one, are the same: metrics
# are sums in float32.
_SAME = 1e-6
# If two methods are equal, all of six seeds or more are in favour of one of
# them with a probability below 5 %; of five, with 6 %.
MIN_SEEDS_WITHOUT_WIDTH = 6
_NONE = Interval(np.nan, np.nan, np.nan)


class Verdict(NamedTuple):
  """What is said of one cell.

  Attributes:
    cell: which.
    value: mean of the metric over the seeds of the report, with its interval.
    num_seeds: seeds of the report.
    num_diverged: of these, how many diverged; then `value` is NaN.
    verdict: 'best', 'worse', 'not told apart' or 'diverged'.
    num_shared: seeds that it has in common with the best; 0 for the best
      itself, and for one that diverged.
    behind: by how much it is worse than the best, the mean of the paired
      differences with its interval; NaN for the best itself. The ends are NaN
      where the interval would have no width. If several are best, it is the
      difference to the one from which this method is told apart least.
    probability: that a run of the best is better than one of this method. The
      ends are NaN where the interval would have no width, as where every run
      of the best is better: a few runs are no certainty.
    to_target: cost -> its mean over seeds until the metric reached the target,
      NaN if a seed never did or the cost was not measured; {} without a target.
  """

  cell: Cell
  value: Interval
  num_seeds: int
  num_diverged: int
  verdict: str
  num_shared: int
  behind: Interval
  probability: Interval
  to_target: dict[str, float]


def verdicts(study: Cells) -> list[Verdict]:
  """The verdict on every cell, condition after condition."""
  found = []
  for condition in study.conditions:
    cells = study.under(condition)
    best = _best(study, cells)
    found += [_verdict(study, cell, best) for cell in cells.values()]
  return found


def _best(study: Cells, cells: Mapping[str, Cell]) -> list[Cell]:
  """The cells with the best mean of those of which no seed diverged."""
  whole = [
    (cell, _by_seed(study, cell))
    for cell in cells.values()
    if np.isfinite(cell.final(study.metric)).all()
  ]
  if not whole:
    return []
  # Over other seeds a mean may be better by their luck alone.
  shared = set.intersection(*(set(values) for _, values in whole))
  means = [
    np.mean([v for s, v in values.items() if len(shared) < 2 or s in shared])
    for _, values in whole
  ]
  top = max(means) if study.is_larger_better else min(means)
  return [
    cell
    for (cell, _), mean in zip(whole, means, strict=True)
    if _is_same(mean, top)
  ]


def _is_same(one: float, other: float) -> bool:
  return abs(one - other) <= _SAME * max(abs(one), abs(other))


def _verdict(study: Cells, cell: Cell, best: Sequence[Cell]) -> Verdict:
  values = cell.final(study.metric)
  behind, probability, num_shared, verdict = _NONE, _NONE, 0, BEST
  if not np.isfinite(values).all():
    verdict = DIVERGED
  elif not any(cell is one for one in best):
    compared = [(_compare(study, one, cell), one) for one in best]
    # What is told apart least comes first: a missing end, then the lowest one.
    (verdict, behind, num_shared), one = min(
      compared, key=lambda each: (each[0][0] == WORSE, _low(each[0][1]))
    )
    probability = _with_width(
      statistics.probability_of_improvement(
        one.final(study.metric),
        values,
        direction="max" if study.is_larger_better else "min",
      )
    )
  num_seeds = 0 if cell.measured is None else len(values)
  num_diverged = int(np.sum(~np.isfinite(values))) if num_seeds else 0
  return Verdict(
    cell,
    statistics.mean_interval(values),
    num_seeds,
    num_diverged,
    verdict,
    num_shared,
    behind,
    probability,
    _to_target(study, cell),
  )


def _low(behind: Interval) -> float:
  return behind.low if np.isfinite(behind.low) else -np.inf


def _compare(study: Cells, best: Cell, cell: Cell) -> tuple[str, Interval, int]:
  """The verdict on a cell, its paired difference to the best, and its seeds.

  The difference is over the seeds that both have.
  """
  one, other = _by_seed(study, best), _by_seed(study, cell)
  shared = [seed for seed in one if seed in other]
  if not shared:
    return TIED, _NONE, 0
  sign = 1 if study.is_larger_better else -1
  ours = np.array([sign * one[seed] for seed in shared])
  theirs = np.array([sign * other[seed] for seed in shared])
  behind = statistics.paired_difference(ours, theirs)
  # Rounding is no width.
  if np.ptp(ours - theirs) <= _SAME * np.abs([ours, theirs]).max():
    behind = Interval(behind.estimate, np.nan, np.nan)
  is_worse = behind.low > 0
  if np.isnan(behind.low):
    is_worse = behind.estimate > 0 and len(shared) >= MIN_SEEDS_WITHOUT_WIDTH
  return WORSE if is_worse else TIED, behind, len(shared)


def _with_width(interval: Interval) -> Interval:
  """The interval, its ends NaN if it has no width."""
  if interval.high > interval.low:
    return interval
  return Interval(interval.estimate, np.nan, np.nan)


def _by_seed(study: Cells, cell: Cell) -> dict[int, float]:
  """seed -> the metric of the run with it."""
  return dict(zip(seeds_of(cell), cell.final(study.metric), strict=True))


def seeds_of(cell: Cell) -> list[int]:
  return [point["seed"] for point in cell.measured.points]


def _to_target(study: Cells, cell: Cell) -> dict[str, float]:
  if study.target is None:
    return {}
  found = dict.fromkeys(COSTS, np.nan)
  if cell.measured is None:
    return found
  history = cell.measured.history
  for cost in COSTS:
    if history.spent(cost) is not None:
      of_seeds = statistics.to_target(history, study.metric, study.target, cost)
      found[cost] = float(of_seeds.mean())
  return found


def scores_of(cell: Cell) -> np.ndarray:
  """The scores of the settings that were tried. [seeds of tuning, settings]."""
  of_points = cell.criterion.scores(cell.tried.history)
  settings = cell.tuning.settings
  num = min(len(setting.points) for setting in settings)
  return np.stack([of_points[each.points[:num]] for each in settings], 1)


def num_near_ties(cell: Cell) -> int | None:
  """How many settings tuning does not tell apart from the chosen one.

  The 95 % interval of their paired difference over the seeds of tuning has 0 in
  it. None if nothing was chosen, or with one seed.
  """
  if cell.tuning is None or cell.tuning.best is None:
    return None
  scores = scores_of(cell)
  if len(scores) < 2:
    return None
  best = scores[:, [cell.tuning.settings.index(cell.tuning.best)]]
  sign = 1 if cell.criterion.direction == "max" else -1
  ahead = statistics.paired_difference(sign * best + 0 * scores, sign * scores)
  return max(int(np.sum(ahead.low <= 0)) - 1, 0)  # Without the best itself.


def spent(cell: Cell, cost: str) -> np.ndarray | None:
  """What a client of the cohort spent until each evaluated round, on average.

  Args:
    cell: of the study.
    cost: one of `COSTS`.

  Returns:
    The mean over the seeds, [E]; None if it was not measured.
  """
  if cell.measured is None:
    return None
  of_seeds = cell.measured.history.spent(cost)
  return None if of_seeds is None else of_seeds.mean(axis=0)


# Over all conditions.


def overall(study: Cells) -> dict[str, Interval]:
  """method -> interquartile mean over all conditions and seeds.

  Only of methods that ran under all conditions with as many seeds, and only if
  there are several conditions.
  """
  matrices = matrices_of(study)
  return {m: statistics.interquartile_mean(v) for m, v in matrices.items()}


def matrices_of(study: Cells) -> dict[str, np.ndarray]:
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


# In words.


def numbers_of(study: Cells, found: Sequence[Verdict]) -> words.Numbers:
  """How the values of a study are written, everywhere."""
  return words.numbers_of(study.metric, [v.value for v in found])


def sentences(study: Cells, found: Sequence[Verdict]) -> list[str]:
  """What the numbers say: one sentence over all, one for each condition.

  Every claim follows the rule of verdicts.
  """
  lines = []
  if len(compared(study)) > 1:
    lines.append(_over_conditions(study, found))
  numbers, name = numbers_of(study, found), "95 % interval "
  for condition in study.conditions:
    here = [v for v in found if dict(v.cell.condition) == condition]
    lines.append(_of_condition(study, here, numbers, name))
    name = ""  # Of the interval: it is said once.
  return lines


def names_of(study: Cells) -> dict[str, str]:
  """method -> its name in a sentence."""
  return {m: words.name(label) for m, label in study.labels.items()}


def compared(study: Cells) -> list[dict[str, Any]]:
  """The conditions under which several methods ran."""
  return [each for each in study.conditions if len(study.under(each)) > 1]


def _over_conditions(study: Cells, found: Sequence[Verdict]) -> str:
  """Under how many conditions each method is the best or not told apart."""
  names: dict[tuple[int, int], list[str]] = {}
  conditions = compared(study)
  for method in study.methods:
    here = [
      v.verdict
      for v in found
      if v.cell.method == method and dict(v.cell.condition) in conditions
    ]
    if not here:
      continue
    leads = sum(verdict in (BEST, TIED) for verdict in here)
    names.setdefault((leads, len(here)), []).append(
      words.name(study.labels[method])
    )
  parts = []
  for leads, number in sorted(names, key=lambda each: -each[0] / each[1]):
    who = words.listed(names[leads, number])
    if not parts:
      many = len(names[leads, number]) > 1
      who += " are" if many else " is"
      who += " best, or not told apart from the best,"
    whole = "both" if number == 2 else f"all {number}"
    is_whole = leads == number == len(conditions)
    share = whole if is_whole else f"{leads} of {number}"
    parts.append(f"{who} under {share if leads else 'none'}")
  parts[0] += " conditions" if not parts[0].endswith("none") else ""
  return f"{'; '.join(parts)}."


def _of_condition(
  study: Cells, here: Sequence[Verdict], numbers: words.Numbers, interval: str
) -> str:
  condition = here[0].cell.condition
  where = f"At {condition_label(condition)}, " if condition else ""
  labels, what = names_of(study), words.metric_words(study.metric)
  best = [v for v in here if v.verdict == BEST]
  if not best:
    who = "every method" if where else "Every method"
    who = labels[here[0].cell.method] if len(here) == 1 else who
    return f"{where}{who} diverged."
  name = words.listed([labels[v.cell.method] for v in best])
  value = numbers.whole(best[0].value, interval)
  if len(here) == 1:
    return f"{where}{name} has a mean {what} of {value}."
  way = "highest" if study.is_larger_better else "lowest"
  are_many = len(best) > 1
  has = "have the same" if are_many else "has the"
  text = f"{where}{name} {has} {way} mean {what}"
  means = [v.value.estimate for v in here if v.verdict != DIVERGED]
  extreme = max(means) if study.is_larger_better else min(means)
  if not all(_is_same(v.value.estimate, extreme) for v in best):
    text += " over the seeds that all methods have"
    if not are_many:
      text += f"; over all of its own it is {value}"
  elif are_many:
    text += f", {numbers.value(extreme)}{numbers.unit}"
  else:
    text += f", {value}"
  for verdict, said in (
    (TIED, f"not told apart from {'them' if are_many else 'it'}"),
    (WORSE, "worse"),
    (DIVERGED, "diverged"),
  ):
    names = [labels[v.cell.method] for v in here if v.verdict == verdict]
    if names:
      verb = "" if verdict == DIVERGED else "is " if len(names) == 1 else "are "
      text += f"; {words.listed(names)} {verb}{said}"
  return f"{text}."
