"""The cells of a study: what one method measured under one condition.

Axis letters: `S` grid points (hyperparameters x seeds), `E` evaluated rounds.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion, Tuning, tune, varying


class Measured(NamedTuple):
  """What some grid points measured.

  Attributes:
    points: hyperparameters of every point, the seed among them. [S] dicts.
    history: their metrics.
    criterion: by which their settings are compared, if they are.
    seconds: that their rounds and their compilation took.
    was_there: whether nothing ran now.
    run: the folder's content, if it has one; None in memory.
  """

  points: Sequence[Mapping[str, Any]]
  history: History
  criterion: Criterion | None = None
  seconds: float = 0.0
  was_there: bool = False
  run: Any = None

  @property
  def seeds(self) -> list[int]:
    """The seeds, in order of appearance."""
    return list(dict.fromkeys(point["seed"] for point in self.points))


@dataclasses.dataclass(frozen=True)
class Cell:
  """One method under one condition.

  Attributes:
    method: its label.
    condition: name -> value of what differs between conditions; {} if there is
      one condition only.
    criterion: by which its setting was chosen.
    tried: the whole grid with the seeds of tuning; None if there was a single
      setting, so that nothing was chosen.
    measured: the chosen setting with the seeds of the report. [S] points, one
      for each seed. Of a setting that always diverged it is None.
    commands: the commands that ran it, if any did.
    seconds: time of its rounds and of compilation, tuning included.
    per_client: kind of model ('global', 'personalized', ...) -> the accuracy of
      every client on examples of its own that are held out, of the report's
      first seed, [M], NaN for a client without any; {} if not measured.
    step_sizes: step sizes of the report's first seed, [R, C, K]; None if they
      were not recorded.
    is_verified: whether what was read of it is what was written; see `Run`.
  """

  method: str
  condition: Mapping[str, Any]
  criterion: Criterion
  tried: Measured | None
  measured: Measured | None
  commands: tuple[str, ...] = ()
  seconds: float = 0.0
  per_client: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  step_sizes: Mapping[str, np.ndarray] | None = None
  is_verified: bool = True

  @functools.cached_property
  def tuning(self) -> Tuning | None:
    """The choice of the setting; None if there was nothing to choose."""
    if self.tried is None:
      return None
    return tune(self.tried.history, self.tried.points, self.criterion)

  @property
  def chosen(self) -> dict[str, Any]:
    """The hyperparameters of the report; {} if there is none."""
    if self.measured is None:
      return {}
    first = self.measured.points[0]
    return {name: value for name, value in first.items() if name != "seed"}

  @property
  def budget(self) -> int:
    """The number of settings that were tried."""
    return 1 if self.tried is None else self.tuning.budget

  @property
  def tuned(self) -> list[str]:
    """The hyperparameters of which several values were tried."""
    if self.tried is None:
      return []
    return [name for name in varying(self.tried.points) if name != "seed"]

  @property
  def is_fresh(self) -> bool:
    """Whether no seed of the report had a part in the choice."""
    if self.tried is None or self.measured is None:
      return True
    return not set(self.tried.seeds) & set(self.measured.seeds)

  def final(self, metric: str) -> np.ndarray:
    """A metric after the last round, NaN for a seed that diverged. [S]."""
    if self.measured is None or metric not in self.measured.history.metrics:
      return np.full(1, np.nan)
    return self.measured.history.values(metric)[:, -1]

  def by_seed(self, metric: str) -> dict[int, float]:
    """seed of the report -> a metric after the last round."""
    seeds = [point["seed"] for point in self.measured.points]
    return dict(zip(seeds, self.final(metric), strict=True))

  def spent(self, cost: str) -> np.ndarray | None:
    """What a client of the cohort spent until each evaluated round, on average.

    Args:
      cost: one of `COSTS`.

    Returns:
      The mean over the seeds of the report, [E]; None if it was not measured.
    """
    if self.measured is None:
      return None
    of_seeds = self.measured.history.spent(cost)
    return None if of_seeds is None else of_seeds.mean(axis=0)
