"""What a run has measured and spent so far, on the host."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedjax_opt.arrays import counters
from fedjax_opt.base import LOSSES
from fedjax_opt.engine.clock import Clock
from fedjax_opt.results.history import History
from fedjax_opt.results.metric_names import SPENT, TIME


@dataclasses.dataclass
class Tally:
  """What a run has recorded, without the state of its algorithm.

  Attributes:
    expected_size: of a cohort, in clients; a clock has its own.
    num_points: S; 1 for a single run.
    done: rounds done.
    run_seconds: time of these rounds and of all evaluations.
    history: what was measured.
    counts: {name: [S] int64}, sums over rounds and clients.
    evaluated: the last evaluation round that was evaluated.
    lost_and_rejected: [2, S] int64, rounds lost and clients rejected up to that
      evaluation.
    traces: for each segment of rounds, {name: [S, rounds, C, ...]}.
    reported: counts that are reported with the metrics.
    clock: the run's clock; None if time is not simulated.
  """

  expected_size: float
  num_points: int
  done: int = 0
  run_seconds: float = 0.0
  history: History = dataclasses.field(default_factory=History)
  counts: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
  evaluated: int = 0
  lost_and_rejected: np.ndarray | int = 0
  traces: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list)
  reported: tuple[str, ...] = ("rejected_clients",)
  clock: Clock | None = None

  def add_rounds(
    self, stop: int, counts: Mapping[str, Any], traces: Mapping[str, Any]
  ) -> None:
    """Adds the rounds until `stop`.

    Args:
      stop: rounds done then.
      counts: {name: [S, 8]}, counters of these rounds.
      traces: {name: [S, T, C, ...]}, of which the first `stop - done` rounds
        are used.
    """
    for name, counter in counts.items():
      self.counts[name] = self.count(name) + counters.read(counter)
    # A copy, without the unused rounds.
    trimmed = lambda trace: np.array(trace[:, : stop - self.done])
    self.traces.append(jax.tree.map(trimmed, dict(traces)))
    self.done = stop

  def with_counts(
    self, metrics: Mapping[str, np.ndarray], is_evaluation_round: bool = True
  ) -> dict[str, np.ndarray]:
    """The metrics of an evaluation after the rounds done so far, completed.

    Args:
      metrics: {name: [S]}.
      is_evaluation_round: whether a longer run would evaluate here too, see
        `drop_extra_evaluation`.

    Returns:
      The metrics with the time until now, the bytes and gradient evaluations
      per client of the cohort, and the counts of `reported`: {name: [S]}.
    """
    metrics = self._time() | dict(metrics)
    # If rejected clients made a point lose all these rounds, it has no result.
    rounds, old_counts = self.done - self.evaluated, self.lost_and_rejected
    names = ("lost_rounds", "rejected_clients")
    new_counts = np.stack([self.count(name) for name in names])
    lost, rejected = new_counts - old_counts
    if is_evaluation_round:
      self.lost_and_rejected, self.evaluated = new_counts, self.done
    is_stuck = (rounds > 0) & (lost == rounds) & (rejected > 0)
    for name in set(LOSSES) & set(metrics):
      metrics[name] = np.where(is_stuck, np.nan, metrics[name])
    for name in self.reported:
      metrics[name] = self.count(name)
    for name in SPENT:
      metrics[name] = self.count(name) / self._cohort_sizes()
    return metrics

  def _time(self) -> dict[str, np.ndarray]:
    """{"time": [S]}."""
    if self.clock is None:
      return {}
    return {TIME: self._of_points(self.clock.time(self.done))}

  def _cohort_sizes(self) -> float | np.ndarray:
    """Clients of a round, on average: a number, or [S]."""
    if self.clock is None:
      return self.expected_size
    return self._of_points(self.clock.expected_sizes)

  def _of_points(self, per_seed: np.ndarray) -> np.ndarray:
    """[tables] -> [S], the value of each point; seeds vary fastest."""
    return np.tile(per_seed, self.num_points // len(per_seed))

  def drop_extra_evaluation(self, round: int) -> None:
    """Forgets the evaluation of a round that runs of other lengths skip.

    Args:
      round: the round; nothing happens if the last evaluation is of another.
    """
    if self.history.rounds[-1:] == [round]:
      self.history = self.history.take(rounds=slice(-1))

  def count(self, name: str) -> np.ndarray:
    """[S] int64, a sum so far."""
    return self.counts.get(name, np.zeros(self.num_points, np.int64))

  def cost(self) -> dict[str, float]:
    """{name_per_round: cost per client}, of all phases and by label.

    A cost is divided by the rounds that a seed has: its timetable may end
    before those of other seeds.
    """
    rounds = np.array([self.done])
    if self.clock is not None:
      rounds = self._of_points(self.clock.done(self.done))
    rounds = np.maximum(rounds, 1)
    per_round = lambda name: float(
      np.mean(self.count(name) / self._cohort_sizes() / rounds)
    )
    labels = sorted(
      name.removesuffix("_bytes_down")
      for name in self.counts
      if name.endswith("_bytes_down")
    )
    cost = {}
    for name in SPENT:
      for part in (name, *(f"{label}_{name}" for label in labels)):
        cost[f"{part}_per_round"] = per_round(part)
    if labels:
      cost["communication_rounds"] = 1 + per_round("labelled_visits")
    if self.clock is not None:
      cost[f"{TIME}_per_round"] = float(np.mean(self._time()[TIME] / rounds))
    return cost

  def padding_waste(self) -> float:
    """The part of the computed examples that was padding."""
    num_computed = np.sum(self.count("computed_examples"))
    return float(1 - np.sum(self.count("examples")) / max(num_computed, 1))

  def joined_traces(self) -> dict[str, np.ndarray]:
    """{name: [S, R, C, ...]}, of all rounds done."""
    if not self.traces:
      return {}
    join = lambda *segments: np.concatenate(segments, 1)
    return jax.tree.map(join, *self.traces)

  def to_arrays(self) -> dict[str, np.ndarray]:
    """The whole record as arrays, for a checkpoint."""
    return {
      "run_seconds": np.array(self.run_seconds),
      "rounds": np.array(self.history.rounds, int),
      "evaluated": np.array(self.evaluated),
      "faults": np.array(self.lost_and_rejected),
      **{f"metrics/{n}": v for n, v in self.history.metrics.items()},
      **{f"counts/{n}": v for n, v in self.counts.items()},
      **{f"traces/{n}": v for n, v in self.joined_traces().items()},
    }

  def restore(self, done: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Replaces this record by one that `to_arrays` made after `done` rounds."""

    def under(name):
      prefix = f"{name}/"
      return {
        n[len(prefix) :]: v for n, v in arrays.items() if n.startswith(prefix)
      }

    self.done = done
    self.run_seconds = float(arrays["run_seconds"])
    self.history = History(arrays["rounds"].tolist(), under("metrics"))
    self.counts = under("counts")
    self.evaluated = int(arrays["evaluated"])
    self.lost_and_rejected = arrays["faults"]
    self.traces = [under("traces")]
