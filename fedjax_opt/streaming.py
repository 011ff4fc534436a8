"""Clients that are read from disk round by round, while others are computed.

A `Loader` draws the cohorts of the coming rounds on the host, as the program
would on the device, and a thread of its own copies their examples together; the
program finds them in a `Stretch`.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import sharding
from fedjax_opt.cohort import computing_order, fill_up, members_of_round
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.program import Program

# Bytes of examples that a stretch of rounds may bring at once: enough rounds
# for one call of the program to be worth it, and two stretches fit anywhere.
_STRETCH_BYTES = 1 << 27
# What the name of the thread that reads begins with.
THREAD = "fedjax_opt_loader"
# Clients of a population on disk that are kept in memory for metrics.
SAMPLE = 100


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class OneRound:
  """What a round sees of the population; stands in for a `ClientData`.

  Attributes:
    examples: {name: [N, ...]} of this round's clients and of some others.
    sizes: [M] int32.
    cohort: [C] int32, the clients of the round.
    starts: [C] int32, where the examples of each begin; of those which this
      device computes.
    max_size: n_max, static.
  """

  examples: dict[str, jax.Array]
  sizes: jax.Array
  cohort: jax.Array
  starts: jax.Array
  max_size: int = dataclasses.field(metadata={"static": True})

  @property
  def num_clients(self) -> int:
    """M."""
    return len(self.sizes)

  def where(self, clients: jax.Array) -> jax.Array:
    """[C] int32, where the examples of those clients begin."""
    del clients  # They are those computed here, in their order.
    return self.starts

  def rows_of(self, where: jax.Array) -> jax.Array:
    """[C, n_max] rows of the examples that begin there."""
    return where[:, None] + jnp.arange(self.max_size)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class OnDisk:
  """What the program keeps of a population that is on disk.

  Attributes:
    sample: some clients, on which metrics of training are measured.
    sizes: [M] int32.
    max_size: n_max, static.
  """

  sample: ClientData
  sizes: np.ndarray | jax.Array
  max_size: int = dataclasses.field(metadata={"static": True})

  @classmethod
  def sample_of(cls, population: Population) -> "OnDisk":
    """Takes every so-many-th client, `SAMPLE` at most.

    Not drawn, so that all runs are measured on the same ones.
    """
    number = min(SAMPLE, population.num_clients)
    clients = np.arange(number) * population.num_clients // number
    # As any may be empty, and a sample may not be.
    largest = int(np.argmax(population.sizes))
    if not population.sizes[clients].any():
      clients = np.append(clients[:-1], largest)
    sample = population.load(clients)
    return cls(sample, population.sizes, population.max_size)

  def round(self, stretch: "Stretch", i: jax.Array) -> OneRound:
    """The i-th round of a stretch."""
    return OneRound(
      stretch.examples,
      self.sizes,
      stretch.cohorts[i],
      stretch.starts[i],
      self.max_size,
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Stretch:
  """The cohorts of T rounds, and the examples of those computed on a device.

  Attributes:
    examples: {name: [N, ...]}, of all T rounds.
    cohorts: [T, C] int32.
    starts: [T, C] int32, of those computed on this device.
  """

  examples: dict[str, jax.Array]
  cohorts: jax.Array
  starts: jax.Array


@contextlib.contextmanager
def reading(
  data: ClientData | Population,
  program: Program,
  seeds: Sequence[int],
  with_seeds: bool,
) -> Iterator[tuple["ClientData | OnDisk", "Loader | None"]]:
  """What a program keeps of the clients, and who reads the rest, if any.

  Args:
    data: the clients; with those on disk a thread reads until the end of this.
    program: static settings.
    seeds: of the runs.
    with_seeds: see `Loader`.
  """
  if not isinstance(data, Population):
    yield data, None
    return
  loader = Loader(data, program, seeds, with_seeds)
  try:
    yield OnDisk.sample_of(data), loader
  finally:
    loader.close()


class Loader:
  """Reads the clients of stretches of rounds, one stretch ahead.

  Attributes:
    rounds: T, rounds in a stretch, at most.
  """

  def __init__(
    self,
    population: Population,
    program: Program,
    seeds: Sequence[int],
    with_seeds: bool,
  ):
    """Reads nothing yet.

    Args:
      population: the clients on disk.
      program: static settings.
      seeds: of the runs, each with its own cohorts.
      with_seeds: whether stretches have an axis [seeds]; if not, there is one.
    """
    self._population, self._program = population, program
    self._seeds, self._with_seeds = np.asarray(seeds, np.uint32), with_seeds
    self._shards = program.layout.client_devices
    unit = program.chunk * self._shards
    self._places = -(-program.cohort_size // unit) * program.chunk  # a device's
    # Any places of a cohort fit into it.
    at_most = min(self._places, program.cohort_size)
    self._capacity = population.capacity(at_most)
    example = sum(
      np.dtype(dtype).itemsize * math.prod(shape)
      for dtype, shape in population.fields.values()
    )
    of_round = self._capacity * example * len(self._seeds)
    at_once = max(1, _STRETCH_BYTES // max(of_round, 1))
    # What clients keep on the host is exchanged after each round.
    at_most = 1 if program.client_memory == "host" else program.eval_every
    self.rounds = min(at_most, at_once)
    self._draw = jax.jit(self._cohorts_of)
    self._pool = concurrent.futures.ThreadPoolExecutor(1, THREAD)
    self._coming = collections.deque()

  def start(self, stops: Sequence[int], done: int) -> None:
    """Begins to read.

    Args:
      stops: after which rounds a stretch ends.
      done: rounds, before the first of them.
    """
    firsts = [done, *stops[:-1]]
    self._todo = collections.deque(zip(firsts, stops, strict=True))
    self._next()

  def take(self) -> Stretch:
    """The next stretch, leaves [D, ...] or [D, seeds, ...]."""
    stretch = self._coming.popleft().result()
    self._next()
    return stretch

  def close(self) -> None:
    """Ends the thread."""
    self._pool.shutdown(cancel_futures=True)

  def _next(self):
    if self._todo:
      stretch = self._todo.popleft()
      self._coming.append(self._pool.submit(self._read, *stretch))

  def _cohorts_of(self, sizes, first):
    """[seeds, T, C] cohorts of the rounds from `first` on, and as computed."""
    program, population = self._program, len(sizes)

    def of_round(seed, round):
      cohort = members_of_round(program, seed, round, population)
      clients = fill_up(program, population, cohort)
      filled = sizes.at[clients].get(mode="fill", fill_value=0)
      order = computing_order(program, filled)
      return cohort, clients if order is None else clients[order]

    rounds = first + jnp.arange(self.rounds)
    of_seed = jax.vmap(of_round, (None, 0))
    return jax.vmap(of_seed, (0, None))(jnp.asarray(self._seeds), rounds)

  def _read(self, first, stop):
    """The stretch of rounds `first` to `stop - 1`."""
    with jax.default_device(sharding.host()):  # The device itself is busy.
      drawn = self._draw(self._population.sizes, np.int32(first))
      cohorts, computed = jax.device_get(drawn)
    computed = computed.copy()
    computed[:, stop - first :] = self._population.num_clients  # Not read.
    make = lambda d: self._shard(d, cohorts, computed)
    return self._program.layout.put_shards(make)

  def _shard(self, d, cohorts, computed):
    """The stretch of the d-th device."""
    own = computed[..., d :: self._shards]  # As `sharding.own`.
    seeds, rounds, places = own.shape
    capacity = self._capacity
    examples = {
      name: np.zeros((seeds, rounds * capacity, *shape), dtype)
      for name, (dtype, shape) in self._population.fields.items()
    }
    starts = np.zeros((seeds, rounds, places), np.int32)
    for s in range(seeds):
      for t in range(rounds):
        first = t * capacity
        part = {
          name: values[s, first : first + capacity]
          for name, values in examples.items()
        }
        found = self._population.gather(own[s, t], capacity, out=part)[1]
        starts[s, t] = first + found
    stretch = Stretch(examples, cohorts, starts)
    if self._with_seeds:
      return stretch
    return jax.tree.map(lambda leaf: leaf[0], stretch)
