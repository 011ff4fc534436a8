"""How studies tune: choose by a criterion, measure with fresh seeds.

The caller's function runs a grid: that of `fedjax_opt.compare` calls `sweep`;
that of the command line finds a run in its store, or runs it now. No method may
try more settings than another. A paper's artefact is no study: its settings and
seeds are those that the paper says.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.study import statistics, words
from fedjax_opt.study.cells import Cell, PointResults
from fedjax_opt.study.pairs import CLOSE

BUDGETS = ("equal", "unequal")
# The default number of fresh seeds for the report. It does not depend on how
# long a run takes, or a study would differ between machines.
NUM_REPORT_SEEDS = 10


def num_settings(grid: Mapping[str, Sequence[float]]) -> int:
  """The number of settings of a grid {name: values}; 1 for an empty grid."""
  return math.prod(len(values) for values in grid.values())


def check_equal(budgets: Mapping[str, int], hint: str) -> None:
  """Checks that all methods that are tuned try equally many settings.

  A method with a single setting is not tuned; it may stand beside tuned ones.

  Args:
    budgets: method -> number of settings.
    hint: how to allow different budgets, for the message.

  Raises:
    ValueError: naming methods whose budgets differ.
  """
  tuned = {method: n for method, n in budgets.items() if n > 1}
  if len(set(tuned.values())) < 2:
    return
  names = map(words.quoted_if_list, tuned)
  text = ", ".join(
    f"{m} {n}" for m, n in zip(names, tuned.values(), strict=True)
  )
  raise ValueError(
    f"budget: methods try different numbers of settings ({text}); give grids "
    f"of one size, or {hint}"
  )


def fresh_seeds(seeds: Sequence[int], number: int | None = None) -> list[int]:
  """`number` seeds, by default ten, after the last one of tuning."""
  first = max(seeds) + 1
  return list(range(first, first + (number or NUM_REPORT_SEEDS)))


class Design(NamedTuple):
  """The seeds of a study, and what they are for.

  Attributes:
    seeds: of tuning; not used if it is nested.
    report_seeds: of the reported runs.
    is_nested: whether each seed of the report chooses its own setting.
    partition_seeds: of the partitions that are crossed; [] for none.
    crossed_seeds: of the runs on each of these.
  """

  seeds: list[int]
  report_seeds: list[int]
  is_nested: bool
  partition_seeds: list[int]
  crossed_seeds: list[int]

  @classmethod
  def of(
    cls,
    seeds: list[int],
    report_seeds: list[int],
    is_nested: bool,
    num_crossed: int | None,
  ) -> "Design":
    """With so many crossed partitions, and seeds, which nothing else uses."""
    num = num_crossed or 0
    new = fresh_seeds([*seeds, *report_seeds], 2 * num) if num else []
    return cls(seeds, report_seeds, is_nested, new[:num], new[num:])

  def facts(self, is_tuned: bool) -> dict[str, list[int]]:
    """What a report says of them, by name.

    Args:
      is_tuned: whether any method chose among settings.
    """
    tuning_seeds = self.report_seeds if self.is_nested else self.seeds
    named = {
      "seeds of tuning": tuning_seeds if is_tuned else [],
      "seeds of the report": self.report_seeds,
      "seeds of crossed partitions": self.partition_seeds,
      "seeds on each of these": self.crossed_seeds,
    }
    return {name: seeds for name, seeds in named.items() if seeds}


def tune_and_report(
  method: str,
  condition: Mapping[str, Any],
  run: Callable[..., PointResults],
  grid: Mapping[str, Sequence[float]],
  design: Design,
) -> Cell:
  """Runs a grid, and its best setting with seeds that had no part in that.

  If it is nested, the whole grid runs with the seeds of the report, and each
  seed gets the setting that is best by its own score. So the spread over seeds
  includes the luck of choosing.

  Args:
    method: its label.
    condition: under which it runs.
    run: `(grid, seeds, is_fresh) -> PointResults`, where `is_fresh` says that
      these are not the seeds of tuning; crossed seeds are run with the seed of
      a partition as the fourth argument.
    grid: the settings to try; a single setting is not tuned.
    design: the seeds.

  Returns:
    The cell, without what its files say.
  """
  tuning_runs = None
  if num_settings(grid) == 1:
    report_runs = run(grid, design.report_seeds, True)
  elif design.is_nested:
    tuning_runs = run(grid, design.report_seeds, True)
    report_runs = _best_of_each_seed(tuning_runs)
  else:
    tuning_runs = run(grid, design.seeds, False)
    best = tuning_runs.outcome.best
    best_grid = best and {name: [best.hyperparameters[name]] for name in grid}
    report_runs = best and run(best_grid, design.report_seeds, True)
  on_partition = lambda seed: run(grid, design.crossed_seeds, True, seed)
  return Cell(
    method,
    condition,
    tuning_runs,
    report_runs,
    is_nested=design.is_nested and tuning_runs is not None,
    crossed=tuple(map(on_partition, design.partition_seeds)),
  )


def _best_of_each_seed(runs: PointResults) -> PointResults | None:
  """The point with the best score of each seed; None if all diverged."""
  scores = runs.signed_scores()
  if np.isinf(scores).all():
    return None
  by_seed = {seed: [] for seed in runs.seeds}
  for i, point in enumerate(runs.points):
    by_seed[point["seed"]].append(i)
  return runs.take(
    [indices[int(np.argmax(scores[indices]))] for indices in by_seed.values()]
  )


# How clearly the setting was chosen.


def seed_scores(cell: Cell) -> np.ndarray:
  """The scores of the settings that were tried. [seeds of tuning, settings]."""
  of_points = cell.criterion.scores(cell.tuning_runs.history)
  settings = cell.tuning.settings
  num = min(len(setting.points) for setting in settings)
  return np.stack([of_points[setting.points[:num]] for setting in settings], 1)


def num_near_ties(cell: Cell) -> int | None:
  """How many settings tuning does not tell apart from the chosen one.

  Such a setting has 0 in the 95 % interval of its paired difference over the
  seeds of tuning, or its accuracy differs by less than one example. One that
  collapsed does not count. None if nothing was chosen, or with one seed.
  """
  if cell.tuning is None or cell.tuning.best is None:
    return None
  scores = seed_scores(cell)
  if len(scores) < 2:
    return None
  chosen = cell.tuning.settings.index(cell.tuning.best)
  best = scores[:, [chosen]]
  sign = 1 if cell.criterion.direction == "max" else -1
  lead = statistics.paired_difference(sign * best + 0 * scores, sign * scores)
  least = cell.grain(cell.criterion.metric) * (1 - CLOSE)
  is_near = (lead.low <= 0) | (lead.estimate < least)
  is_near &= ~cell.have_collapsed
  is_near[chosen] = False
  return int(is_near.sum())
