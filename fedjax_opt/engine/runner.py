"""A run from its start, or a checkpoint, to its last round."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from fedjax_opt import multi_process
from fedjax_opt.arrays import target, trees
from fedjax_opt.base import Params, State
from fedjax_opt.checks import functions
from fedjax_opt.engine.compilation import copies
from fedjax_opt.engine.resolved_run import ResolvedRun
from fedjax_opt.engine.run_programs import RunPrograms
from fedjax_opt.engine.run_state import RunState
from fedjax_opt.engine.stop_signals import StopSignals
from fedjax_opt.engine.tally import Tally
from fedjax_opt.results.checkpoint import CheckpointError, Checkpoints
from fedjax_opt.results.result import Report, Result


@dataclasses.dataclass
class Runner:
  """One run: rounds, evaluations, checkpoints, and what it has recorded.

  Attributes:
    programs: the compiled programs of the run.
    resolved: the run; it makes the state of round 0, once all is traced.
    rounds: R.
    on_evaluation: see `simulate`.
    checkpoints: see `simulate`.
    extra_metrics: see `Simulator.run_all`.
  """

  programs: RunPrograms
  resolved: ResolvedRun
  rounds: int
  on_evaluation: Callable[[Report], Any] | None = None
  checkpoints: Checkpoints | None = None
  extra_metrics: Callable[[Report], Mapping[str, np.ndarray]] | None = None

  def __post_init__(self):
    self._active_settings = self.programs.active_settings
    self._config = self.programs.config
    self._tally = Tally(
      self._config.expected_size,
      self._active_settings.points.num_points,
      reported=self._config.reported_counts,
      clock=self._config.clock,
    )
    self._feed = self.programs.open_feed()
    # Of the settings that are present.
    self._shapes = self.resolved.initial_state.shapes
    self._state: RunState | None = None
    self._compile_seconds = 0.0
    self._reported: int | None = None  # The round whose report is read now.
    self._interrupted = 0
    self._is_stopped = False
    self._stop_signals = StopSignals()

  def run(self) -> Result:
    """Runs to the end.

    Ctrl-C ends the run; the result has the evaluations done so far. SIGTERM and
    SIGHUP do the same if checkpoints are saved, or if the program has handlers
    for them. A repeated signal does not interrupt the last checkpoint.
    """
    self._restore()
    is_resumed = self._state is not None
    with contextlib.ExitStack() as feeds:
      feeds.enter_context(self._feed)
      with self._timed_compilation():
        traced = self.programs.trace_programs(self._shapes)
      if is_resumed:
        self._check_recorded(traced)
      else:
        self._state = self.programs.put(self.resolved.make_state())
      self._feed.start(filter(None, self._stops()), self._tally.done)
      self._compile()
      if self.programs.config.client_chunk != self._config.client_chunk:
        self._config = self.programs.config
        self._feed = feeds.enter_context(self.programs.open_feed())
        self._feed.start(filter(None, self._stops()), self._tally.done)
      if is_resumed:
        self._report_again()
        # Only one of several processes may have been told to stop.
        is_told = multi_process.of_any_process(self._is_stopped)
        self._interrupted = multi_process.of_any_process(
          self._stop_signals.first_signal
        )
        self._is_stopped = bool(is_told or self._interrupted)
      with self._stop_signals.heeded(self.checkpoints is not None):
        for stop in () if self._is_stopped else self._stops():
          self._advance(stop)
          if self._is_evaluation_round(stop) or stop == self.rounds:
            self._evaluate()
          # After the last round, only where a longer run would drop them too.
          if stop < self.rounds or self._is_evaluation_round(stop):
            self._drop()
          if self._save_and_check_end(stop):
            break
    return self._result()

  def _restore(self) -> None:
    """Takes the state of a checkpoint, if the run is resumed."""
    saved = None
    if self.checkpoints is not None:
      shapes = self._shapes
      if self._config.state_is_on_host:  # To be restored as NumPy arrays.
        empty = lambda leaf: np.empty(leaf.shape, leaf.dtype)
        client_state = jax.tree.map(empty, shapes.client_state)
        shapes = shapes._replace(client_state=client_state)
      on_host = self._config.starts_on_host and target.host()
      with jax.default_device(on_host or None):
        # Checkpoints name the leaves by their places in a plain tuple.
        saved = self.checkpoints.load(tuple(shapes))
    multi_process.check_alike(
      "the checkpoint to go on from", 0 if saved is None else saved.round
    )
    if saved is None:
      return
    if saved.round > self.rounds:
      raise CheckpointError(
        f"rounds={self.rounds}: the checkpoint to go on from is of round "
        f"{saved.round}; give rounds={saved.round} or more, or another folder"
      )
    self._tally.restore(saved.round, saved.record)
    # A longer run evaluates in evaluation rounds only.
    if saved.round < self.rounds and not self._is_evaluation_round(saved.round):
      self._tally.drop_extra_evaluation(saved.round)
    state = RunState(*saved.state)
    self._set_state(self._active_settings.restore(saved.record, state))

  def _check_recorded(self, traced: Mapping[str, jax.stages.Traced]) -> None:
    """Checks that the checkpoint has extra metrics exactly if this run has.

    Args:
      traced: the programs by name.

    Raises:
      CheckpointError: if it is not so.
    """
    own = set(functions.COUNTED_BY_RUN)
    if "evaluation" in traced:
      own.update(traced["evaluation"].out_info)
    extra = sorted(self._tally.history.metrics.keys() - own)
    if extra and self.extra_metrics is None:
      raise CheckpointError(
        f"extra_metrics=None: the checkpoint to go on from has {extra}; give "
        "the function that measures these, or another folder"
      )
    if not extra and self.extra_metrics is not None:
      raise CheckpointError(
        "extra_metrics: the checkpoint to go on from has no such metrics; "
        "leave extra_metrics out, or give another folder"
      )

  def _set_state(self, state: RunState) -> None:
    """Goes on from a state of the settings that are present."""
    self.programs.place_points()
    self._shapes = jax.eval_shape(lambda: state)
    self._state = self.programs.put(state)

  def _stops(self) -> Iterator[int]:
    """After which rounds to come the program returns to the host."""
    periods = [self._config.eval_every, self._feed.max_rounds]
    if self.checkpoints is not None and self.checkpoints.every is not None:
      periods.append(self.checkpoints.every)
    # The initial model is evaluated after 0 rounds.
    done, is_evaluated = self._tally.done, bool(self._tally.history.rounds)
    return stops(done if done or is_evaluated else -1, self.rounds, periods)

  def _is_evaluation_round(self, stop: int) -> bool:
    """Whether runs of any length are evaluated after so many rounds."""
    return stop % self._config.eval_every == 0

  def _compile(self) -> None:
    """Compiles what the rounds and evaluations to come need."""
    names = ["rounds"] if self._tally.done < self.rounds else []
    if next(self._stops(), None) is not None:
      names.append("evaluation")
    if names:
      with self._timed_compilation():
        self.programs.trace_programs(self._shapes)
        self.programs.compile(names)

  @contextlib.contextmanager
  def _timed_compilation(self) -> Iterator[None]:
    start = time.perf_counter()
    yield
    self._compile_seconds += time.perf_counter() - start

  def _report_again(self) -> None:
    """Reports the evaluations from before the run was resumed."""
    whole = self._tally.history
    for i, round in enumerate(whole.rounds):
      metrics = {name: values[:, i] for name, values in whole.metrics.items()}
      history = whole.take(rounds=slice(i + 1))
      self._report(
        self._report_of(round, metrics, history=history, is_repeated=True)
      )

  def _report_of(
    self, round: int, metrics: dict[str, np.ndarray], **others: Any
  ) -> Report:
    return Report(
      round,
      metrics,
      self._compile_seconds,
      self._tally.run_seconds,
      is_grid=self._active_settings.points.is_grid,
      **others,
    )

  def _advance(self, stop: int) -> None:
    """Runs the rounds until `stop`."""
    tally = self._tally
    if stop == tally.done:
      return
    start = time.perf_counter()
    state, counts, traces = self.programs.advance(
      self._state, self._feed.next_segment(), tally.done, stop
    )
    self._state = state
    tally.run_seconds += time.perf_counter() - start
    expand, events = self._active_settings.expand, self._config.counted_events
    # All points cost the same, also those that run no longer.
    counts = {
      name: expand(counter, "zero" if name in events else "first")
      for name, counter in counts.items()
    }
    tally.add_rounds(stop, counts, expand(traces))

  def _evaluate(self) -> None:
    """Measures the model, and reports the metrics."""
    start = time.perf_counter()
    done, history = self._tally.done, self._tally.history
    metrics = self.programs.evaluate(self._state)
    self._tally.run_seconds += time.perf_counter() - start
    if metrics or self.extra_metrics is not None:
      metrics = self._tally.with_counts(
        self._active_settings.expand(metrics), self._is_evaluation_round(done)
      )
    report = self._report_of(
      done, metrics, history=history, _copy=self._reader()
    )
    self._reported = done
    try:
      if self.extra_metrics is not None:
        # In place: the report has this dictionary already.
        metrics |= functions.checked_extra_metrics(
          self.extra_metrics(report),
          metrics,
          history.metrics,
          self._active_settings.points.num_points,
        )
      if metrics:
        history.append(done, metrics)
      self._report(report)
    finally:
      self._reported = None

  def _reader(self) -> Callable[[str], Any]:
    """A function that copies a part of the present state.

    It does so only while this evaluation is reported.
    """
    round = self._tally.done
    values = {
      "params": self._params,
      "state": self._server,
      "client_state": self._client_state,
    }

    def read(name):
      if self._reported != round:
        raise ValueError(
          f"report: the model and the state of round {round} are overwritten; "
          "read them within on_evaluation"
        )
      return copies(values[name]())

    return read

  def _report(self, report: Report) -> None:
    if self.on_evaluation is None:
      return
    answer = np.asarray(self._stop_signals.call(self.on_evaluation, report))
    # Anything but booleans is ignored, such as None.
    if answer.dtype == bool and answer.size and answer.all():
      self._is_stopped = True

  def _drop(self) -> None:
    """Drops settings that have diverged, if the smaller program is worth it."""
    num_before = len(self._active_settings.active)
    state = self._active_settings.drop(self._tally.history, self._state)
    if state is not None:
      self._set_state(state)
      self._compile()
    elif len(self._active_settings.active) < num_before:
      self.programs.place_points()

  def _save_and_check_end(self, stop: int) -> bool:
    """Saves a checkpoint if one is due; returns whether the run ends here."""
    # Read once: a later signal ends the run after the next segment.
    stopping = multi_process.of_any_process(self._stop_signals.first_signal)
    is_stopped = bool(multi_process.of_any_process(self._is_stopped))
    is_last = stopping or is_stopped or stop == self.rounds
    if self.checkpoints is not None and (
      is_last or self.checkpoints.is_due(stop)
    ):
      self._save(stop)
    if stopping and stop < self.rounds:
      self._interrupted = int(stopping)
    return bool(is_last)

  def _save(self, stop: int) -> None:
    state = self._state_of_all()
    if self._config.layout.mesh is not None:  # Other devices may resume it.
      state = multi_process.fetch(state)
    record = self._tally.to_arrays() | self._active_settings.to_arrays()
    if multi_process.is_first_process():
      self.checkpoints.save(stop, tuple(state), record)

  def _state_of_all(self) -> RunState:
    """The state of all settings."""
    return self._active_settings.state_of_all(self._state)

  def _with_fetched_server(self) -> RunState:
    """The state of all settings; that of the server is on this process."""
    state = self._state_of_all()
    return state._replace(server=multi_process.fetch_global(state.server))

  def _params(self) -> Params:
    return self.programs.params(self._with_fetched_server())

  def _server(self) -> State:
    return self.programs.server_states(self._with_fetched_server())

  def _client_state(self) -> Any:
    client_state = multi_process.fetch_global(self._state_of_all().client_state)
    return self._active_settings.flat(client_state)

  def _result(self) -> Result:
    traces = self._tally.joined_traces()
    if not self._active_settings.points.is_grid:
      traces = trees.take(traces, 0)
    return Result(
      params=self._params(),
      state=self._server(),
      client_state=self._client_state(),
      history=self._tally.history,
      traces=traces,
      rounds=self._tally.done,
      interrupted=self._interrupted,
      compile_seconds=self._compile_seconds,
      run_seconds=self._tally.run_seconds,
      cost=self._tally.cost(),
      padding_waste=self._tally.padding_waste(),
      client_memory=self._config.client_memory,
      needed_bytes=self.programs.needed_bytes,
      computation=self.programs.config.computation,
      is_grid=self._active_settings.points.is_grid,
    )


def stops(done: int, last: int, every: Iterable[int]) -> Iterator[int]:
  """Multiples of some numbers, and the last one; there may be millions.

  Args:
    done: all are larger.
    last: none is larger.
    every: the numbers.
  """
  while done < last:
    done = min(last, *((done // step + 1) * step for step in every))
    yield done
