"""The one way to tune: choose by a criterion, measure with fresh seeds.

What runs is a function's business: `fedjax_opt.compare` calls `sweep`, the
command line finds a run in its store or does it now. No method may try more
settings than another.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_opt.results import selection
from fedjax_opt.study.cells import Cell, Measured

BUDGETS = ("equal", "unequal")
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


def fresh_seeds(seeds: Sequence[int], number: int | None) -> list[int]:
  """Seeds that were not used for tuning.

  Args:
    seeds: those of tuning.
    number: how many; as many as those of tuning if None.
  """
  first = max(seeds) + 1
  return list(range(first, first + (len(seeds) if number is None else number)))


class Tuned(NamedTuple):
  """A method on a problem.

  Attributes:
    tried: the whole grid with the seeds of tuning; None for a single setting.
    report: the chosen setting with fresh seeds; None if all diverged.
  """

  tried: Measured | None
  report: Measured | None

  @property
  def parts(self) -> list[Measured]:
    """What there is of both."""
    return [each for each in self if each is not None]

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
      *self,
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
