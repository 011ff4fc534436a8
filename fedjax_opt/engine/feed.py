"""The input from the host to the program, for each segment of rounds.

There is such an input if the clients are on disk, if what they keep is on the
host, or if there is a schedule. With a schedule, the schedule says who takes
part. Without one, the host draws the cohorts of the coming rounds, the same
ones as the program would draw. A thread reads the examples of clients on disk
while the program computes the rounds before.
"""

import concurrent.futures
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import samplers
from fedjax_opt.arrays import target, trees
from fedjax_opt.checks import memory
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine.client_state import Cohorts
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced.mapping import (
  Segment,
  computing_order,
  pad_cohort,
)
from fedjax_opt.engine.traced.worker import Arrival

# The most bytes of examples in a segment: enough for several rounds in one call
# of the program, and few enough that two segments fit into any memory.
_SEGMENT_BYTES = 1 << 27
# The beginning of the name of the reading thread.
THREAD = "fedjax_opt_reader"


class Feed:
  """The segments of a run, read one ahead of the program; a context manager.

  Attributes:
    max_rounds: T, rounds in a segment, at most.
  """

  def __init__(
    self,
    config: Config,
    data: ClientData | Population,
    seeds: Sequence[int],
  ):
    """Plans how many rounds a segment has.

    Args:
      config: static options, `client_memory` resolved.
      data: the clients.
      seeds: the runs' seeds; each run has cohorts of its own.
    """
    self._config = config
    self._seeds = np.asarray(seeds, np.uint32)
    self._sizes = np.asarray(data.sizes)
    self._population = data if isinstance(data, Population) else None
    self._is_needed = (
      config.state_is_on_host
      or config.clock is not None
      or self._population is not None
    )
    # Rows on the host are gathered and scattered in each round.
    self.max_rounds = 1 if config.state_is_on_host else config.segment_rounds
    self._capacity = 0
    if self._population is not None:
      self._plan_reading()
    self._threads = concurrent.futures.ThreadPoolExecutor(1, THREAD)
    self._todo: Iterator[tuple[int, int]] = iter(())
    self._coming: concurrent.futures.Future | None = None

  def _plan_reading(self):
    """How many rounds a segment has, and how many examples fit into a round."""
    config = self._config
    unit = config.client_chunk * config.layout.client_devices
    num_local = -(-config.cohort_size // unit) * config.client_chunk
    # A round has room for a cohort of the largest clients.
    at_most = min(num_local, config.cohort_size)
    self._capacity = self._population.capacity(at_most)
    example = self._population.example_bytes
    round_bytes = self._capacity * example * len(self._seeds)
    memory.check_memory(
      f"cohort_size={config.cohort_size}: the largest clients take", round_bytes
    )
    at_once = max(1, _SEGMENT_BYTES // max(round_bytes, 1))
    self.max_rounds = min(self.max_rounds, at_once)

  def __enter__(self) -> "Feed":
    return self

  def __exit__(self, *_) -> None:
    self._threads.shutdown(cancel_futures=True)

  def start(self, stops: Iterable[int], done: int) -> None:
    """Begins to read.

    Args:
      stops: numbers of rounds after which a segment ends.
      done: number of rounds that were done before.
    """
    self._todo = itertools.pairwise(itertools.chain([done], stops))
    self._read_ahead()

  def shapes_of_segments(self) -> Segment:
    """The shapes of the segments that `next_segment` returns."""
    if not self._is_needed:
      return Segment()
    rounds = np.zeros(self.max_rounds, np.int32)
    draw = functools.partial(_draw_cohorts, self._config)
    arrivals = self._arrivals(rounds)
    draws = jax.eval_shape(draw, self._seeds, rounds, self._sizes, arrivals)
    # The shapes of cohorts without clients, so that nothing is read.
    nobody = lambda x: np.full(x.shape, self._config.num_clients, x.dtype)
    draws, computed = jax.tree.map(nobody, draws)
    segment = self._of_device(0, draws, computed)

    def shape(leaf):
      dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
      return jax.ShapeDtypeStruct(leaf.shape, dtype)

    return self._config.layout.shapes_of_shards(jax.tree.map(shape, segment))

  def next_segment(self) -> tuple[Segment, Cohorts | None]:
    """The next segment, leaves [D, ...] or [D, seeds, ...].

    Returns:
      The segment, on the devices; and its cohorts, on the host.
    """
    if not self._is_needed:
      return Segment(), None
    segment = self._coming.result()
    self._read_ahead()
    return segment

  def _read_ahead(self):
    segment = next(self._todo, None) if self._is_needed else None
    if segment is not None:
      self._coming = self._threads.submit(self.make_segment, *segment)

  def make_segment(self, first_round, stop):
    """The segment of rounds `first_round` to `stop - 1`, and its cohorts."""
    with (
      jax.profiler.TraceAnnotation("read a segment"),
      jax.default_device(target.host()),  # The device itself is busy.
    ):
      rounds = np.int32(first_round) + np.arange(
        self.max_rounds, dtype=np.int32
      )
      arrivals = self._arrivals(rounds)
      draws = _draw_cohorts(
        self._config, self._seeds, rounds, self._sizes, arrivals
      )
      draws, computed = jax.device_get(draws)
    computed = computed.copy()
    computed[:, stop - first_round :] = self._config.num_clients  # Not read.
    make = lambda d: self._of_device(d, draws, computed)
    # Only a message that is used changes what its client keeps.
    nobody = self._config.num_clients
    clients, kept = draws.clients, draws.clients
    if draws.arrival is not None and draws.arrival.is_taken is not None:
      kept = np.where(draws.arrival.is_taken, clients, nobody)
    return self._config.layout.put_shards(make), Cohorts(clients, kept)

  def _arrivals(self, rounds):
    """The segment of the schedule, leaves [seeds, T, ...]; None without one."""
    config = self._config
    if config.clock is None:
      return None
    sizes = np.broadcast_to(
      self._sizes, (len(self._seeds), self._sizes.shape[-1])
    )
    columns = config.clock.arrivals(rounds, sizes, config.plan.num_steps)
    own = {name: columns.pop(name, None) for name in ("clients", "write_slot")}
    return Segment(**own, arrival=Arrival(**columns))

  def _of_device(self, d, draws, computed):
    """The segment of the d-th device of the client axis."""
    segment = draws
    if self._population is not None:
      # The clients that `sharding.local_rows` gives this device.
      local = computed[..., d :: self._config.layout.client_devices]
      examples, starts = self._read(local)
      segment = segment._replace(examples=examples, starts=starts)
    return segment if self._config.has_axes else trees.take(segment, 0)

  def _read(self, clients):
    """The examples of [seeds, T, C] clients, and the first row of each."""
    seeds, rounds, _ = clients.shape
    examples = {
      name: np.zeros((seeds, rounds * self._capacity, *shape), dtype)
      for name, (dtype, shape) in self._population.fields.items()
    }
    starts = np.zeros(clients.shape, np.int32)
    for s in range(seeds):
      for t in range(rounds):
        first = t * self._capacity
        part = {
          name: values[s, first : first + self._capacity]
          for name, values in examples.items()
        }
        # A client that a sampler draws twice is read once. So no round reads
        # more than the largest clients, each once.
        unique, place = np.unique(clients[s, t], return_inverse=True)
        gathered = self._population.gather(unique, self._capacity, out=part)
        starts[s, t] = first + gathered[1][place]
    return examples, starts


def lower_draws(config: Config, seeds: Sequence[int], sizes: Any) -> Any:
  """The program that draws cohorts, lowered for one round."""
  seeds, round = np.asarray(seeds, np.uint32), np.zeros(1, np.int32)
  return _draw_cohorts.lower(config, seeds, round, sizes)


@functools.partial(jax.jit, static_argnums=0)
def _draw_cohorts(config, seeds, rounds, sizes, arrivals=None):
  """The segment, leaves [seeds, T, ...]; and its cohorts [seeds, T, C'].

  The segment is that of the schedule, or has clients and perhaps their scale.
  The cohorts are in the order in which they are computed.
  """

  def of_round(seed, sizes, round, arrivals):
    draws = arrivals
    if draws is None:
      clients, scale = samplers.draw(
        config.sampler, seed, round, sizes, config.cohort_size
      )
      draws = Segment(clients, scale)
    numbers = pad_cohort(config, draws.clients)
    cohort_sizes = sizes.at[numbers].get(mode="fill", fill_value=0)
    order = computing_order(config, cohort_sizes)
    return draws, numbers if order is None else numbers[order]

  over_rounds = jax.vmap(of_round, (None, None, 0, 0))
  sizes_axis = 0 if sizes.ndim == 2 else None
  over_seeds = jax.vmap(over_rounds, (0, sizes_axis, None, 0))
  return over_seeds(seeds, jnp.asarray(sizes), rounds, arrivals)
