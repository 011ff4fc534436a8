"""Who takes part in a round: drawn clients, their keys and their weights."""

import jax
import jax.numpy as jnp

from fedjax_opt.base import round_key
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced.mapping import RoundData
from fedjax_opt.engine.traced.worker import Client

# The most phases that a round may have. Each has its own random keys.
MAX_PHASES = 8
# Streams of random keys, by the number that is folded into the round's key: the
# clients of a phase have 1 + phase, the algorithm and dropouts the next two.
_ALGORITHM_STREAM, _DROPOUT_STREAM = 1 + MAX_PHASES, 2 + MAX_PHASES


class Participants:
  """The clients that are drawn for a round.

  Attributes:
    numbers: [C] int32, in the population; M for an empty place.
    scale: [C] float, by which the sampler changes their weights, or None.
    key: [] random key of the round, for the algorithm's own draws.
  """

  def __init__(
    self, config: Config, key: jax.Array, round: jax.Array, data: RoundData
  ):
    """Draws the clients, unless the data of the round have them.

    Args:
      config: static options.
      key: [] random key of the run.
      round: [] int32.
      data: what this round sees of the population.
    """
    # Keys are folded from seed, round and client, so no draw depends on what
    # ran before. For a client that started from an older version, the round is
    # that of this version.
    self._run_key, self._round_key = key, round_key(key, round)
    self._config, self._round, self._data = config, round, data
    self.key = jax.random.fold_in(self._round_key, _ALGORITHM_STREAM)
    self.numbers, self.scale = data.clients, data.scale
    if data.clients is None:
      self.numbers, self.scale = config.sampler.draw(
        self._round_key, round, data.sizes, config.cohort_size
      )

  def clients_of(self, numbers: jax.Array, scale: jax.Array | None) -> Client:
    """The clients with some numbers, without what only a phase gives them.

    Args:
      numbers: [C'] int32; M stands for padding.
      scale: [C] float, by which their weights are changed, or None.

    Returns:
      Leaves [C', ...].
    """
    config, sizes = self._config, self._data.sizes
    size = sizes.at[numbers].get(mode="fill", fill_value=0)
    weight = self._natural_weights(numbers, size)
    if scale is None:
      weight = weight / jnp.maximum(jnp.sum(weight), 1)
    else:
      scale = jnp.pad(scale, (0, len(numbers) - len(scale)))
      weight = weight / self._population_weight() * scale
    # If states are on the host, only the cohort's rows are here, in its order.
    positions = jnp.arange(len(numbers), dtype=jnp.int32)
    row = positions if config.state_is_on_host else numbers
    pad = lambda leaf: jnp.pad(leaf, (0, len(numbers) - len(leaf)))
    arrival = jax.tree.map(pad, self._data.arrival)
    is_out = self._is_out(numbers, arrival)
    return Client(numbers, size, weight, is_out, row, arrival)

  def keys_of(self, clients: Client, phase: int) -> jax.Array:
    """[C'] random keys of clients in a phase."""
    return self._keys(1 + phase, clients.number, clients.arrival)

  def cohort_share(self, clients: Client, counted: jax.Array) -> jax.Array:
    """The weights of the clients that count, as a part of the population's.

    Args:
      clients: leaves [C', ...].
      counted: [C'] bool.
    """
    natural = self._natural_weights(clients.number, clients.size)
    cohort = jnp.sum(natural)
    normalized = natural / jnp.maximum(cohort, 1)
    share = jnp.sum(jnp.where(counted, normalized, 0))
    # Exactly 1 if all clients with a weight count.
    share = jnp.where(jnp.any((normalized > 0) & ~counted), share, 1)
    config = self._config
    if not config.weights_by_examples and not config.has_empty_places:
      places = min(len(counted), config.cohort_size)  # Without padding.
      return share * (places / config.num_clients)
    return share * cohort / self._population_weight()

  def draw_index(self, phase: int) -> tuple[jax.Array, jax.Array]:
    """The index of a client that does not drop out, and whether all do."""
    key = jax.random.fold_in(self.key, phase)
    size = self._config.cohort_size
    if self._config.client_dropout == 0 and not self._config.has_empty_places:
      index = jax.random.randint(key, (), 0, size, jnp.int32)
      return index, jnp.array(False)
    is_out = self._is_out(self.numbers, self._data.arrival)
    draws = jax.random.uniform(key, (size,), jnp.float32)
    return jnp.argmax(jnp.where(is_out, -1, draws)), jnp.all(is_out)

  def _keys(self, stream, numbers, arrival):
    """[C'] random keys of clients, in the stream of this number."""
    if arrival is None or arrival.staleness is None:
      key = jax.random.fold_in(self._round_key, stream)
      return jax.vmap(lambda i: jax.random.fold_in(key, i))(numbers)

    def of_client(staleness, draw, i):
      key = round_key(self._run_key, self._round - staleness)
      key = jax.random.fold_in(jax.random.fold_in(key, stream), i)
      # The same client may start from one version several times.
      return jnp.where(draw > 0, jax.random.fold_in(key, draw), key)

    return jax.vmap(of_client)(arrival.staleness, arrival.draw, numbers)

  def _is_out(self, numbers, arrival):
    """[C'] bool: dropped out, an empty place, or a message that is not used."""
    is_out = numbers >= self._config.num_clients
    is_out |= self._has_dropped_out(numbers, arrival)
    if arrival is not None and arrival.is_taken is not None:
      is_out |= ~arrival.is_taken
    return is_out

  def _has_dropped_out(self, numbers, arrival):
    """[C'] bool, which clients drop out; the same in all phases of a round."""
    if self._config.client_dropout == 0:
      return jnp.zeros(len(numbers), bool)
    rate = jnp.float32(self._config.client_dropout)  # In the type of the draws.
    keys = self._keys(_DROPOUT_STREAM, numbers, arrival)
    return jax.vmap(lambda key: jax.random.bernoulli(key, rate))(keys)

  def _natural_weights(self, numbers, size):
    """[C'] float, the clients' examples or 1, as `weighting` says."""
    if self._config.weights_by_examples:
      return size.astype(float)
    return (numbers < self._config.num_clients).astype(float)

  def _population_weight(self):
    """The sum of the natural weights of all clients of the population."""
    if not self._config.weights_by_examples:
      return float(self._config.num_clients)
    return jnp.maximum(jnp.sum(self._data.sizes.astype(float)), 1)
