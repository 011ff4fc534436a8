"""What a run measured: per-client accuracy, histories and how a winner is told.

Axis letters: `M` clients in the population, `S` grid points (hyperparameters x
seeds), `E` evaluated rounds.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# One grid point: what was tried, by flag name, the seed among them.
Point = Mapping[str, Any]


# Accuracy over clients, inside jit.


def worst_decile(accuracy: jax.Array, sizes: jax.Array) -> jax.Array:
  """Mean accuracy of the worst 10 % of the clients.

  With `n` clients that own at least one example, this is the mean over the
  `ceil(n / 10)` lowest accuracies.

  Args:
    accuracy: accuracy of every client. [M] float in [0, 1].
    sizes: examples of every client; those with 0 do not count. [M] int.

  Returns:
    A scalar in [0, 1], NaN if no client has an example.
  """
  nonempty = sizes > 0
  count = (jnp.sum(nonempty) + 9) // 10
  ascending = jnp.sort(jnp.where(nonempty, accuracy, jnp.inf))
  worst = jnp.where(jnp.arange(ascending.size) < count, ascending, 0.0)
  return jnp.sum(worst) / count


def deciles(accuracy: jax.Array, sizes: jax.Array) -> dict[str, jax.Array]:
  """The nine deciles of accuracy over clients, interpolated linearly.

  Args:
    accuracy: accuracy of every client. [M] float in [0, 1].
    sizes: examples of every client; those with 0 do not count. [M] int.

  Returns:
    `{'accuracy_decile_1': ..., ..., 'accuracy_decile_9': ...}`, scalars.
  """
  accuracy = jnp.where(sizes > 0, accuracy, jnp.nan)
  values = jnp.nanquantile(accuracy, jnp.arange(1, 10) / 10)
  return {f"accuracy_decile_{i + 1}": values[i] for i in range(9)}


# Histories.


_SMALLER_IS_BETTER = ("recovery_error", "optimality_gap", "grad_norm_sq")


def direction(name: str) -> str | None:
  """Which way a metric improves: 'max', 'min', or None if neither."""
  if "accuracy" in name or name in ("f1", "precision", "recall"):
    return "max"
  if name.endswith("loss") or name in _SMALLER_IS_BETTER:
    return "min"
  return None


def is_fraction(name: str) -> bool:
  """Whether people read this metric in percent."""
  return "accuracy" in name


@dataclasses.dataclass
class History:
  """Evaluated rounds of every grid point.

  A point is diverged from the first evaluated round at which its training or
  test loss is not finite. What it measured from then on is no result: every
  method below gives None or NaN for it.

  Attributes:
    rounds: evaluated rounds, increasing. [E] ints.
    metrics: name -> values as measured. Each [S, E] float64.
  """

  rounds: list[int] = dataclasses.field(default_factory=list)
  metrics: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    self.rounds = [int(r) for r in self.rounds]
    self.metrics = {
      name: np.asarray(values, np.float64)
      for name, values in self.metrics.items()
    }
    shapes = {name: values.shape for name, values in self.metrics.items()}
    if any(
      len(shape) != 2 or shape[1] != len(self.rounds)
      for shape in shapes.values()
    ) or (len(set(shapes.values())) > 1):
      raise ValueError(
        f"metrics: shapes are {shapes}; all must be [points, "
        f"{len(self.rounds)}], one column for each evaluated round"
      )

  @property
  def num_points(self) -> int:
    """`S`, the number of grid points; 0 before the first evaluation."""
    return next((len(v) for v in self.metrics.values()), 0)

  def append(self, round_number: int, values: Mapping[str, Any]) -> None:
    """Adds what was measured after one round.

    Args:
      round_number: how many rounds were done; larger than all before.
      values: metric name -> one number for each point, [S]. The names and `S`
        are those of the first call.

    Raises:
      ValueError: if round, names or shapes do not continue this history.
    """
    if self.rounds and round_number <= self.rounds[-1]:
      raise ValueError(
        f"round_number: {round_number} does not come after the last evaluated "
        f"round, {self.rounds[-1]}"
      )
    if not values or (self.rounds and set(values) != set(self.metrics)):
      raise ValueError(
        f"values: metrics are {sorted(values)}; this history has "
        f"{sorted(self.metrics)}"
      )
    columns = {
      name: np.atleast_1d(np.asarray(value, np.float64))
      for name, value in values.items()
    }
    shapes = {name: column.shape for name, column in columns.items()}
    size = self.num_points or next(iter(columns.values())).size
    if any(shape != (size,) for shape in shapes.values()):
      raise ValueError(
        f"values: shapes are {shapes}; all must be ({size},), one number for "
        "each point"
      )
    before = self.metrics or {name: np.empty((size, 0)) for name in columns}
    longer = {
      name: np.column_stack([before[name], columns[name]]) for name in before
    }
    # In one go: an interruption never sees a column without its round.
    self.metrics, self.rounds = longer, [*self.rounds, int(round_number)]

  def diverged(self, points: Any = slice(None)) -> np.ndarray:
    """Where points are diverged. [S, E] bool, or [E] for one point's index."""
    broken = np.zeros((self.num_points, len(self.rounds)), bool)[points]
    for name in ("train_loss", "test_loss"):
      if name in self.metrics:
        broken |= ~np.isfinite(self.metrics[name][points])
    return np.logical_or.accumulate(broken, axis=-1)

  def diverged_round(self, point: int) -> int | None:
    """First evaluated round at which this point is diverged, or None."""
    if not self.rounds:
      return None
    broken = self.diverged(point)
    return self.rounds[int(np.argmax(broken))] if broken.any() else None

  def status(self, point: int) -> str:
    """'ok' or 'diverged'."""
    return "ok" if self.diverged_round(point) is None else "diverged"

  def values(self, name: str, points: Any = slice(None)) -> np.ndarray:
    """A metric, NaN wherever there is no result.

    Args:
      name: the metric.
      points: which points, all by default.

    Returns:
      [S, E] float64, or [E] for one point's index.

    Raises:
      ValueError: if the metric was not measured.
    """
    if name not in self.metrics:
      raise ValueError(
        f"metric: {name!r} was not measured; choose from {sorted(self.metrics)}"
      )
    measured = self.metrics[name][points]
    no_result = self.diverged(points) | ~np.isfinite(measured)
    return np.where(no_result, np.nan, measured)

  def final(self, point: int) -> dict[str, float | None]:
    """Every metric at the last evaluated round; None where diverged."""
    if not self.rounds:
      return {}
    return {n: _or_none(self.values(n, point)[-1]) for n in self.metrics}

  def best(self, point: int, name: str) -> tuple[float, int] | None:
    """A metric's best value before any divergence and its (first) round.

    None where there is no such value, or where `direction(name)` is None.
    """
    values = self.values(name, point)
    way = direction(name)
    if way is None or np.isnan(values).all():
      return None
    at = np.nanargmax(values) if way == "max" else np.nanargmin(values)
    return float(values[at]), self.rounds[int(at)]


def _or_none(value: float) -> float | None:
  return float(value) if np.isfinite(value) else None


# Settings: points that differ only by their seed.


class Setting(NamedTuple):
  """One choice of hyperparameters and the points (seeds) that ran it."""

  hyperparameters: dict[str, Any]
  points: list[int]


def group_by_seed(points: Sequence[Point]) -> list[Setting]:
  """Groups grid points that differ in `seed` only, in order of appearance."""
  settings: dict[str, Setting] = {}
  for index, point in enumerate(points):
    rest = {name: value for name, value in point.items() if name != "seed"}
    key = repr(sorted(rest.items()))
    settings.setdefault(key, Setting(rest, [])).points.append(index)
  return list(settings.values())


def varying(points: Sequence[Point]) -> list[str]:
  """Names of the hyperparameters that are not the same at all points."""
  names = dict.fromkeys(name for point in points for name in point)
  return [n for n in names if len({repr(p.get(n)) for p in points}) > 1]


def format_value(value: Any) -> str:
  """A hyperparameter as people write it: 2, 0.1, 1e-05, sgd."""
  return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


# Selection.


@dataclasses.dataclass(frozen=True)
class Criterion:
  """What makes one setting of the hyperparameters better than another.

  Attributes:
    metric: name of the metric.
    direction: 'max' or 'min'.
    rule: which rounds count: the 'last' evaluated one, the 'best' one, or
      'mean_last_n', the mean over the last `n` evaluated ones (over all of
      them if there are fewer), or 'worst_last_n', the worst of those.
    n: evaluated rounds in 'mean_last_n' and 'worst_last_n'.
  """

  metric: str = "test_accuracy"
  direction: str = "max"
  rule: str = "last"
  n: int = 1

  def __post_init__(self):
    if self.direction not in ("max", "min"):
      raise ValueError(f"direction: {self.direction!r} is not 'max' or 'min'")
    if self.rule not in ("last", "best", "mean_last_n", "worst_last_n"):
      raise ValueError(
        f"rule: {self.rule!r} is not 'last', 'best', 'mean_last_n' or "
        "'worst_last_n'"
      )
    if self.n < 1:
      raise ValueError(f"n: {self.n} must be at least 1 evaluated round")

  def scores(self, history: History) -> np.ndarray:
    """The number that is compared, NaN for diverged points. [S] float64."""
    values = history.values(self.metric)
    if self.rule == "mean_last_n":
      return values[:, -self.n :].mean(axis=1)
    if self.rule == "worst_last_n":
      worst_of = np.min if self.direction == "max" else np.max
      return worst_of(values[:, -self.n :], axis=1)
    if self.rule == "last":
      return values[:, -1]
    # Rounds without a result never win; a point that diverged has no score.
    worst = -np.inf if self.direction == "max" else np.inf
    best = np.max if self.direction == "max" else np.min
    scores = best(np.where(np.isnan(values), worst, values), axis=1)
    no_score = history.diverged()[:, -1] | ~np.isfinite(scores)
    return np.where(no_score, np.nan, scores)

  def __str__(self) -> str:
    rule = self.rule.replace("_last_n", f" of last {self.n}")
    way = "highest" if self.direction == "max" else "lowest"
    return f"{way} {self.metric} ({rule})"


def rank(
  history: History, points: Sequence[Point], criterion: Criterion
) -> list[Setting]:
  """All settings, best first.

  A setting counts by the mean of the criterion over its seeds. A setting with
  fewer diverged seeds comes before one with more, whose mean over the seeds
  that are left would flatter it. Ties keep the order of the grid.

  Args:
    history: what was measured.
    points: hyperparameters of every grid point. [S] mappings.
    criterion: what to compare.

  Returns:
    The settings of `group_by_seed`, sorted.
  """
  scores = criterion.scores(history)
  sign = -1.0 if criterion.direction == "max" else 1.0

  def key(setting: Setting):
    own = scores[setting.points]
    alive = own[np.isfinite(own)]
    mean = sign * alive.mean() if alive.size else np.inf
    return (own.size - alive.size, mean)

  return sorted(group_by_seed(points), key=key)


def select(
  history: History, points: Sequence[Point], criterion: Criterion
) -> int | None:
  """The grid point to report: the best setting's first seed that is ok.

  Args:
    history: what was measured.
    points: hyperparameters of every grid point. [S] mappings.
    criterion: what to compare, see `rank` for how.

  Returns:
    An index of `points`; None if every point diverged or none was evaluated.
  """
  if not history.rounds:
    return None
  scores = criterion.scores(history)
  for setting in rank(history, points, criterion):
    for point in setting.points:
      if np.isfinite(scores[point]):
        return point
  return None
