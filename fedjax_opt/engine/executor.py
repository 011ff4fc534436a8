"""Puts a run's arrays on the devices, compiles its programs and calls them."""

import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_opt import trees
from fedjax_opt.base import Algorithm, Batch, Params, State
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import feed, points, processes, programs
from fedjax_opt.engine.active_points import ActivePoints, needed_bytes
from fedjax_opt.engine.client_state import ClientStore
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.effort import run_once


class Executor:
  """The programs of a run, and their inputs besides its state."""

  def __init__(
    self,
    config: Config,
    make: Callable[..., Algorithm],
    hyperparameters: dict[str, np.ndarray],
    data: ClientData | Population,
    test: Batch | None,
    seeds: Sequence[int],
    active: ActivePoints,
  ):
    """Puts data on the devices; compiles nothing yet.

    Args:
      config: static settings.
      make: `(**hyperparameters) -> Algorithm`.
      hyperparameters: {name: [settings]}, or {name: scalar} of one point.
      data: the clients; in memory `indices` and `sizes` may have an axis
        [seeds].
      test: pooled test examples, or None.
      seeds: of the runs.
      active: which settings run.
    """
    self.config, self.active = config, active
    self._given_config = config
    self._clients, self._seeds = data, seeds
    self._make, self._hyperparameters = make, hyperparameters
    self._store = ClientStore(config)
    put_shared = config.layout.put_shared
    numbers = np.asarray(seeds, np.uint32)
    numbers = numbers if config.has_points else numbers[0]
    self._test = put_shared(test)
    if isinstance(data, Population):
      sizes = {"indices": None, "sizes": data.sizes}
      self._data = put_shared((({}, sizes), {"seed": numbers, "data": {}}))
      sample = feed.sample_of(data)
      self._evaluated = put_shared(_grouped(sample, numbers))
    else:
      self._data = self._evaluated = put_shared(_grouped(data, numbers))
    self._rounds_program = self._evaluation_program = None
    self.place_points()

  def place_points(self) -> None:
    """Puts the hyperparameters of the present settings on the devices."""
    of_present, is_active = self._hyperparameters, np.bool_(True)
    if self.config.has_points:
      of_present = trees.take(of_present, self.active.present)
      is_active = self.active.is_active
    put = self.config.layout.put_per_point
    self._hyper, self._is_active = put((of_present, is_active))

  def open_feed(self) -> feed.Feed:
    """The segments of the run, as a context manager."""
    return feed.Feed(self.config, self._clients, self._seeds)

  def is_for(self, config: Config, seeds: Sequence[int]) -> bool:
    """Whether it is the executor of these settings and seeds."""
    return (self._given_config, tuple(self._seeds)) == (config, tuple(seeds))

  @property
  def is_compiled(self) -> bool:
    """Whether the program of the rounds is compiled."""
    return self._rounds_program is not None

  @property
  def needed_bytes(self) -> int | None:
    """The memory of a device that the rounds need; None if that is unknown."""
    if self._rounds_program is None:
      return None
    return needed_bytes(self._rounds_program)

  def put(self, state: tuple[State, Any]) -> tuple[State, Any]:
    """Puts a state on the devices; what clients keep perhaps on the host."""
    server, rows = state
    put_server = self.config.layout.put_per_point(server)
    return put_server, self._store.put(rows)

  def compile(
    self,
    state: tuple[State, Any],
    segment: tuple[dict[str, Any], Any] | None,
    has_evaluation: bool,
  ) -> None:
    """Compiles the programs, with chunks of settings that fit into memory.

    Args:
      state: as `put` gave it.
      segment: of the first rounds, as `Feed.take` gave it; None if there are
        no rounds.
      has_evaluation: whether anything is evaluated.
    """
    while True:
      waiting = []
      if segment is not None:
        inputs = self._rounds_inputs(state, segment, 0, 0)
        build = lambda: self._on_devices(points.rounds_program, 3)
        waiting.append(self._traced("rounds", build, inputs, is_donated=True))
      if has_evaluation and self.config.evaluate is not None:
        inputs = self._evaluation_inputs(state)
        build = lambda: self._on_devices(points.evaluation_program, 1)
        waiting.append(self._traced("evaluation", build, inputs))
      compiled = [result() for result in waiting]
      chunk = self.active.smaller_chunk(compiled)
      if chunk is None:
        break
      self.config = dataclasses.replace(self.config, grid_chunk=chunk)
    if segment is not None:
      self._rounds_program = compiled[0]
    if len(compiled) > (segment is not None):
      self._evaluation_program = compiled[-1]

  def advance(
    self,
    state: tuple[State, Any],
    segment: tuple[dict[str, Any], Any],
    first: int,
    stop: int,
  ) -> tuple[tuple[State, Any], dict[str, Any], dict[str, Any]]:
    """Runs rounds `first` to `stop - 1`.

    Args:
      state: as `put` gave it; overwritten.
      segment: of these rounds, as `Feed.take` gave it.
      first: the first round.
      stop: rounds done then.

    Returns:
      The state; counters and traces, on the host, leaves [present, seeds, ...].
    """
    inputs = self._rounds_inputs(state, segment, first, stop - first)
    (server, rows), *recorded = programs.call(self._rounds_program, inputs)
    jax.block_until_ready(recorded)
    _, cohorts = segment
    rows = self._store.scatter(state[1], rows, cohorts)
    counts, traces = processes.fetch(recorded)
    return (server, rows), counts, traces

  def evaluate(self, state: tuple[State, Any]) -> dict[str, Any]:
    """The metrics of all points that are present, on the host."""
    if self._evaluation_program is None:
      return {}
    inputs = self._evaluation_inputs(state)
    return processes.fetch(programs.call(self._evaluation_program, inputs))

  def params(self, server: State) -> Params:
    """The evaluated models of all points, given the states of all settings."""
    program = run_once(points.params_program(self.config, self._make))
    _, per_seed = self._data
    return program(server, self._hyperparameters, per_seed)

  def _on_devices(self, program, outputs):
    of_points = program(self.config, self._make)
    return self.config.layout.over_devices(of_points, outputs)

  def _traced(self, name, build, inputs, is_donated=False):
    """Traces a program, and compiles it in a thread.

    Returns:
      A function that waits for the compiled program.
    """
    about = (name, self.config, self._make)
    compiled = programs.compile_program(
      build, about, inputs, is_donated=is_donated
    )
    # So that the next program is traced while this one is compiled.
    pool = concurrent.futures.ThreadPoolExecutor(1)
    future = pool.submit(compiled)
    pool.shutdown(wait=False)
    return future.result

  def _rounds_inputs(self, state, segment, first, count):
    server, rows = state
    fed, cohorts = segment
    gathered = self._store.gather(rows, cohorts)
    data, per_seed = self._data
    per_point = ((server, gathered), self._hyper, self._is_active)
    return per_point, fed, (per_seed, data, np.int32(first), np.int32(count))

  def _evaluation_inputs(self, state):
    data, per_seed = self._evaluated
    per_point = (state[0], self._hyper)
    return per_point, {}, (per_seed, data, self._test)


def _grouped(data, seeds):
  """The clients in memory: what all seeds share, and what each seed has."""
  lists = {"indices": data.indices, "sizes": data.sizes}
  is_of_seed = np.ndim(data.sizes) == 2
  of_all, of_seed = ({}, lists) if is_of_seed else (lists, {})
  return (data.examples, of_all), {"seed": seeds, "data": of_seed}
