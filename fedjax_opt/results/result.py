"""What a run reports after each evaluation, and its result."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fedjax_opt.base import Params, State
from fedjax_opt.checks.functions import COUNTED_BY_RUN
from fedjax_opt.results.history import History
from fedjax_opt.results.text_tables import html_table

_MANY_METRICS = 8  # The most metrics in a notebook's table.


@dataclasses.dataclass(frozen=True, eq=False)
class Report:
  """The argument of `on_evaluation` after each evaluation.

  Attributes:
    round: rounds done.
    metrics: {name: [S]}, as measured after these rounds.
    compile_seconds: time of tracing and compiling so far.
    run_seconds: time of all rounds and evaluations so far.
    is_grid: whether the run is a grid; then the model has the leading axis S.
    history: all evaluations so far, the last one among them; it grows with the
      run. While `extra_metrics` is called, it lacks the present one.
    is_repeated: whether this is an evaluation from before the run was resumed;
      its model and states are then None.

  Of several processes, all must read the model or a state if one does: each has
  a part.
  """

  round: int
  metrics: dict[str, np.ndarray]
  compile_seconds: float
  run_seconds: float
  is_grid: bool = False
  history: History = dataclasses.field(default_factory=History)
  is_repeated: bool = False
  _copy: Callable[[str], Any] = dataclasses.field(
    default=lambda name: None, repr=False
  )

  @functools.cached_property
  def params(self) -> Params:
    """The evaluated model, a copy; for a grid with the leading axis S.

    Raises:
      ValueError: if it is first read after `on_evaluation`: the next rounds
        overwrite the model.
    """
    return self._copy("params")

  @functools.cached_property
  def state(self) -> State:
    """The algorithm's state, a copy; see `params`."""
    return self._copy("state")

  @functools.cached_property
  def client_state(self) -> Any:
    """What every client keeps, leaves [M, ...], a copy; see `params`."""
    return self._copy("client_state")


@dataclasses.dataclass
class Result:
  """The result of a simulation.

  For a grid, `params`, `state`, `client_state` and `traces` have the leading
  axis S.

  Attributes:
    params: the evaluated model after the last round.
    state: the algorithm's state after the last round.
    client_state: what every client keeps, leaves [M, ...]; None if nothing.
    history: the metrics of every evaluated round.
    traces: {name: [R, C, K]}, the traced fields of the client rule's state, NaN
      for a step that a client did not take; and {name: [R, C]}, the metrics
      that clients returned.
    rounds: rounds done; fewer than the argument `rounds` if the run ended
      early.
    interrupted: the number of the signal that ended the run early, such as
      that of Ctrl-C; 0 if none did.
    compile_seconds: time to trace and compile.
    run_seconds: time of all rounds and evaluations.
    cost: means over rounds, per client of the cohort and as if none had dropped
      out: `bytes_down_per_round`, `bytes_up_per_round` and
      `gradient_evaluations_per_round` (in examples). Names with a label, such
      as `stage_start_bytes_up_per_round`, are the part of the phases with that
      label. If there are such phases, `communication_rounds` is the number of
      communication rounds per round; each of these phases adds one.
      `time_per_round` is simulated seconds, on a schedule.
    padding_waste: fraction of the computed examples that were padding.
    client_memory: where the rows of `client_state` were: 'device' or 'host'.
    needed_bytes: memory that the compiled rounds need on each device, as XLA
      plans it; None if no rounds were compiled or the backend does not say.
    computation: {option: value}, how the rounds were computed, such as the
      clients at a time; another run with these options has the same bits.
    is_grid: whether the run is a grid.
  """

  params: Params
  state: State
  client_state: Any
  history: History
  traces: dict[str, np.ndarray]
  rounds: int
  interrupted: int
  compile_seconds: float
  run_seconds: float
  cost: dict[str, float]
  padding_waste: float
  client_memory: str = "device"
  needed_bytes: int | None = None
  computation: dict[str, Any] = dataclasses.field(default_factory=dict)
  is_grid: bool = False

  def __repr__(self) -> str:
    points = self.history.num_points
    text = ""
    for name in ("train_loss", "test_loss", "test_accuracy"):
      values = self.history.metrics.get(name, np.empty((0, 0)))
      if values.size and points <= 4:
        final = np.round(values[:, -1], 6).tolist()
        text += f", {name}={final[0] if points == 1 else final}"
    grid_text = f" x {points} points" if points > 1 else ""
    return (
      f"Result({self.rounds} rounds{grid_text}{text}, compiled in "
      f"{self.compile_seconds:.1f} s, ran {self.run_seconds:.1f} s)"
    )

  def _repr_html_(self) -> str:
    """The last values of the metrics, for notebooks."""
    points = self.history.num_points
    columns = ["last value"]
    if points > 1:
      columns = ["lowest", "median", "highest of the points"]
    rows = []
    names = [
      name
      for name in self.history.metrics
      if name not in COUNTED_BY_RUN and "decile" not in name
    ]
    for name in names[:_MANY_METRICS] if self.history.rounds else ():
      values = self.history.values(name)[:, -1]
      values = values[np.isfinite(values)]
      if points > 1 and values.size:
        values = np.quantile(values, [0, 0.5, 1])
      cells = [f"{value:.4g}" for value in values] or ["-"] * len(columns)
      rows.append([name, *cells])
    diverged = int(self.history.diverged()[:, -1:].sum())
    note = f"{diverged} of {points} points diverged" if diverged else ""
    return html_table(repr(self), ["", *columns], rows, note)
