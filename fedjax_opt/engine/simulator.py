"""Rounds some at a time: the class `Simulator`."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import jax
import numpy as np

from fedjax_opt.arrays import target
from fedjax_opt.base import Algorithm, Batch, Params, State
from fedjax_opt.checks import errors, functions
from fedjax_opt.checks.values import check_at_least
from fedjax_opt.data import digest
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import identity, inputs
from fedjax_opt.engine.compilation import copies
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.feed import lower_draws
from fedjax_opt.engine.resolved_run import RunResolver
from fedjax_opt.engine.run_options import (
  DEFAULTS,
  GRID_DEFAULTS,
  PLAIN_EXECUTION,
  GridOptions,
  check_option_names,
)
from fedjax_opt.engine.run_programs import RunPrograms
from fedjax_opt.engine.run_state import RunState
from fedjax_opt.engine.runner import Runner
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.results.progress import with_progress
from fedjax_opt.results.result import Report, Result
from fedjax_opt.schedules.timetable import Timetable


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SimulationState:
  """The state of a run between calls of `Simulator.run`.

  In a grid of several points, leaves of `server` and `client_state` have the
  leading axes [settings, seeds], a setting being one combination of
  hyperparameters.

  Attributes:
    round: rounds done.
    seeds: one for each run.
    server: the algorithm's state.
    client_state: what every client keeps, leaves [M, ...]; None if nothing.
    frozen: the leaves that no round changes, which `server` lacks: a pair, of
      those that depend on the seed, [seeds, ...], and one copy of the others.
    config: the options of the run, resolved.
    grid: the values of its hyperparameters by name; {} for a single run.
  """

  round: int
  seeds: tuple[int, ...]
  server: State
  client_state: Any
  frozen: Any
  config: Config
  grid: Mapping[str, Sequence[float]]

  def __repr__(self) -> str:
    return f"SimulationState(round {self.round}, seeds {self.seeds})"


class Simulator:
  """Runs an algorithm as many rounds at a time as its caller likes.

  >>> simulator = Simulator(algorithm, data, cohort_size=10, evaluate=evaluate)
  >>> state = simulator.init(params, seed=0)
  >>> state, metrics = simulator.run(state, rounds=20)

  The program is compiled in the first call of `run`, and again only for a model
  of other shapes. Rounds give the same numbers in one call or in several, and
  the same as in `simulate` and `sweep`, except for secret noise, see
  `privacy.with_privacy`.
  """

  def __init__(
    self,
    algorithm: Algorithm | Callable[..., Algorithm],
    data: ClientData | Population | Callable[[int], ClientData | Population],
    *,
    grid: Mapping[str, Sequence[float]] | None = None,
    seeds: Sequence[int] | None = None,
    test: Batch | ClientData | None = None,
    validation: Batch | ClientData | None = None,
    **options: Unpack[GridOptions],
  ):
    """Checks the arguments as far as that needs no model.

    Args:
      algorithm: see `simulate`; for a grid see `make` of `sweep`.
      data: see `sweep`.
      grid: see `sweep`; None for a single run.
      seeds: see `sweep`; only with `grid`.
      test: see `simulate`.
      validation: see `simulate`.
      **options: see `RunOptions`, and for a grid `GridOptions`.

    Raises:
      ValueError: naming the invalid argument.
      TypeError: naming the argument of a wrong type.
    """
    check_option_names(options, DEFAULTS if grid is None else GRID_DEFAULTS)
    # Numbers of NumPy's types would be other options to a run that resumes.
    options = {
      name: value.item() if isinstance(value, np.generic) else value
      for name, value in options.items()
    }
    self._is_grid = grid is not None
    self._seeds = inputs.checked_seeds(grid, seeds)
    make, self._grid = inputs.checked_grid(algorithm, grid)
    self._data = inputs.data_of_seeds(data, self._seeds)
    evaluate = options.get("evaluate")
    self._held_out = {
      name: inputs.checked_held_out(examples, evaluate, name, self._data)
      for name, examples in (("test", test), ("validation", validation))
    }
    self._options = options
    self._resolver = RunResolver(
      make, self._grid, self._seeds, self._data, options
    )
    if validation is not None:
      functions.check_takes_validation(evaluate)
    self._programs: RunPrograms | None = None
    self._programs_key: tuple[Any, ...] = ()

  def init(self, params: Params, seed: int | None = None) -> SimulationState:
    """The state before the first round.

    Args:
      params: the initial model; for a grid also a function from a random key
        to one.
      seed: the seed of a single run, 0 if None; a grid has its `seeds`.

    Returns:
      The state; it holds copies of `params`.

    Raises:
      ValueError: if the seed or the algorithm does not fit.
      TypeError: if `params` are not floating-point arrays.
    """
    run = self._resolver.resolve(params, self._seeds_of(seed))
    programs = self._programs_with(run.config, run.points)
    programs.trace_programs(run.initial_state.shapes)
    arrays, seeds = run.make_state(), run.points.seeds
    return SimulationState(0, seeds, *arrays, run.config, self._grid)

  def run(
    self, state: SimulationState, rounds: int
  ) -> tuple[SimulationState, dict[str, Any]]:
    """Runs some rounds, and evaluates the model after them.

    Args:
      state: from `init` or `run`; it stays usable.
      rounds: how many; 0 evaluates only.

    Returns:
      The state after them, and the metrics: {name: float}, of a grid [S].
    """
    check_at_least("rounds", rounds, 0)
    target.check_at_hand()
    programs = self._programs_of_state(state)
    end = state.round + rounds
    check_at_least("state.round + rounds", end, 0)
    _check_rounds(end, state.config.clock)
    programs.compile()
    # Rounds overwrite these.
    server, kept = copies((state.server, state.client_state))
    arrays = programs.put(RunState(server, kept, state.frozen))
    with programs.open_feed() as feed:
      firsts = range(state.round, end, feed.max_rounds)
      stop_of = lambda first: min(first + feed.max_rounds, end)
      feed.start(map(stop_of, firsts), state.round)
      for first in firsts:
        segment, stop = feed.next_segment(), stop_of(first)
        arrays, _, _ = programs.advance(arrays, segment, first, stop)
    metrics = programs.active_settings.expand(programs.evaluate(arrays))
    if not self._is_grid:
      metrics = {name: values[0].item() for name, values in metrics.items()}
    return dataclasses.replace(state, round=end, **arrays._asdict()), metrics

  def compile(self, params: Params) -> dict[str, jax.stages.Compiled]:
    """Compiles the programs of a run, and does not run them.

    The programs say what they need: `memory_analysis()`, `cost_analysis()`.
    Their devices may be elsewhere, see `fedjax_opt.target`.

    Args:
      params: see `init`.

    Returns:
      'rounds', the program with the loop over rounds, and 'evaluation', if
      anything is evaluated.

    Raises:
      ValueError: as `init` does.
      TypeError: as `init` does.
    """
    self.trace(params)
    return self._programs.compile()

  def trace(
    self, params: Params, names: Sequence[str] = ("rounds", "evaluation")
  ) -> dict[str, jax.stages.Traced]:
    """Traces programs of a run; what they call fails here if it is wrong.

    Args:
      params: see `init`.
      names: which programs.

    Returns:
      The programs by name; no 'evaluation' if nothing is measured.

    Raises:
      ValueError: as `init` does.
      TypeError: as `init` does.
    """
    run = self._resolver.resolve(params, self._seeds or (0,))
    programs = self._programs_with(run.config, run.points)
    return programs.trace_programs(run.initial_state.shapes, names)

  @property
  def computation(self) -> dict[str, Any] | None:
    """How the programs compute, see `Result`; None before there are any.

    `init`, `compile` and runs make them. Until they are compiled,
    `client_chunk` may still become smaller.
    """
    return self._programs and self._programs.config.computation

  def timetables(self, params: Params) -> dict[int, Timetable]:
    """The timetable of each seed, with the option `schedule`.

    Args:
      params: see `init`.

    Returns:
      {seed: timetable}.

    Raises:
      ValueError: if there is no schedule, or as `init` does.
      TypeError: as `init` does.
    """
    if self._options.get("schedule") is None:
      raise ValueError("schedule: must be given; there is no timetable")
    seeds = self._seeds or (0,)
    tables = self._resolver.resolve(params, seeds).config.clock.timetables
    tables = tables * (len(seeds) if len(tables) == 1 else 1)
    return dict(zip(seeds, tables, strict=True))

  def run_all(
    self,
    params: Params,
    rounds: int,
    *,
    seed: int | None = None,
    on_evaluation: Callable[[Report], Any] | None = None,
    checkpoints: Checkpoints | None = None,
    extra_metrics: Callable[[Report], Mapping[str, np.ndarray]] | None = None,
    progress: bool = False,
  ) -> Result:
    """A run from its start, or a checkpoint, to its end, with a history.

    Args:
      params: see `init`.
      rounds: R, communication rounds.
      seed: see `init`.
      on_evaluation: see `simulate`.
      checkpoints: see `simulate`.
      extra_metrics: `(report) -> {name: [S]}`, metrics that the host computes
        after each evaluation, also if `evaluate` is None. Their names are new,
        and always the same. The history and the checkpoints have them too, so a
        run that is resumed needs the same function.
      progress: see `simulate`.

    Returns:
      The result, as that of `simulate`, and for a grid as that of `sweep`.

    Raises:
      ValueError: as `init` does.
      TypeError: as `init` does.
    """
    target.check_at_hand()
    rounds = int(rounds)  # It may be one of NumPy's.
    run = self._resolver.resolve(params, self._seeds_of(seed))
    if checkpoints is not None:
      checkpoints.identify(lambda: self._identity(run))
    clock = run.config.clock
    if callable(self._options.get("schedule")):
      rounds = min(rounds, clock.steps)
    _check_rounds(rounds, clock)
    with contextlib.ExitStack() as stack:
      if progress:
        on_evaluation = stack.enter_context(
          with_progress(rounds, on_evaluation)
        )
      return Runner(
        self._programs_with(run.config, run.points),
        run,
        rounds,
        on_evaluation,
        checkpoints,
        extra_metrics,
      ).run()

  def metric_names(self, params: Params) -> list[str]:
    """What would be measured; nothing is compiled.

    Args:
      params: see `init`.

    Raises:
      ValueError: as `init` does.
      TypeError: as `init` does.
    """
    evaluation = self.trace(params, ["evaluation"]).get("evaluation")
    return [] if evaluation is None else list(evaluation.out_info)

  def params(self, state: SimulationState) -> Params:
    """The evaluated model; for a grid with the leading axis S."""
    programs = self._programs_of_state(state)
    return programs.params(_arrays_of(state))

  def _seeds_of(self, seed: int | None) -> Sequence[int]:
    """The seeds of a grid, or the one of a single run.

    Raises:
      ValueError: if a seed is given for a grid.
    """
    if self._is_grid and seed is not None:
      raise ValueError(
        f"seed={seed}: the seeds of a grid are given to Simulator(seeds=...)"
      )
    return self._seeds or (0 if seed is None else seed,)

  def _identity(self, run):
    """What a run must have to go on with another one, see `engine.identity`.

    The programs are lowered for one device and one way to map clients, so that
    a run may go on with others.
    """
    device = target.host() or jax.local_devices()[0]
    start, points, clock = run.initial_state, run.points, run.config.clock
    with target.use([device]):
      config = dataclasses.replace(
        self._resolver.config_for(start.model, clock, **PLAIN_EXECUTION),
        has_secret_noise=run.config.has_secret_noise,
        costs_differ=run.config.costs_differ,
      )
      plain = RunPrograms(config, points, self._data, self._held_out)
      traced = plain.trace_programs(start.shapes)
      programs = {
        "start": start.lowered(),
        "cohorts": lower_draws(config, points.seeds, self._data.sizes),
        **{name: program.lower() for name, program in traced.items()},
      }
    data = digest.of_data([self._data], **self._held_out)
    extras = {
      "seed": points.seeds if self._is_grid else points.seeds[0],
      digest.DATA_DIGESTS: data,
    }
    if self._is_grid:
      extras["grid"] = self._grid
    if clock is not None:
      extras["schedule"] = clock.digest
    return identity.of_run(self._options, programs, extras)

  def _programs_of_state(self, state):
    """The programs of a state, which must be one of this simulator."""
    own_config, schedule = self._resolver.config_without_model, None
    if not isinstance(self._options.get("schedule"), Timetable | None):
      # Each state has its own, of its seed and model.
      schedule = "a timetable for each seed"
      clock = getattr(getattr(state, "config", None), "clock", None)
      own_config = self._resolver.config_for(None, clock, **PLAIN_EXECUTION)
    inputs.check_state_belongs(
      state, SimulationState, own_config, self._seeds, self._grid, schedule
    )
    config = dataclasses.replace(state.config, evaluate=own_config.evaluate)
    points = self._resolver.points_for(state.seeds, config.clock)
    programs = self._programs_with(config, points)
    shapes = jax.eval_shape(lambda: _arrays_of(state))
    try:
      programs.trace_programs(shapes)
    except (ValueError, TypeError) as error:
      message = "state: does not fit this simulator"
      raise errors.failed(message, error) from error
    return programs

  def _programs_with(self, config, points):
    """The programs of these options on the present devices; anew for others.

    They are made anew too if a run before has dropped settings of the grid.
    """
    key = config, points.seeds, target.present()
    if self._programs_key == key and self._programs.active_settings.has_all:
      return self._programs
    self._programs_key = key
    self._programs = RunPrograms(config, points, self._data, self._held_out)
    return self._programs


def _arrays_of(state: SimulationState) -> RunState:
  """The arrays of a state, as `RunPrograms` takes them."""
  return RunState(state.server, state.client_state, state.frozen)


def _check_rounds(rounds, clock):
  """Checks that a schedule has so many steps."""
  if clock is not None and rounds > clock.steps:
    raise ValueError(
      f"rounds={rounds}: must be at most {clock.steps}, the steps of schedule"
    )
