"""The one way to tune: choose by a criterion, measure with fresh seeds.

What runs is a function's business: `fedjax_opt.compare` calls `sweep`, the
command line finds a run in its store or does it now. No method may try more
settings than another.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results import selection
from fedjax_opt.results.history import History
from fedjax_opt.study.cells import Cell, Measured

BUDGETS = ("equal", "unequal")
# Fresh seeds of the report where nobody says how many. Their number does not
# depend on how long a run takes: a study would differ between machines.
NUM_REPORT_SEEDS = 10
# What a report calls seeds that are crossed.
CROSSED = ("seeds of crossed partitions", "seeds on each of these")
Grid = Mapping[str, Sequence[float]]  # hyperparameter -> values


def num_settings(grid: Grid) -> int:
  """The settings of a grid {name: values}: all combinations; 1 of none."""
  return math.prod(len(values) for values in grid.values())


def check_equal(budgets: Mapping[str, int], hint: str) -> None:
  """Checks that all methods that are tuned try as many settings.

  A method with a single setting is not tuned; it may stand beside tuned ones.

  Args:
    budgets: method -> number of settings.
    hint: how to allow unequal ones, for the message.

  Raises:
    ValueError: naming methods whose budgets differ.
  """
  tuned = {method: n for method, n in budgets.items() if n > 1}
  if len(set(tuned.values())) < 2:
    return
  shown = ", ".join(f"{method} {n}" for method, n in tuned.items())
  raise ValueError(
    f"budget: methods try different numbers of settings ({shown}); give grids "
    f"of one size, or {hint}"
  )


def fresh_seeds(seeds: Sequence[int], number: int | None = None) -> list[int]:
  """So many seeds, or ten, after the last of those that tuning uses."""
  first = max(seeds) + 1
  return list(range(first, first + (number or NUM_REPORT_SEEDS)))


def crossed_seeds(
  used: Sequence[int], number: int
) -> tuple[list[int], list[int]]:
  """So many seeds of partitions, and of training, that nothing else uses."""
  both = fresh_seeds(used, 2 * number)
  return both[:number], both[number:]


class Tuned(NamedTuple):
  """A method on a problem.

  Attributes:
    tried: the whole grid with the seeds of tuning; None for a single setting.
    report: the chosen setting with fresh seeds; None if all diverged.
    is_nested: whether each seed of the report chose its own setting.
    crossed: as of `Cell`.
  """

  tried: Measured | None
  report: Measured | None
  is_nested: bool = False
  crossed: tuple[Measured, ...] = ()

  @property
  def parts(self) -> list[Measured]:
    """What there is of all."""
    every = (self.tried, self.report, *self.crossed)
    return [each for each in every if each is not None]

  @property
  def was_there(self) -> bool:
    """Whether nothing ran now."""
    return all(part.was_there for part in self.parts)

  def cell(
    self, method: str, condition: Mapping[str, Any], **others: Any
  ) -> Cell:
    """Its cell of a study; see `Cell` for what else it may have."""
    return Cell(
      method,
      condition,
      self.parts[0].criterion,
      self.tried,
      self.report,
      is_nested=self.is_nested,
      crossed=self.crossed,
      seconds=sum(part.seconds for part in self.parts),
      **others,
    )


def choose(measured: Measured) -> dict[str, float] | None:
  """The best setting by the mean over seeds; None if all diverged."""
  points, history, criterion, *_ = measured
  best = selection.tune(history, points, criterion).best
  return None if best is None else dict(best.hyperparameters)


def tune(
  run: Callable[[Grid, Sequence[int], bool], Measured],
  grid: Grid,
  seeds: Sequence[int],
  report_seeds: Sequence[int],
) -> Tuned:
  """Runs a grid, and its best setting with seeds that had no part in that.

  Args:
    run: `(grid, seeds, is_report) -> Measured`.
    grid: what is tried; a single setting is not tuned.
    seeds: of tuning.
    report_seeds: of what is reported.
  """
  tried, chosen = None, grid
  if num_settings(grid) > 1:
    tried = run(grid, seeds, False)
    best = choose(tried)
    if best is None:
      return Tuned(tried, None)
    chosen = {name: [best[name]] for name in grid}
  return Tuned(tried, run(chosen, report_seeds, True))


def tune_nested(
  run: Callable[[Grid, Sequence[int], bool], Measured],
  grid: Grid,
  report_seeds: Sequence[int],
) -> Tuned:
  """Runs a whole grid with the seeds of the report; each seed chooses.

  A seed's setting is the best one by its own score, so the luck of choosing is
  in the spread over seeds.

  Args:
    run: as of `tune`.
    grid: what is tried; a single setting is not tuned.
    report_seeds: of tuning and of what is reported.
  """
  tried = run(grid, report_seeds, True)
  if num_settings(grid) == 1:
    return Tuned(None, tried)
  return Tuned(tried, _best_of_each_seed(tried), is_nested=True)


def _best_of_each_seed(tried: Measured) -> Measured | None:
  """The point of each seed that has the best score; None if all diverged."""
  history, criterion = tried.history, tried.criterion
  scores = criterion.scores(history)
  if not np.isfinite(scores).any():
    return None
  sign = 1 if criterion.direction == "max" else -1
  ranks = np.where(np.isfinite(scores), sign * scores, -np.inf)
  points = []
  for seed in tried.seeds:
    own = [i for i, point in enumerate(tried.points) if point["seed"] == seed]
    points.append(own[int(np.argmax(ranks[own]))])
  metrics = {name: values[points] for name, values in history.metrics.items()}
  return tried._replace(
    points=[tried.points[i] for i in points],
    history=History(history.rounds, metrics),
    seconds=0.0,
  )
