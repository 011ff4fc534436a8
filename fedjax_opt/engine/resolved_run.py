"""From what a `Simulator` was given, and a model, to a run: all resolved."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_opt import contract
from fedjax_opt.arrays import target
from fedjax_opt.base import Algorithm, Params, run_key
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import client_state, client_work, inputs
from fedjax_opt.engine.clock import Clock, check_is_schedule, timetables_of
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.initial_state import InitialState
from fedjax_opt.engine.run_options import PLAIN_EXECUTION
from fedjax_opt.engine.run_state import GridPoints, RunState
from fedjax_opt.engine.traced import versions
from fedjax_opt.schedules.timetable import Timetable
from fedjax_opt.transforms.options import with_options


class ResolvedRun(NamedTuple):
  """A run with its model: all is checked, and the options are resolved.

  Attributes:
    config: its options.
    initial_state: how its state before round 0 is made.
    params: the initial model, checked; None if it is drawn.
  """

  config: Config
  initial_state: InitialState
  params: Params | None

  @property
  def points(self) -> GridPoints:
    """Its points."""
    return self.initial_state.points

  def make_state(self) -> RunState:
    """Its state before round 0."""
    on_host = self.config.starts_on_host
    return self.initial_state.make_state(self.params, on_host)


class RunResolver:
  """Resolves the runs of a simulator.

  Attributes:
    config_without_model: the options, resolved as far as they need no model;
      without the clock if each seed or model has its own.
  """

  def __init__(
    self,
    make: Callable[..., Algorithm],
    grid: Mapping[str, Sequence[float]],
    seeds: Sequence[int] | None,
    data: ClientData | Population,
    options: Mapping[str, Any],
  ):
    """Checks the options as far as that needs no model.

    Args:
      make: `(**hyperparameters) -> Algorithm`.
      grid: {name: values}; {} for a single run.
      seeds: of a grid; None for a single run.
      data: the clients of all seeds.
      options: those given, see `GridOptions`.

    Raises:
      ValueError: naming the invalid option.
      TypeError: naming the option of a wrong type.
    """
    self._grid, self._seeds = grid, seeds
    self._data, self._options = data, options
    self._first_point = {name: values[0] for name, values in grid.items()}
    self._make = with_options(make, options, self._first_point)
    schedule, clock = options.get("schedule"), None
    if schedule is not None:
      check_is_schedule(schedule)
      if isinstance(schedule, Timetable):
        clock = self._clock_of([schedule])
    self.config_without_model = self.config_for(None, clock)
    # The last run that was resolved, without its model, and what it was for.
    self._resolved: tuple[Config, InitialState] | None = None
    self._resolved_for: tuple[Any, ...] = ()

  def config_for(
    self, model: Params | None, clock: Clock | None, **changes: Any
  ) -> Config:
    """The options, resolved.

    Args:
      model: its shapes; None if it is not known.
      clock: of the run's schedule, or None.
      **changes: options in place of those given.
    """
    points = self.points_for(self._seeds or (0,), None)
    return Config.create(
      self._data,
      {**self._options, **changes},
      model,
      num_settings=points.num_settings if points.has_axes else None,
      clock=clock,
    )

  def points_for(self, seeds: Sequence[int], clock: Clock | None) -> GridPoints:
    """The points of a run with these seeds, on a schedule."""
    make, settings = self._make, list(itertools.product(*self._grid.values()))
    if clock is not None and clock.is_stale:
      make = lambda **point: versions.with_versions(
        self._make(**point), clock.num_slots
      )
    is_one = len(settings) * len(seeds) == 1
    columns = settings[0] if is_one else zip(*settings, strict=True)
    columns = dict(zip(self._grid, map(_as_array, columns), strict=True))
    is_grid = self._seeds is not None
    return GridPoints(make, columns, len(settings), tuple(seeds), is_grid)

  def resolve(self, params: Any, seeds: Sequence[int]) -> ResolvedRun:
    """The run with a model and these seeds; resolved anew if they changed.

    Of a model of arrays only the shapes count.

    Args:
      params: the initial model, or for a grid a function from a key to it.
      seeds: the runs' seeds.

    Raises:
      ValueError: if the seeds, the model or the algorithm do not fit.
      TypeError: if `params` are not floating-point arrays.
    """
    for seed in seeds:
      inputs.SEED.check("seed", seed)
    params = inputs.checked_params(params, self._seeds is not None)
    draw = params if inputs.is_function_of_key(params) else None
    model = None if draw else jax.eval_shape(lambda: params)
    resolved_for = (
      draw, jax.tree.flatten(model), tuple(seeds), target.present(),
      target.device_bytes(),
    )  # fmt: skip
    if self._resolved_for != resolved_for:
      self._resolved = self._resolve(draw, model, tuple(seeds))
      self._resolved_for = resolved_for
    return ResolvedRun(*self._resolved, None if draw else params)

  def _resolve(self, draw, model, seeds):
    """The options, and how the initial state is made; see `resolve`."""
    if draw is not None:
      model = jax.eval_shape(lambda seed: draw(run_key(seed)), np.uint32(0))
    clock = self._clock_with(model, seeds)
    config = self.config_for(model, clock)
    points = self.points_for(seeds, clock)
    algorithm = points.make(**self._first_point)
    contract.check_statistics(algorithm, model, config.plan.is_full)
    if config.clips_updates and not algorithm.may_be_clipped:
      raise ValueError(
        "max_update_action='clip': clients of this algorithm keep what they "
        "sent, and the server would get less of it; must be 'reject', or "
        "another algorithm, such as fed_avg"
      )
    initial_state = InitialState(points, draw, model, config.num_clients)
    config = client_state.resolve_client_memory(
      config, algorithm, initial_state.shapes.client_state
    )
    if clock is not None and clock.is_stale:
      versions.check_versions_fit(
        initial_state.shapes.server.versions,
        config.layout.state_devices,
        target.device_bytes(),
      )
    config = dataclasses.replace(
      config,
      has_secret_noise=algorithm.has_secret_noise,
      costs_differ=algorithm.costs_differ,
    )
    return config, initial_state

  def _clock_with(self, model, seeds):
    """The clock of the runs of these seeds; None without a schedule.

    Args:
      model: its shapes.
      seeds: the runs' seeds.
    """
    schedule = self._options.get("schedule")
    if schedule is None:
      return None

    def works():
      options = {**self._options, **PLAIN_EXECUTION}
      del options["schedule"]
      config = Config.create(self._data, options, model)
      algorithm = self._make(**self._first_point)
      return client_work.work_of_seeds(
        config, algorithm, model, self._data, seeds
      )

    return self._clock_of(timetables_of(schedule, seeds, works))

  def _clock_of(self, tables):
    """The clock of some timetables, checked for the algorithm."""
    clock = Clock(tuple(tables), np.shape(self._data.sizes)[-1])
    if clock.is_stale:  # Algorithms that cannot be on it are refused.
      versions.with_versions(self._make(**self._first_point), 1)
    return clock


def _as_array(values):
  """A NumPy array in the type that JAX gives these numbers."""
  array = np.asarray(values)
  return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
