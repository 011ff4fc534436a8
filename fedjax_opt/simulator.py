"""Simulating a federated algorithm: one run, a grid, or step by step.

In call order: `simulate` and `sweep` make a `Simulator`, whose `engine.runner`
goes from evaluation to evaluation; `engine.executor` calls the compiled
program, in which `engine.rounds` loops over rounds and gives the algorithm a
`Cohort` (engine/cohort.py) and, for one client, a `Worker` (engine/worker.py).
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt.base import Algorithm, Batch, Params, State
from fedjax_opt.checks import algorithms, inputs
from fedjax_opt.checks import settings as checked
from fedjax_opt.checks import values as checks
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import client_state, processes, programs
from fedjax_opt.engine.active_points import ActivePoints
from fedjax_opt.engine.config import DEFAULTS, Config, Settings
from fedjax_opt.engine.executor import Executor
from fedjax_opt.engine.runner import Runner
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.results.progress import with_progress
from fedjax_opt.results.result import Report, Result


def simulate(
  algorithm: Algorithm,
  params: Params,
  data: ClientData | Population,
  *,
  rounds: int,
  seed: int = 0,
  test: Batch | None = None,
  on_evaluation: Callable[[Report], Any] | None = None,
  checkpoints: Checkpoints | None = None,
  progress: bool = False,
  **settings: Unpack[Settings],
) -> Result:
  """Simulates an algorithm on a population of clients.

  Args:
    algorithm: from `fedjax_opt`, or your own.
    params: the initial model, a pytree of floating-point arrays.
    data: the clients' examples, in memory; or on disk, then those of each
      cohort are read while the rounds before it are computed, and metrics of
      training are those of a sample of the clients.
    rounds: R, communication rounds.
    seed: of cohorts, batches and dropout.
    test: pooled test examples, {name: [N, ...]}, passed to `evaluate`.
    on_evaluation: called with a `Report` after each evaluation, first with
      those that a resumed run has made before; the run ends if it returns True.
    checkpoints: where to save the run, and whether to go on with it.
    progress: whether a bar shows the rounds done.
    **settings: see `Settings`: cohort_size, batch_size, local_steps, evaluate,
      eval_every and others.

  Returns:
    The final model and all that was recorded.

  Raises:
    ValueError: naming the argument that cannot be, before anything is compiled.
    TypeError: naming one of a wrong type, in the same way.
  """
  checked.check_names(settings, DEFAULTS, "simulate")
  simulator = Simulator(algorithm, data, test=test, **settings)
  return simulator._run_whole(
    params, (seed,), rounds, on_evaluation, checkpoints, progress
  )


def sweep(
  make: Callable[..., Algorithm],
  grid: Mapping[str, Sequence[float]],
  params: Params | Callable[[jax.Array], Params],
  data: ClientData | Population | Callable[[int], ClientData | Population],
  *,
  rounds: int,
  seeds: Sequence[int] = (0,),
  test: Batch | None = None,
  on_evaluation: Callable[[Report], Any] | None = None,
  checkpoints: Checkpoints | None = None,
  progress: bool = False,
  grid_map: str = "auto",
  grid_chunk: int | None = None,
  grid_devices: int | None = None,
  **settings: Unpack[Settings],
) -> Result:
  """Simulates an algorithm at every point of a grid, in one program.

  Args:
    make: `(**hyperparameters) -> Algorithm`; called with traced scalars, for
      all settings at once.
    grid: {name: values}, the hyperparameters to combine; {} for one setting.
    params: the initial model, or a function from a random key to one.
    data: the clients' examples, or a function from a seed to them; what it
      gives must share the pooled examples.
    rounds: R, communication rounds.
    seeds: each makes one run of each setting.
    test: see `simulate`.
    on_evaluation: see `simulate`.
    checkpoints: see `simulate`.
    progress: see `simulate`.
    grid_map: 'vmap' vectorizes the points, 'scan' computes one after the other
      (diverged ones then take no more time), 'auto' chooses.
    grid_chunk: how many settings are vectorized at a time. If None as many as
      the memory of a device holds, by what the compiled program says that it
      needs.
    grid_devices: over how many devices the settings are divided. If None over
      as many as divide them; the others are for the clients.
    **settings: see `simulate`.

  Returns:
    The result, its arrays with a leading axis S, in the order of
    `grid_points(grid, seeds)`. Points that diverged may be stopped, see
    `engine.active_points`; what they would have measured is NaN.

  Raises:
    ValueError: naming the argument that cannot be, before anything is compiled.
    TypeError: naming one of a wrong type, in the same way.
  """
  checked.check_names(settings, DEFAULTS, "sweep")
  inputs.check_is_grid(grid)
  simulator = Simulator(
    make,
    data,
    grid=grid,
    seeds=seeds,
    test=test,
    grid_map=grid_map,
    grid_chunk=grid_chunk,
    grid_devices=grid_devices,
    **settings,
  )
  return simulator._run_whole(
    params, simulator._seeds, rounds, on_evaluation, checkpoints, progress
  )


def grid_points(
  grid: Mapping[str, Sequence[float]], seeds: Sequence[int] = (0,)
) -> list[dict[str, float]]:
  """All combinations of hyperparameters and seeds; the last name runs fastest.

  Args:
    grid: {name: values}.
    seeds: of the runs.

  Returns:
    S points: {name: value, ..., 'seed': seed}.
  """
  axes = {**grid, "seed": seeds}
  for name, values in axes.items():
    if len(values) == 0:
      raise ValueError(f"{name}: give at least one value")
  return [
    dict(zip(axes, values, strict=True))
    for values in itertools.product(*axes.values())
  ]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SimulationState:
  """Where a run is, between calls of `Simulator.run`.

  Of a grid all leaves have the leading axes [settings, seeds].

  Attributes:
    round: rounds done.
    seeds: of the runs; one for a single run.
    server: the algorithm's state.
    client_state: what every client keeps, leaves [M, ...]; None if nothing.
    config: the settings of the run, resolved.
  """

  round: int
  seeds: tuple[int, ...]
  server: State
  client_state: Any
  config: Config

  def __repr__(self) -> str:
    return f"SimulationState(round {self.round}, seeds {self.seeds})"


class Simulator:
  """Runs an algorithm as many rounds at a time as its caller likes.

  >>> simulator = Simulator(algorithm, data, cohort_size=10, evaluate=evaluate)
  >>> state = simulator.init(params, seed=0)
  >>> state, metrics = simulator.run(state, rounds=20)

  The program is compiled in the first call of `run`, and again only for a model
  of other shapes. Rounds are the same whether they are run in one call or in
  several, and the same as those of `simulate` and `sweep`.
  """

  def __init__(
    self,
    algorithm: Algorithm | Callable[..., Algorithm],
    data: ClientData | Population | Callable[[int], ClientData | Population],
    *,
    grid: Mapping[str, Sequence[float]] | None = None,
    seeds: Sequence[int] | None = None,
    test: Batch | None = None,
    grid_map: str = "auto",
    grid_chunk: int | None = None,
    grid_devices: int | None = None,
    **settings: Unpack[Settings],
  ):
    """Checks what can be checked without a model.

    Args:
      algorithm: see `simulate`; for a grid see `make` of `sweep`.
      data: see `sweep`.
      grid: see `sweep`; None for a single run.
      seeds: see `sweep`; only with `grid`.
      test: see `simulate`.
      grid_map: see `sweep`.
      grid_chunk: see `sweep`.
      grid_devices: see `sweep`.
      **settings: see `Settings`.

    Raises:
      ValueError: naming the argument that cannot be.
      TypeError: naming one of a wrong type.
    """
    checked.check_names(settings, DEFAULTS, "Simulator")
    self._has_points = grid is not None
    self._seeds = inputs.check_seeds_of(grid, seeds)
    self._make, self._grid = inputs.check_grid(algorithm, grid)
    self._data = inputs.data_of_seeds(data, self._seeds)
    self._test = inputs.check_test(test, settings.get("evaluate"))
    self._of_grid = {
      "grid_map": grid_map,
      "grid_chunk": grid_chunk,
      "grid_devices": grid_devices,
    }
    self._settings = dict(settings)
    self._own_config = self._config(None)
    self._executor = self._traced = None

  def init(self, params: Params, seed: int | None = None) -> SimulationState:
    """The state before the first round.

    Args:
      params: the initial model; for a grid also a function from a random key
        to one.
      seed: of a single run, 0 if None; a grid has its `seeds`.

    Returns:
      A state of its own: `params` stay usable.

    Raises:
      ValueError: if the seed or the algorithm does not fit.
      TypeError: if `params` are not floating-point arrays.
    """
    if self._has_points and seed is not None:
      raise ValueError(
        f"seed={seed}: the seeds of a grid are given to Simulator(seeds=...)"
      )
    seeds = self._seeds or (0 if seed is None else seed,)
    config, start = self._prepare(params, seeds)
    server, rows = start()
    return SimulationState(0, tuple(seeds), server, rows, config)

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
    checks.at_least("rounds", rounds, 0)
    config, seeds = self._checked(state)
    last = state.round + rounds
    checks.at_least("state.round + rounds", last, 0)
    executor = self._executor_of(config, seeds)
    arrays = executor.put(_copy((state.server, state.client_state)))
    with executor.open_feed() as feed:
      stops = [*range(state.round, last, feed.max_rounds)[1:], last]
      stops = stops if rounds else []
      feed.start(stops or [last], state.round)
      done = state.round
      if not stops:
        executor.compile(arrays, None, has_evaluation=True)
      for stop in stops:
        segment = feed.take()
        if not executor.is_compiled:
          executor.compile(arrays, segment, has_evaluation=True)
        arrays, _, _ = executor.advance(arrays, segment, done, stop)
        done = stop
    metrics, _, _ = executor.active.expand(executor.evaluate(arrays), {}, {})
    if not self._has_points:
      metrics = {name: values[0].item() for name, values in metrics.items()}
    server, rows = arrays
    new = dataclasses.replace(
      state, round=last, server=server, client_state=rows
    )
    return new, metrics

  def params(self, state: SimulationState) -> Params:
    """The evaluated model; of a grid with the leading axis S."""
    executor = self._executor_of(*self._checked(state))
    models = executor.params(state.server)
    if not self._has_points:
      return models
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), models)

  def _run_whole(
    self, params, seeds, rounds, on_evaluation, checkpoints, progress
  ) -> Result:
    """A run from start to end, with a history, see `simulate`."""
    checked.check_run(rounds, on_evaluation, checkpoints, progress)
    config, start = self._prepare(params, seeds)
    executor = self._executor_of(config, tuple(seeds))
    with contextlib.ExitStack() as stack:
      if progress:
        on_evaluation = stack.enter_context(
          with_progress(rounds, on_evaluation)
        )
      runner = Runner(
        executor,
        jax.eval_shape(start),
        start,
        rounds,
        on_evaluation,
        checkpoints,
      )
      return runner.run()

  def _checked(self, state):
    """The settings and the seeds of a state, if it is one of this simulator."""
    inputs.check_state(state, SimulationState, self._own_config, self._seeds)
    shapes = inputs.shapes_of((state.server, state.client_state))
    with checks.told_as("state: does not fit this simulator"):
      self._trace(state.config, shapes)
    return state.config, state.seeds

  def _trace(self, config, shapes):
    """Traces what a run needs, once for its shapes."""
    if self._traced == shapes:
      return
    about = inputs.described((shapes, self._data.examples, self._test))
    point = (config, self._make, self._grid, shapes)
    programs.check_once(
      (about, config, self._make),
      lambda: algorithms.trace(*point, self._data, self._test),
    )
    self._traced = shapes

  def _config(self, params):
    """The settings, resolved for a model."""
    num_settings = None
    if self._has_points:
      num_settings = len(grid_points(self._grid))
    return Config.create(
      self._data,
      self._settings,
      params,
      num_settings=num_settings,
      **self._of_grid,
    )

  def _prepare(self, params, seeds):
    """The settings, and a function that makes the state of round 0."""
    inputs.check_seeds(seeds)
    params = inputs.check_params(params, self._has_points)
    make, num_clients = self._make, np.shape(self._data.sizes)[-1]

    def of_point(hyperparameters, params):
      return algorithms.start(make(**hyperparameters), params, num_clients)

    def of_all():
      models = inputs.models_of_seeds(params, seeds, self._has_points)
      if not self._has_points:
        return of_point({}, models)
      if self._grid:
        of_grid = jax.vmap(jax.vmap(of_point, (None, 0)), (0, None))
        return jax.jit(of_grid)(self._hyperparameters(), models)
      # One setting, without a hyperparameter.
      of_seeds = jax.jit(jax.vmap(lambda model: of_point({}, model)))
      return jax.tree.map(lambda leaf: leaf[None], of_seeds(models))

    config = self._config(inputs.shapes_of_model(params))
    shapes = jax.eval_shape(of_all)
    config = client_state.resolve(
      config, self._make(**self._first_point()), shapes[1]
    )
    self._trace(config, shapes)

    def start():
      device = contextlib.nullcontext()
      if config.state_is_on_host:
        device = jax.default_device(processes.host())
      with device:
        return _copy(of_all())

    return config, start

  def _hyperparameters(self):
    """{name: [settings]}."""
    points = grid_points(self._grid) if self._has_points else []
    return {
      name: jnp.asarray([point[name] for point in points])
      for name in self._grid
    }

  def _first_point(self):
    return {name: values[0] for name, values in self._grid.items()}

  def _executor_of(self, config, seeds):
    """What runs with these settings; that of the last call if it fits."""
    before = self._executor
    if before is not None and before.is_for(config, seeds):
      return before
    num_settings = len(grid_points(self._grid)) if self._has_points else 1
    self._executor = Executor(
      config,
      self._make,
      self._hyperparameters(),
      self._data,
      self._test,
      seeds,
      ActivePoints(num_settings, len(seeds), config),
    )
    return self._executor


def _copy(tree):
  """Arrays of their own: those of a run are overwritten by its next rounds."""
  copy = lambda leaf: (
    leaf.copy() if isinstance(leaf, np.ndarray) else jnp.array(leaf)
  )
  return jax.tree.map(copy, tree)
