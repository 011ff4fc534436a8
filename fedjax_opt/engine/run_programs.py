"""Puts a run's arrays on the devices, compiles its programs and calls them."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from fedjax_opt import multi_process
from fedjax_opt.arrays import frozen, target, trees
from fedjax_opt.base import Batch, Params, State, run_key
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import chunks, client_state, compilation, feed
from fedjax_opt.engine.active_settings import ActiveSettings
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.run_state import GridPoints, RunState
from fedjax_opt.engine.traced import grid_programs
from fedjax_opt.engine.traced.grid_programs import (
  PointInputs,
  SeedInputs,
  SharedInputs,
)
from fedjax_opt.engine.traced.mapping import Segment


class RunPrograms:
  """The programs of a run, and their inputs besides its state.

  Attributes:
    config: static options; while programs are compiled, fewer settings or
      clients may be vectorized than at first, see `compile`.
    active_settings: which settings run.
  """

  def __init__(
    self,
    config: Config,
    points: GridPoints,
    data: ClientData | Population,
    held_out: Mapping[str, Batch | None],
  ):
    """Puts the data and the hyperparameters on the devices.

    Args:
      config: static options.
      points: the points of the run.
      data: the clients; in memory `indices` and `sizes` may have an axis
        [seeds].
      held_out: "test" and "validation" -> pooled examples, or None.
    """
    self.config, self._points, self._clients = config, points, data
    self._chooses_settings = config.grid_chunk is None
    self.active_settings = ActiveSettings(config, points)
    put_shared, seeds = config.layout.put_shared, points.seed_numbers
    self._held_out = put_shared(held_out)
    # The inputs of rounds and evaluation that do not change.
    if isinstance(data, Population):
      lists = {"indices": None, "sizes": data.sizes}
      self._trained = put_shared(
        (SeedInputs({}, seed=seeds), SharedInputs({}, lists))
      )
      self._evaluated = put_shared(_inputs_of(data.sample(), seeds))
    else:
      self._trained = self._evaluated = put_shared(_inputs_of(data, seeds))
      if (pool := _of_common_length(data.examples)) is not None:
        per_seed, shared = self._evaluated
        self._trained = per_seed, shared._replace(examples=put_shared(pool))
    self._shapes, self._traced, self._programs = None, {}, {}
    self._needed: dict[str, int | None] = {}  # Bytes of each program.
    self.place_points()

  def place_points(self) -> None:
    """Puts the hyperparameters of the present settings on the devices."""
    hyperparameters = self._points.hyperparameters
    is_active = np.bool_(True)
    if self._points.has_axes:
      hyperparameters = trees.take(
        hyperparameters, self.active_settings.present
      )
      is_active = self.active_settings.is_active
    self._point_inputs = self.config.layout.put_per_point(
      PointInputs(None, hyperparameters, is_active)
    )

  def open_feed(self) -> feed.Feed:
    """The segments of the run, as a context manager."""
    return feed.Feed(self.config, self._clients, self._points.seeds)

  @property
  def needed_bytes(self) -> int | None:
    """The memory of a device that the rounds need; None if that is unknown."""
    return self._needed.get("rounds")

  def put(self, state: RunState) -> RunState:
    """Puts a state on the devices; what clients keep perhaps on the host."""
    layout = self.config.layout
    return RunState(
      layout.put_state(state.server),
      client_state.put(self.config, state.client_state),
      layout.put_frozen(state.frozen),
    )

  def trace_programs(
    self, shapes: RunState, names: Iterable[str] = ("rounds", "evaluation")
  ) -> dict[str, jax.stages.Traced]:
    """Traces rounds and evaluation; `compile` compiles them.

    What callers wrote fails here, before anything is compiled.

    Args:
      shapes: shapes of the state, for the settings that are present.
      names: which programs are needed.

    Returns:
      The programs by name; no 'evaluation' if nothing is measured.
    """
    if self._shapes != shapes:
      self._inputs = self._arguments(shapes)
      self._shapes, self._traced = shapes, {}
      self._programs, self._needed = {}, {}
    for name in names:
      if name not in self._traced:
        arguments = self._inputs[name]
        program = self._jitted(name, arguments[0]).trace(*arguments)
        # None if it has no output, as nothing is measured.
        self._traced[name] = program if program.out_info else None
    return {n: p for n in names if (p := self._traced[n]) is not None}

  def _arguments(self, shapes):
    """The inputs of the programs, by name, for a state of such shapes."""
    layout = self.config.layout
    with self.open_feed() as new_feed:
      state = RunState(
        layout.put_state(shapes.server),
        client_state.shapes_of_gathered(self.config, shapes.client_state),
        layout.put_frozen(shapes.frozen),
      )
      segment = new_feed.shapes_of_segments()
    return {
      "rounds": self._rounds_inputs(state, segment, 0, 0, _zero_words),
      "evaluation": self._evaluation_inputs(state),
    }

  def _jitted(self, name, state):
    """A program by its name, as logs and profiles call it.

    Args:
      name: 'rounds' or 'evaluation'.
      state: its first input, or the shapes of it.
    """
    # The state of rounds is overwritten.
    make, outputs, donated = {
      "rounds": (grid_programs.rounds_program, 3, 0),
      "evaluation": (grid_programs.evaluation_program, 1, ()),
    }[name]
    layout = self.config.layout
    program = make(self.config, self._points.make)
    program = layout.over_devices(program, outputs)
    program.__name__ = name
    options = {"donate_argnums": donated, "keep_unused": True}
    if name == "rounds" and layout.model_devices > 1:
      # The next call takes the state as this one has.
      state_shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
      options["out_shardings"] = state_shardings, None, None
    return jax.jit(program, **options)

  def compile(
    self, names: Iterable[str] = ("rounds", "evaluation")
  ) -> dict[str, jax.stages.Compiled]:
    """Compiles what was traced, in chunks that fit into memory.

    Fewer settings are computed at a time until they fit, then fewer clients;
    `config` says how many.

    Args:
      names: which programs are needed.

    Returns:
      The programs by name.
    """
    traced_names = {n for n, p in self._traced.items() if p is not None}
    wanted_names = traced_names & set(names)
    while wanted_names - self._programs.keys():
      if self._compile_and_shrink(wanted_names):
        shapes, self._shapes = self._shapes, None
        self.trace_programs(shapes)
    return dict(self._programs)

  def _compile_and_shrink(self, names: set[str]) -> bool:
    """Compiles these programs; if they do not fit, computes less at a time.

    Less is fewer points of the grid, or fewer clients.

    Returns:
      Whether the programs are to be compiled anew.
    """
    try:
      self._programs |= self._compiled(names - self._programs.keys())
    except MemoryError:  # As a TPU's compiler finds.
      if not self._limit_clients(self.config.client_chunk // 2):
        raise
      return True
    # Read once: the answer takes as long as some rounds.
    self._needed = {n: bytes_of(p) for n, p in self._programs.items()}
    needed = list(self._needed.values())
    if self.shrink_grid_chunk(needed) or self._shrink_client_chunk():
      return True
    self._warn_of_memory(needed)
    return False

  def _compiled(self, names: set[str]) -> dict[str, jax.stages.Compiled]:
    """The programs of these names, compiled side by side."""
    options = compilation.large_options()
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
      futures = {
        name: threads.submit(
          compilation.compiled, traced.lower(), self._inputs[name], options
        )
        for name, traced in self._traced.items()
        if name in names
      }
      with self._explaining_memory():
        return {name: future.result() for name, future in futures.items()}

  def shrink_grid_chunk(self, needed: list[int | None]) -> bool:
    """Has fewer settings at a time, if the programs need too much memory.

    Args:
      needed: bytes of each program, None where that is unknown; none where a
        resumed run has nothing left to compute.

    Returns:
      Whether the programs are to be compiled anew; not if they fit, or if the
      caller has chosen the chunks.
    """
    config = self.config
    if not config.vmaps_points or not self._chooses_settings:
      return False
    per_device = len(self.active_settings.present) // config.layout.grid_devices
    chunk = min(config.grid_chunk or per_device, per_device)
    largest = 0 if None in needed else max(needed, default=0)
    at_most = chunks.largest_that_fits(chunk, largest, target.device_bytes())
    if at_most == chunk:
      return False
    # Even chunks if possible: a smaller last chunk would be a second program.
    divisors = [n for n in range(1, at_most + 1) if per_device % n == 0]
    is_large = 2 * divisors[-1] >= at_most
    chunk = divisors[-1] if is_large else at_most
    self.config = dataclasses.replace(config, grid_chunk=chunk)
    return True

  def _shrink_client_chunk(self) -> bool:
    """Has fewer clients at a time, where 'auto' chose too many for the memory.

    Returns:
      Whether the programs are to be compiled anew.
    """
    needed, memory = self.needed_bytes, target.device_bytes()
    if memory is None or needed is None:
      return False
    analysis = self._programs["rounds"].memory_analysis()
    client_bytes = analysis.temp_size_in_bytes
    spare = memory - (needed - client_bytes)
    return self._limit_clients(
      chunks.largest_that_fits(self.config.client_chunk, client_bytes, spare)
    )

  def _limit_clients(self, most: int) -> bool:
    """Limits the clients computed at a time; whether that changed it."""
    config = self.config
    if not config.chooses_client_chunk or not 1 <= most < config.client_chunk:
      return False
    num_local = -(-config.cohort_size // config.layout.client_devices)
    size = chunks.even_chunk(num_local, most)
    self.config = dataclasses.replace(config, client_chunk=size)
    return True

  def advance(
    self,
    state: RunState,
    segment_and_cohorts: tuple[Segment, Any],
    first_round: int,
    stop: int,
  ) -> tuple[RunState, dict[str, Any], dict[str, Any]]:
    """Runs rounds `first_round` to `stop - 1`.

    Args:
      state: what `put` returned; it is overwritten, except the frozen leaves.
      segment_and_cohorts: what `Feed.next_segment` returned for these rounds.
      first_round: the first round.
      stop: rounds done then.

    Returns:
      The state; counters and traces, on the host, leaves [present, seeds, ...].
    """
    segment, cohorts = segment_and_cohorts
    old_states = state.client_state
    cohort_states = client_state.gather(self.config, old_states, cohorts)
    inputs = self._rounds_inputs(
      state._replace(client_state=cohort_states),
      segment,
      first_round,
      stop - first_round,
      multi_process.random_words,
    )
    program = self._programs["rounds"]
    with (
      self._explaining_memory("rounds"),
      jax.profiler.TraceAnnotation("compute a segment"),
    ):
      (server, new_rows), *records = program(*inputs)
      jax.block_until_ready(records)
    states = client_state.scatter(self.config, old_states, new_rows, cohorts)
    counts, traces = multi_process.fetch(records)
    return RunState(server, states, state.frozen), counts, traces

  def evaluate(self, state: RunState) -> dict[str, Any]:
    """The metrics of all points that are present, on the host."""
    if "evaluation" not in self._programs:
      return {}
    inputs = self._evaluation_inputs(state)
    with self._explaining_memory("evaluation"):
      return multi_process.fetch(self._programs["evaluation"](*inputs))

  def params(self, state: RunState) -> Params:
    """The evaluated models, leaves [S, ...].

    Args:
      state: the state of all settings.
    """
    trained = self._read_params(
      state.server, self._points.hyperparameters, *state.frozen
    )
    frozen_params = frozen.model_leaves(self.server_states(state))
    return trees.merge(frozen_params, self.active_settings.flat(trained))

  def server_states(self, state: RunState) -> State:
    """The server's states, leaves [S, ...], as an algorithm has them.

    Args:
      state: the state of all settings.
    """
    frozen_leaves = self.active_settings.flat_frozen(state.frozen)
    return frozen.join(self.active_settings.flat(state.server), frozen_leaves)

  @functools.cached_property
  def _read_params(self):
    return compilation.quickly_compiled(
      grid_programs.params_program(self.config, self._points.make)
    )

  def _rounds_inputs(
    self, state, segment, first_round, num_rounds, random_words
  ):
    words = self._secret_words(random_words)
    numbers = {
      "first_round": np.int32(first_round),
      "num_rounds": np.int32(num_rounds),
    }
    return (
      (state.server, state.client_state),
      self._point_inputs._replace(secret_words=words),
      segment,
      _with_frozen(self._trained, state.frozen, numbers),
    )

  def _evaluation_inputs(self, state):
    return (
      state.server,
      self._point_inputs._replace(is_active=None),
      Segment(),
      _with_frozen(self._evaluated, state.frozen, self._held_out),
    )

  def _secret_words(self, random_words):
    """Words of random keys for one call of the program; nobody keeps them."""
    if not self.config.has_secret_noise:
      return None
    words = jax.eval_shape(lambda: jax.random.key_data(run_key(0))).shape
    if self._points.has_axes:
      words = len(self.active_settings.present), len(self._points.seeds), *words
    return self.config.layout.put_per_point(random_words(words))

  @contextlib.contextmanager
  def _explaining_memory(self, name: str | None = None):
    """Says in one line that memory ran out inside, and what to change.

    Args:
      name: which program runs; None while programs are compiled.

    Raises:
      MemoryError: if a device had too little memory.
    """
    try:
      yield
    except jax.errors.JaxRuntimeError as error:
      if "RESOURCE_EXHAUSTED" not in str(error):
        raise
      needed = name and self._needed[name]
      text = _memory_advice(needed, target.device_bytes())
      raise MemoryError(text) from error

  def _warn_of_memory(self, needed):
    """Warns if a program will not fit, before it is run."""
    memory = target.device_bytes()
    if None in needed or memory is None or not needed:
      return
    # On a CPU a run takes half of the memory by choice, and can take all.
    limit = 2 * memory if target.platform() == "cpu" else memory
    if max(needed) > limit:
      warnings.warn(_memory_advice(max(needed), limit), stacklevel=2)


def bytes_of(program: jax.stages.Compiled) -> int | None:
  """The memory that a program needs on each of its devices; None if unknown."""
  analysis = program.memory_analysis()
  if analysis is None:
    return None
  return (
    analysis.argument_size_in_bytes
    + analysis.output_size_in_bytes
    - analysis.alias_size_in_bytes
    + analysis.temp_size_in_bytes
  )


# Placeholders for the words of random keys while a program is traced.
_zero_words = functools.partial(np.zeros, dtype=np.uint32)


def _inputs_of(data, seeds):
  """What each seed has of the clients in memory, and what all seeds share."""
  lists = {"indices": data.indices, "sizes": data.sizes}
  is_of_seed = np.ndim(data.sizes) == 2
  by_seed, shared = (lists, {}) if is_of_seed else ({}, lists)
  return SeedInputs(by_seed, seed=seeds), SharedInputs(data.examples, shared)


def _with_frozen(inputs, frozen_leaves, shared_fields):
  """The inputs with the frozen leaves, and further fields of `SharedInputs`."""
  (per_seed, shared), (by_seed, others) = inputs, frozen_leaves
  shared = shared._replace(frozen=others, **shared_fields)
  return per_seed._replace(frozen=by_seed), shared


# A pool that fills at most so many bytes has a length that others have too.
_SMALL_POOL = 1 << 24


def _of_common_length(examples):
  """A small pool with copies of its first examples, up to a power of two.

  Two partitions of one data set seldom use equally many of its examples. With a
  common length, rounds under both are one program, which is compiled once.

  Returns:
    None if the pool is large, or has such a length already.
  """
  length = len(jax.tree.leaves(examples)[0])
  common = 1 << (length - 1).bit_length()
  if (
    common == length
    or trees.num_bytes(examples) * common > _SMALL_POOL * length
  ):
    return None
  return trees.take(examples, np.arange(common) % length)


def _memory_advice(needed, available):
  """A sentence: memory needed, memory available, options that need less."""
  message = "a device's memory is too small"
  if needed is not None and available is not None:
    message += (
      f": a program needs {needed / 1e9:.1f} GB of {available / 1e9:.1f} GB"
    )
  return (
    f"{message}; try a smaller client_chunk, grid_chunk or batch_size, "
    "client_memory='host', or precision='bfloat16'"
  )
