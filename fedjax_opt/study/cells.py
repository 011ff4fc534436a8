"""The cells of a study: what one method measured under one condition.

Axis letters: `S` grid points (hyperparameters x seeds), `E` evaluated rounds.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.data.digest import Digests
from fedjax_opt.results import selection
from fedjax_opt.results.history import History
from fedjax_opt.results.load import Run
from fedjax_opt.results.metric_names import direction
from fedjax_opt.results.outcome import Outcome, outcome_of
from fedjax_opt.results.selection import Criterion, Setting
from fedjax_opt.study.sizes import ExampleSet

# A mean must be above chance by this many standard errors of its examples.
_ERRORS = 2
_ACCURACIES = ("validation_accuracy", "test_accuracy")


class PointResults(NamedTuple):
  """What some grid points measured.

  Attributes:
    points: hyperparameters of every point, the seed among them. [S] dicts.
    history: their metrics.
    criterion: by which their settings are compared; None if they are not.
    seconds: time of their rounds and their compilation.
    was_stored: whether all results were stored before, so nothing ran now.
    run: the content of their folder; None if they have none.
    digests: digests of their data, for a cell of a reference; else None.
  """

  points: Sequence[Mapping[str, Any]]
  history: History
  criterion: Criterion | None = None
  seconds: float = 0.0
  was_stored: bool = False
  run: Run | None = None
  digests: Digests | None = None

  @property
  def seeds(self) -> list[int]:
    """The seeds, in order of appearance."""
    return list(dict.fromkeys(point["seed"] for point in self.points))

  @property
  def outcome(self) -> Outcome:
    """Its settings compared, and the best of them."""
    return outcome_of(self.history, self.points, self.criterion)

  def take(self, points: Sequence[int]) -> "PointResults":
    """What some of the points measured, without a time of their own."""
    return self._replace(
      points=[self.points[i] for i in points],
      history=self.history.take(points),
      seconds=0.0,
    )

  def signed_scores(self) -> np.ndarray:
    """The scores of the points; larger ones are better. [S]."""
    scores = self.criterion.scores(self.history)
    sign = 1 if self.criterion.direction == "max" else -1
    return np.where(np.isfinite(scores), sign * scores, -np.inf)


class CellFiles(NamedTuple):
  """What the files of a cell's runs hold beside the metrics.

  Attributes:
    commands: the commands that ran it.
    per_client: kind of model ('global', 'personalized', ...) -> the accuracy of
      every client on its own held-out examples, for the report's first seed,
      [M], NaN for a client without any; {} if not measured.
    step_sizes: step sizes of the report's first point, each [R, C, K]; {} if
      they were not recorded.
    is_verified: whether they are known to be undamaged; see `Run`.
  """

  commands: tuple[str, ...] = ()
  per_client: Mapping[str, np.ndarray] = {}
  step_sizes: Mapping[str, np.ndarray] = {}
  is_verified: bool = True


@dataclasses.dataclass(frozen=True)
class Cell:
  """One method under one condition.

  Attributes:
    method: its label.
    condition: name -> value, for all that differs between conditions; {} if
      there is only one condition.
    tuning_runs: the whole grid, with the seeds of tuning, or with those of the
      report if it is nested. None if there was a single setting, so nothing was
      chosen.
    report_runs: the chosen setting with the seeds of the report. [S] points,
      one for each seed. None if the setting always diverged.
    files: what the files of its runs hold: `commands`, `per_client`,
      `step_sizes` and `is_verified`. A study from Python has no files.
    is_nested: whether each seed of the report chose its own setting, by its own
      score.
    crossed: the whole grid on one partition each, all with the same seeds, see
      `variance.spread_of`; () if partitions and seeds were not crossed.
    sets: 'validation' and 'test' -> the examples, if they are known.
  """

  method: str
  condition: Mapping[str, Any]
  tuning_runs: PointResults | None
  report_runs: PointResults | None
  files: CellFiles = dataclasses.field(default_factory=CellFiles)
  is_nested: bool = False
  crossed: tuple[PointResults, ...] = ()
  sets: Mapping[str, ExampleSet] = dataclasses.field(default_factory=dict)

  @property
  def criterion(self) -> Criterion:
    """The criterion by which its setting was chosen."""
    return self.parts[0].criterion

  @property
  def seconds(self) -> float:
    """Time of its rounds and of compilation, with tuning."""
    return sum(part.seconds for part in self.parts)

  @property
  def parts(self) -> list[PointResults]:
    """All runs that were made for it."""
    all_parts = (self.tuning_runs, self.report_runs, *self.crossed)
    return [part for part in all_parts if part is not None]

  @functools.cached_property
  def tuning(self) -> Outcome | None:
    """The choice of the setting; None if there was nothing to choose."""
    if self.tuning_runs is None:
      return None
    return self.tuning_runs.outcome

  @property
  def chosen(self) -> dict[str, Any]:
    """The hyperparameters of the report; {} if there is none.

    If each seed chose its own setting, this is the most frequent choice.
    """
    return self.choices[0].hyperparameters if self.choices else {}

  @property
  def choices(self) -> list[Setting]:
    """The settings of the report, most often chosen first."""
    points = [] if self.report_runs is None else self.report_runs.points
    return sorted(selection.group_by_seed(points), key=lambda s: -len(s.points))

  @property
  def budget(self) -> int:
    """The number of settings that were tried."""
    return 1 if self.tuning_runs is None else self.tuning.budget

  @property
  def tuned(self) -> list[str]:
    """The hyperparameters of which several values were tried."""
    if self.tuning_runs is None:
      return []
    return [
      name
      for name in selection.varying(self.tuning_runs.points)
      if name != "seed"
    ]

  @property
  def is_fresh(self) -> bool:
    """Whether the report's seeds had no part in the choice of the setting."""
    if self.tuning_runs is None or self.report_runs is None or self.is_nested:
      return True
    return not set(self.tuning_runs.seeds) & set(self.report_runs.seeds)

  def final(self, metric: str) -> np.ndarray:
    """A metric after the last round, NaN for a seed that diverged. [S]."""
    if (
      self.report_runs is None or metric not in self.report_runs.history.metrics
    ):
      return np.full(1, np.nan)
    return self.report_runs.history.values(metric)[:, -1]

  def examples_of(self, metric: str) -> ExampleSet | None:
    """The examples on which a metric is measured; None if not known."""
    for name, example_set in self.sets.items():
      if metric.removeprefix("regularized_").startswith(f"{name}_"):
        return example_set
    return None

  def grain(self, metric: str) -> float:
    """One example's part of an accuracy; 0 where it is not known."""
    example_set = self.examples_of(metric)
    is_mean = example_set is not None and metric in _ACCURACIES
    return 1 / example_set.size if is_mean else 0.0

  def standard_error(self, metric: str, share: Any) -> Any:
    """That of an accuracy of this share on the examples; 0 if not known."""
    return np.sqrt(share * (1 - share) * self.grain(metric))

  def margin(self, metric: str, level: float) -> float:
    """By how much an accuracy must exceed this level; 0 if not known."""
    return float(_ERRORS * self.standard_error(metric, level))

  @functools.cached_property
  def have_collapsed(self) -> np.ndarray:
    """Which of the settings that were tried collapsed. [settings] bool."""
    if self.tuning is None:
      return np.zeros(0, bool)
    by, history = self.criterion, self.tuning_runs.history
    pairs = zip(self.tuning.settings, self.tuning.scores, strict=True)
    return np.array(
      [
        self._is_chance(by.metric, by.direction, history, setting.points, score)
        for setting, score in pairs
      ],
      bool,
    )

  @property
  def num_collapsed(self) -> int:
    """How many of the settings that were tried collapsed."""
    return int(self.have_collapsed.sum())

  def has_diverged(self, metric: str) -> bool:
    """Whether a seed of the report diverged."""
    return not np.isfinite(self.final(metric)).all()

  def has_collapsed(self, metric: str) -> bool:
    """Whether the report is hardly better than the initial model or chance."""
    if self.report_runs is None:
      return False
    return self._is_chance(
      metric,
      direction(metric),
      self.report_runs.history,
      slice(None),
      float(np.mean(self.final(metric))),
    )

  def collapse_level(self, metric: str) -> float:
    """What the report's mean must be better than; NaN if it is not known."""
    if self.report_runs is None:
      return np.nan
    runs = self.report_runs
    return self._level(metric, direction(metric), runs.history, slice(None))

  def _is_chance(self, metric, direction, history, points, mean) -> bool:
    """Whether a mean over seeds is hardly better than at round 0 or chance."""
    level = self._level(metric, direction, history, points)
    if not np.isfinite([level, mean]).all():
      return False
    return mean >= level if direction == "min" else mean <= level

  def _level(self, metric, direction, history, points) -> float:
    """The value that a mean over seeds must be better than.

    An accuracy must be above the initial model and the most frequent label by
    two standard errors of its examples, if their number is known.
    """
    levels = []
    if history.rounds[0] == 0 < history.rounds[-1]:
      levels.append(float(history.values(metric, points)[:, 0].mean()))
    if self.grain(metric):
      levels.append(self.examples_of(metric).largest_class)
    levels = [level for level in levels if np.isfinite(level)]
    if not levels:
      return np.nan
    if direction == "min":
      return min(levels)
    return max(levels) + self.margin(metric, max(levels))

  def by_seed(self, metric: str) -> dict[int, float]:
    """seed of the report -> a metric after the last round."""
    seeds = [point["seed"] for point in self.report_runs.points]
    return dict(zip(seeds, self.final(metric), strict=True))

  def spent(self, cost: str) -> np.ndarray | None:
    """The mean cost of a client in a cohort, up to each evaluated round.

    Args:
      cost: one of `COSTS`.

    Returns:
      The mean over the seeds of the report, [E]; None if it was not measured.
    """
    if self.report_runs is None:
      return None
    per_seed = self.report_runs.history.spent(cost)
    return None if per_seed is None else per_seed.mean(axis=0)
