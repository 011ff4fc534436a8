"""Puts a run's arrays on the devices, compiles its programs and calls them."""

import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_opt import target, trees
from fedjax_opt.base import Algorithm, Batch, Params, State
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import feed, memory, points, processes, programs
from fedjax_opt.engine.active_points import ActivePoints
from fedjax_opt.engine.client_state import ClientStore
from fedjax_opt.engine.config import Config


class Executor:
  """The programs of a run, and their inputs besides its state."""

  def __init__(
    self,
    config: Config,
    make: Callable[..., Algorithm],
    hyperparameters: dict[str, np.ndarray],
    data: ClientData | Population,
    test: Batch | None,
    validation: Batch | None,
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
      validation: pooled validation examples, or None.
      seeds: of the runs.
      active: which settings run.
    """
    self.config, self.active = config, active
    self._given_config, self._devices = config, _present_devices()
    self._clients, self._seeds = data, seeds
    self._make, self._hyperparameters = make, hyperparameters
    self._store = ClientStore(config)
    put_shared = config.layout.put_shared
    numbers = np.asarray(seeds, np.uint32)
    numbers = numbers if config.has_points else numbers[0]
    self._test, self._validation = put_shared((test, validation))
    if isinstance(data, Population):
      sizes = {"indices": None, "sizes": data.sizes}
      self._data = put_shared((({}, sizes), {"seed": numbers, "data": {}}))
      sample = feed.sample_of(data)
      self._evaluated = put_shared(_grouped(sample, numbers))
    else:
      self._data = self._evaluated = put_shared(_grouped(data, numbers))
    self._asked = self._compiled = None
    self._traced, self._programs = {}, {}
    self._read_params = None  # Made when first asked for.
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
    """Whether it is that of these settings, seeds and the present devices."""
    own = self._given_config, tuple(self._seeds), self._devices
    return own == (config, tuple(seeds), _present_devices())

  @property
  def needed_bytes(self) -> int | None:
    """The memory of a device that the rounds need; None if that is unknown."""
    program = self._programs.get("rounds")
    return None if program is None else memory.needed_bytes(program)

  def put(self, state: tuple[State, Any]) -> tuple[State, Any]:
    """Puts a state on the devices; what clients keep perhaps on the host."""
    server, rows = state
    put_server = self.config.layout.put_per_point(server)
    return put_server, self._store.put(rows)

  def trace(
    self,
    shapes: tuple[State, Any],
    segment: dict[str, Any] | None,
    has_evaluation: bool,
  ) -> None:
    """Traces what the run needs; `compile` compiles it.

    What callers wrote fails here, before anything is compiled.

    Args:
      shapes: of the state, for the settings that are present.
      segment: the shapes that `Feed.like` gives; None if there are no rounds.
      has_evaluation: whether anything is evaluated.
    """
    asked = (shapes, segment, has_evaluation)
    if self._asked == asked:
      return
    like, traced = self.config.layout.like_per_point(shapes[0]), {}
    if segment is not None:
      rows = self._store.like(shapes[1])
      traced["rounds"] = programs.trace(
        "rounds",
        self._on_devices(points.rounds_program, 3),
        self._rounds_inputs((like, rows), self._like_secret(), segment, 0, 0),
        is_donated=True,
      )
    if has_evaluation and self.config.evaluate is not None:
      traced["evaluation"] = programs.trace(
        "evaluation",
        self._on_devices(points.evaluation_program, 1),
        self._evaluation_inputs(like),
        is_donated=False,
      )
    else:
      program = points.params_program(self.config, self._make)
      _, per_seed = self._data
      jax.eval_shape(program, like, self._hyper, per_seed)
    self._asked, self._traced = asked, traced

  def trace_all(self, shapes: tuple[State, Any]) -> None:
    """Traces rounds and evaluation, see `trace`."""
    with self.open_feed() as opened:
      self.trace(shapes, opened.like(), has_evaluation=True)

  def metric_names(self, shapes: tuple[State, Any]) -> list[str]:
    """The names of what is measured, after all is traced, see `trace_all`."""
    self.trace_all(shapes)
    program = self._on_devices(points.evaluation_program, 1)
    like = self.config.layout.like_per_point(shapes[0])
    return list(jax.eval_shape(program, *self._evaluation_inputs(like)))

  def compile(self) -> dict[str, jax.stages.Compiled]:
    """Compiles what was traced, in chunks of settings that fit into memory.

    Returns:
      The programs by name.
    """
    while self._compiled is not self._asked:
      with concurrent.futures.ThreadPoolExecutor(2) as pool:
        lowered = {name: lower() for name, lower in self._traced.items()}
        waiting = {n: pool.submit(p) for n, p in lowered.items()}
        with memory.explained(self.config, []):
          self._programs = {n: made.result() for n, made in waiting.items()}
      self._compiled = self._asked
      compiled = list(self._programs.values())
      chunk = self.active.smaller_chunk(compiled)
      if chunk is None:
        memory.advise(self.config, compiled)
        break
      self.config = dataclasses.replace(self.config, grid_chunk=chunk)
      self._read_params = None
      asked, self._asked = self._asked, None
      self.trace(*asked)
    return dict(self._programs)

  def advance(
    self,
    state: tuple[State, Any],
    taken: tuple[dict[str, Any], Any],
    first: int,
    stop: int,
  ) -> tuple[tuple[State, Any], dict[str, Any], dict[str, Any]]:
    """Runs rounds `first` to `stop - 1`.

    Args:
      state: as `put` gave it; overwritten.
      taken: the segment of these rounds and its cohorts, as `Feed.take` gave
        them.
      first: the first round.
      stop: rounds done then.

    Returns:
      The state; counters and traces, on the host, leaves [present, seeds, ...].
    """
    (server, rows), (segment, cohorts) = state, taken
    gathered = self._store.gather(rows, cohorts)
    begin, count = (server, gathered), stop - first
    inputs = self._rounds_inputs(
      begin, self._new_secret(), segment, first, count
    )
    program = self._programs["rounds"]
    with (
      memory.explained(self.config, [program]),
      jax.profiler.TraceAnnotation("compute a segment"),
    ):
      (server, new_rows), *recorded = programs.call(program, inputs)
      jax.block_until_ready(recorded)
    rows = self._store.scatter(rows, new_rows, cohorts)
    counts, traces = processes.fetch(recorded)
    return (server, rows), counts, traces

  def evaluate(self, state: tuple[State, Any]) -> dict[str, Any]:
    """The metrics of all points that are present, on the host."""
    if "evaluation" not in self._programs:
      return {}
    inputs, program = self._evaluation_inputs(state[0]), self._programs
    with memory.explained(self.config, [program["evaluation"]]):
      return processes.fetch(programs.call(program["evaluation"], inputs))

  def params(self, server: State) -> Params:
    """The evaluated models of all points, given the states of all settings."""
    if self._read_params is None:
      of_points = points.params_program(self.config, self._make)
      self._read_params = programs.run_once(of_points)
    _, per_seed = self._data
    return self._read_params(server, self._hyperparameters, per_seed)

  def _on_devices(self, program, outputs):
    of_points = program(self.config, self._make)
    return self.config.layout.over_devices(of_points, outputs)

  def _secret_shape(self):
    """Of the words of a random key for each point; None if none is needed."""
    if not self.config.has_secret_noise:
      return None
    words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))).shape
    if not self.config.has_points:
      return words
    return len(self.active.present), len(self._seeds), *words

  def _like_secret(self):
    shape = self._secret_shape()
    if shape is None:
      return None
    shapes = jax.ShapeDtypeStruct(shape, np.uint32)
    return self.config.layout.like_per_point(shapes)

  def _new_secret(self):
    """Random keys for one call of the program; nobody keeps them."""
    shape = self._secret_shape()
    if shape is None:
      return None
    return self.config.layout.put_per_point(processes.entropy(shape))

  def _rounds_inputs(self, state, secret, segment, first, count):
    data, per_seed = self._data
    per_point = (state, secret, self._hyper, self._is_active)
    shared = (per_seed, data, np.int32(first), np.int32(count))
    return per_point, segment, shared

  def _evaluation_inputs(self, server):
    data, per_seed = self._evaluated
    shared = (per_seed, data, self._test, self._validation)
    return (server, self._hyper), {}, shared


def _present_devices():
  """Those that programs are made for, and whether they are elsewhere."""
  return target.is_elsewhere(), target.devices()


def _grouped(data, seeds):
  """The clients in memory: what all seeds share, and what each seed has."""
  lists = {"indices": data.indices, "sizes": data.sizes}
  is_of_seed = np.ndim(data.sizes) == 2
  of_all, of_seed = ({}, lists) if is_of_seed else (lists, {})
  return (data.examples, of_all), {"seed": seeds, "data": of_seed}
