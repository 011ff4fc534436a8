"""What a tuning grid that ran says: its best setting, and what is known of it.

Axis letters: `S` grid points (hyperparameters x seeds).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks.values import is_real
from fedjax_opt.results.history import History
from fedjax_opt.results.selection import (
  Criterion,
  Point,
  Setting,
  group_by_seed,
  over_seeds,
  rank,
)


class Edge(NamedTuple):
  """A hyperparameter whose best value is the smallest or largest one tried.

  Attributes:
    name: of the hyperparameter.
    value: its best value.
    side: 'smallest' or 'largest'.
  """

  name: str
  value: float
  side: str

  def sentence(self, name: str, value: str) -> str:
    """What it means, with its name and value as the caller shows them."""
    return (
      f"the best {name}, {value}, is the {self.side} that was tried; a better "
      "one may lie outside the grid"
    )


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The outcome of a tuning grid.

  Attributes:
    best: the chosen setting; None if every point diverged.
    score: its mean score over the seeds that have one; NaN if there is none.
    scores: mean score of every setting, in the order of the grid, NaN where any
      seed diverged. [settings] float64.
    settings: all settings, in the order of the grid.
    num_seeds: seeds of a setting.
    num_diverged: settings of which at least one seed diverged.
  """

  best: Setting | None
  score: float
  scores: np.ndarray
  settings: list[Setting]
  num_seeds: int
  num_diverged: int

  @property
  def budget(self) -> int:
    """The number of settings that were tried."""
    return len(self.settings)

  @property
  def edges(self) -> tuple[Edge, ...]:
    """Those whose best value is at the edge; a better one may be outside."""
    best = self.best.hyperparameters if self.best else {}
    sides = {name: self.side(name, value) for name, value in best.items()}
    return tuple(Edge(n, float(best[n]), at) for n, at in sides.items() if at)

  def side(self, name: str, value: Any) -> str:
    """Whether a number is the 'smallest' or 'largest' of those tried, or ''."""
    values = {setting.hyperparameters[name] for setting in self.settings}
    if len(values) < 2 or not all(map(is_real, values)):
      return ""
    return {max(values): "largest", min(values): "smallest"}.get(value, "")


def outcome_of(
  history: History, points: Sequence[Point], criterion: Criterion
) -> Outcome:
  """What a grid that ran says: its best setting, and what is known of it.

  The best one is that of `rank`: the fewest diverged seeds first, then the best
  mean score over seeds; of equal ones the first in the grid.

  Args:
    history: the metrics of every point.
    points: hyperparameters of every grid point. [S] mappings.
    criterion: gives the score.

  Raises:
    ValueError: if the criterion's metric was not measured, or no round was
      evaluated.
  """
  if not history.rounds:
    raise ValueError("history: no round was evaluated; nothing can be chosen")
  settings = group_by_seed(points)
  point_scores = criterion.scores(history)
  scores = np.array([point_scores[s.points].mean() for s in settings])
  best = rank(history, points, criterion)[0]
  _, score = over_seeds(point_scores[best.points])
  has_score = bool(np.isfinite(score))
  return Outcome(
    best=best if has_score else None,
    score=score,
    scores=scores,
    settings=settings,
    num_seeds=max(len(s.points) for s in settings),
    num_diverged=int(np.sum(~np.isfinite(scores))),
  )
