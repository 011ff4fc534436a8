"""The history of a run: its metrics by grid point and evaluated round.

Axis letters: `S` grid points (hyperparameters x seeds), `E` evaluated rounds.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedjax_opt.base import LOSSES
from fedjax_opt.checks.values import (
  check_choice,
  checked_array,
  listed,
  nearest,
)
from fedjax_opt.results.metric_names import COSTS, direction


class _Metrics(dict):
  """Metrics by name; a name that is missing is answered with those there."""

  def __missing__(self, name: str):
    if not self:
      raise KeyError(f"{name}: nothing was measured; give evaluate= to the run")
    near = [known for known in self if known.partition("_")[2] == name]
    near = near or nearest(str(name), self)
    hint = f"; did you mean {listed(near, 'or')}?" if near else ""
    raise KeyError(f"{name}: must be one of {', '.join(self)}{hint}")


jax.tree_util.register_pytree_node(  # As a dict is.
  _Metrics,
  lambda metrics: (
    [metrics[n] for n in sorted(metrics)],
    tuple(sorted(metrics)),
  ),
  lambda names, values: _Metrics(zip(names, values, strict=True)),
)


@dataclasses.dataclass
class History:
  """The metrics of every grid point at every evaluated round.

  A point has diverged from the first evaluated round at which its training,
  validation or test loss is not finite. From that round on its values do not
  count: every method below gives None or NaN for them.

  Attributes:
    rounds: evaluated rounds, increasing. [E] ints.
    metrics: name -> values as measured, also of diverged points; but a loss is
      NaN where all rounds before were lost to rejected clients. Each [S, E]
      float64.
  """

  rounds: list[int] = dataclasses.field(default_factory=list)
  metrics: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
  # name -> [S, at least E], of which `metrics` are the first columns.
  _room: dict[str, np.ndarray] = dataclasses.field(
    default_factory=dict, init=False, repr=False, compare=False
  )

  def __post_init__(self):
    self.rounds = [int(r) for r in self.rounds]
    self.metrics = _Metrics(
      (name, np.asarray(values, np.float64))
      for name, values in self.metrics.items()
    )
    points = "points"  # All metrics have equally many points.
    for name, values in self.metrics.items():
      axes = f"[{points}, {len(self.rounds)}]"
      points = len(checked_array(f"metrics[{name!r}]", values, axes))

  def __repr__(self) -> str:
    """The size of the history and the names of its metrics, in one line."""
    suffix = f", the last is {self.rounds[-1]}" if self.rounds else ""
    names = ", ".join(self.metrics) or "none"
    return (
      f"History(evaluated rounds: {len(self.rounds)}{suffix}; "
      f"points: {self.num_points}; metrics: {names})"
    )

  @property
  def num_points(self) -> int:
    """`S`, the number of grid points; 0 before the first evaluation."""
    return next((len(v) for v in self.metrics.values()), 0)

  def append(self, round_number: int, values: Mapping[str, Any]) -> None:
    """Adds the metrics of one evaluated round.

    Args:
      round_number: number of rounds done; larger than at all calls before.
      values: metric name -> one number for each point, [S]. The names and `S`
        are those of the first call.

    Raises:
      ValueError: if the round, the names or the shapes do not continue this
        history.
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
    size = self.num_points or next(iter(columns.values())).size
    for name, column in columns.items():
      checked_array(f"values[{name!r}]", column, f"[{size}]")
    metrics = self.metrics or {name: np.empty((size, 0)) for name in columns}
    count, longer = len(self.rounds), _Metrics()
    for name, values in metrics.items():
      room = self._room.get(name)
      if values.base is not room or room is None or room.shape[1] == count:
        # Room doubles, so all copies together are only as long as the history.
        room = np.empty((size, max(16, 2 * count)))
        room[:, :count] = values
        self._room[name] = room
      room[:, count] = columns[name]
      longer[name] = room[:, : count + 1]
    add, round_number = self.rounds.append, int(round_number)
    # Python answers signals only within or after a call. So none can come
    # between these two lines and separate a column from its round.
    self.metrics = longer
    add(round_number)

  def take(
    self, points: Any = slice(None), rounds: slice = slice(None)
  ) -> "History":
    """The history of some points, and some rounds.

    Args:
      points: an index, a list of indices or a slice.
      rounds: a slice.
    """
    if isinstance(points, int | np.integer):
      points = [points]
    metrics = {name: v[points][:, rounds] for name, v in self.metrics.items()}
    return History(self.rounds[rounds], metrics)

  def __copy__(self) -> "History":
    """A copy that grows independently."""
    return self.take()

  def diverged(self, points: Any = slice(None)) -> np.ndarray:
    """Whether each point has diverged, at each evaluated round.

    Args:
      points: an index or a slice of the points; all by default.

    Returns:
      [S, E] bool, or [E] for one point's index.
    """
    broken = np.zeros((self.num_points, len(self.rounds)), bool)[points]
    for name in LOSSES:
      if name in self.metrics:
        broken |= ~np.isfinite(self.metrics[name][points])
    return np.logical_or.accumulate(broken, axis=-1)

  def diverged_round(self, point: int) -> int | None:
    """First evaluated round at which a point has diverged, or None."""
    if not self.rounds:
      return None
    broken = self.diverged(point)
    return self.rounds[int(np.argmax(broken))] if broken.any() else None

  def status(self, point: int) -> str:
    """'ok', or 'diverged' if the point diverged at any round."""
    return "ok" if self.diverged_round(point) is None else "diverged"

  def values(self, name: str, points: Any = slice(None)) -> np.ndarray:
    """A metric, NaN where it is not finite or the point has diverged.

    Args:
      name: name of the metric.
      points: an index or a slice of the points; all by default.

    Returns:
      [S, E] float64, or [E] for one point's index.

    Raises:
      ValueError: if the metric was not measured.
    """
    check_choice("metric", name, self.metrics)
    values = self.metrics[name][points]
    no_result = self.diverged(points) | ~np.isfinite(values)
    return np.where(no_result, np.nan, values)

  def spent(self, cost: str) -> np.ndarray | None:
    """What each point had spent at each evaluated round.

    Args:
      cost: 'rounds', 'time' (simulated seconds), or of a client of the cohort
        on average: 'bytes' (down and up) or 'gradient_evaluations' (in
        examples).

    Returns:
      [S, E] float64; None if it was not measured.
    """
    if cost == "rounds":
      rounds = np.asarray(self.rounds, np.float64)
      return np.broadcast_to(rounds, (self.num_points, len(rounds)))
    if any(name not in self.metrics for name in COSTS[cost]):
      return None
    return sum(self.metrics[name] for name in COSTS[cost])

  def final(self, point: int) -> dict[str, float | None]:
    """Every metric at the last evaluated round, None where it has no value."""
    if not self.rounds:
      return {}
    values = {name: self.values(name, point)[-1] for name in self.metrics}
    return {n: float(v) if np.isfinite(v) else None for n, v in values.items()}

  def best(self, point: int, name: str) -> tuple[float, int] | None:
    """A metric's best value before any divergence, and its first round.

    Args:
      point: index of the point.
      name: name of the metric.

    Returns:
      (value, round); None if there is no value, or if `direction(name)` is
      None.
    """
    values = self.values(name, point)
    goal = direction(name)
    if goal is None or np.isnan(values).all():
      return None
    index = np.nanargmax(values) if goal == "max" else np.nanargmin(values)
    return float(values[index]), self.rounds[int(index)]
