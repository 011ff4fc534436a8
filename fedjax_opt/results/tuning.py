"""What a tuning grid says: its best setting, and how far that can be trusted.

Axis letters: `S` grid points (hyperparameters x seeds).
"""

import dataclasses
import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.history import History
from fedjax_opt.results.selection import (
  Criterion,
  Point,
  Setting,
  group_by_seed,
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


@dataclasses.dataclass(frozen=True)
class Tuning:
  """The outcome of a tuning grid.

  Attributes:
    best: the chosen setting; None if every point diverged.
    score: its mean score over the seeds that have one; NaN if there is none.
    scores: mean score of every setting, in the order of the grid, NaN where any
      seed diverged. [settings] float64.
    settings: all settings, in the order of the grid.
    num_seeds: seeds of a setting.
    num_diverged: settings of which at least one seed diverged.
    edges: hyperparameters whose best value is at the edge of the grid, so that
      a better one may be outside.
  """

  best: Setting | None
  score: float
  scores: np.ndarray
  settings: list[Setting]
  num_seeds: int
  num_diverged: int
  edges: tuple[Edge, ...]

  @property
  def budget(self) -> int:
    """The number of settings that were tried."""
    return len(self.settings)


def tune(
  history: History, points: Sequence[Point], criterion: Criterion
) -> Tuning:
  """Chooses the best setting of a grid.

  The rule is that of `selection.rank`: the fewest diverged seeds first, then
  the best mean score over seeds; of equal ones the first in the grid.

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
  of_points = criterion.scores(history)
  scores = np.array([of_points[s.points].mean() for s in settings])
  best = rank(history, points, criterion)[0]
  finite = of_points[best.points][np.isfinite(of_points[best.points])]
  return Tuning(
    best=best if finite.size else None,
    score=float(finite.mean()) if finite.size else np.nan,
    scores=scores,
    settings=settings,
    num_seeds=max(len(s.points) for s in settings),
    num_diverged=int(np.sum(~np.isfinite(scores))),
    edges=_edges(settings, best) if finite.size else (),
  )


def _edges(settings: Sequence[Setting], best: Setting) -> tuple[Edge, ...]:
  """The numeric hyperparameters whose best value is an extreme one."""
  found = []
  for name, value in best.hyperparameters.items():
    tried = {setting.hyperparameters[name] for setting in settings}
    if len(tried) < 2 or not all(map(_is_number, tried)):
      continue
    if value in (min(tried), max(tried)):
      side = "smallest" if value == min(tried) else "largest"
      found.append(Edge(name, float(value), side))
  return tuple(found)


def _is_number(value: Any) -> bool:
  return isinstance(value, numbers.Real) and not isinstance(value, bool)
