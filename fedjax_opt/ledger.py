"""What a run has measured and spent so far, on the host."""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from fedjax_opt.cohort import Totals
from fedjax_opt.program import Program
from fedjax_opt.results.checkpoint import Saved
from fedjax_opt.results.history import History


class Record(NamedTuple):
  """What some rounds, and the evaluation after them, leave."""

  metrics: dict[str, jax.Array]  # name -> []
  totals: Totals
  traces: dict[str, jax.Array]  # name -> [eval_every, C, K]


@dataclasses.dataclass
class Ledger:
  """How far a run has come, beside the state of its algorithm.

  Attributes:
    done: rounds.
    run_seconds: time of them and of all evaluations.
    history: what was measured.
    spent: totals so far, leaves float64 [..., S]; None before the first call.
    evaluated: rounds done at the last evaluation.
    faults: [2, ...] rounds lost, and clients rejected, until then.
    traces: of each stretch, {name: [..., rounds, C, K]}.
  """

  done: int = 0
  run_seconds: float = 0.0
  history: History = dataclasses.field(default_factory=History)
  spent: Totals | None = None
  evaluated: int = 0
  faults: np.ndarray | float = 0.0
  traces: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list)

  def add(
    self, program: Program, stop: int, record: Record, is_due: bool
  ) -> dict[str, np.ndarray]:
    """Adds the rounds until `stop`.

    Returns:
      {name: [S]} as measured after them, if an evaluation was due.
    """
    self.spent = _add(self.spent, record.totals)
    count = stop - self.done
    # A copy, without the unused rounds.
    used = lambda trace: np.array(trace[..., :count, :, :])
    self.traces.append(jax.tree.map(used, record.traces))
    self.done = stop
    metrics = jax.tree.map(np.atleast_1d, record.metrics)
    if not (is_due and metrics):
      return {}
    # Of a point that lost all rounds to rejections there is no result.
    rounds, before = self.done - self.evaluated, self.faults
    by_phase = self.spent.rejected
    self.faults = np.stack([self.spent.lost_rounds, np.sum(by_phase, -1)])
    self.evaluated = self.done
    lost, rejected = self.faults - before
    is_stuck = (rounds > 0) & (lost == rounds) & (rejected > 0)
    for name in {"train_loss", "test_loss"} & set(metrics):
      metrics[name] = np.where(is_stuck, np.nan, metrics[name])
    return metrics | _per_client(program, self.spent)

  def cost(self, program: Program) -> dict[str, float]:
    """The cost of a round to a client, all of it and what is labelled apart."""
    spent = _add(self.spent, Totals.zeros())  # If nothing was, zeros.
    labels = np.array([phase.label for phase in program.phases.values()])
    of_round = lambda spent: np.mean(
      spent / max(self.done, 1), axis=tuple(range(spent.ndim - 1))
    )
    cost = {}
    for name, by_phase in _by_phase(program, spent).items():
      cost[name] = float(np.sum(of_round(by_phase)))
      for label in sorted(set(labels) - {""}):
        own = of_round(by_phase)[labels == label]
        cost[f"{label}_{name}"] = float(np.sum(own))
    if any(labels):
      visits = of_round(spent.visits[..., list(program.phases)])
      apart = np.sum(visits[labels != ""]) / program.cohort_size
      cost["communication_rounds"] = float(1 + apart)
    return cost

  def padding_waste(self) -> float:
    """The part of the computed examples that was padding."""
    spent = _add(self.spent, Totals.zeros())
    return float(1 - np.sum(spent.examples) / max(np.sum(spent.computed), 1.0))

  def joined_traces(self) -> dict[str, np.ndarray]:
    """{name: [..., R, C, K]}, of all rounds done."""
    if not self.traces:
      return {}
    join = lambda *rounds: np.concatenate(rounds, -3)
    return jax.tree.map(join, *self.traces)

  def to_record(self) -> dict[str, np.ndarray]:
    """All of it as arrays, for a checkpoint."""
    traces = self.joined_traces()
    return {
      "run_seconds": np.array(self.run_seconds),
      "rounds": np.array(self.history.rounds, int),
      "evaluated": np.array(self.evaluated),
      "faults": np.array(self.faults),
      **{f"metrics/{n}": v for n, v in self.history.metrics.items()},
      **{f"totals/{n}": v for n, v in self.spent._asdict().items()},
      **{f"traces/{n}": v for n, v in traces.items()},
    }

  @classmethod
  def of_record(cls, saved: Saved) -> "Ledger":
    """From what `to_record` made."""

    def under(name):
      prefix = f"{name}/"
      found = saved.record.items()
      return {n[len(prefix) :]: v for n, v in found if n.startswith(prefix)}

    return cls(
      done=saved.round,
      run_seconds=float(saved.record["run_seconds"]),
      history=History(saved.record["rounds"].tolist(), under("metrics")),
      spent=Totals(**under("totals")),
      evaluated=int(saved.record["evaluated"]),
      faults=saved.record["faults"],
      traces=[under("traces")],
    )


def _add(spent, totals):
  """Sums in float64: whole numbers in float32 are exact only to 2^24."""
  wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), totals)
  return wide if spent is None else jax.tree.map(np.add, spent, wide)


def _per_client(program, spent):
  """{name: [S]}, what a client of the cohort has spent, on average.

  And how many were rejected, of all clients.
  """
  spent_on = {"rejected_clients": spent.rejected, **_by_phase(program, spent)}
  return {
    name: np.atleast_1d(np.sum(by_phase, -1))
    for name, by_phase in spent_on.items()
  }


def _by_phase(program, spent):
  """{name: [..., phases]}, spent on average by a client of the cohort."""
  # Not all numbers: an algorithm may have drawn batches for itself.
  numbers, phases = list(program.phases), program.phases.values()
  down = np.array([phase.bytes_down for phase in phases])
  up = np.array([phase.bytes_up for phase in phases])
  visits = spent.visits[..., numbers] / program.cohort_size
  gradients = spent.gradient_evaluations[..., numbers]
  return {
    "bytes_down": visits * down,
    "bytes_up": visits * up,
    "gradient_evaluations": gradients / program.cohort_size,
  }
