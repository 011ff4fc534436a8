"""The work of one client, mapped over the clients of a cohort."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt.arrays import trees
from fedjax_opt.data import lists
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced.batches import draw_batches
from fedjax_opt.engine.traced.worker import Arrival, Client


class RoundData(NamedTuple):
  """What one round sees of the population.

  Attributes:
    examples: {name: [N, ...]}, the pool; for clients on disk, the examples of
      a segment of rounds.
    sizes: [M] int32, the examples of each client.
    indices: [M, n_max] int32, the pooled rows of each client, an array or
      `data.lists.Lists`; None for clients on disk, where each client has
      consecutive rows.
    clients: [C] int32, the cohort, if it was drawn before the round, by the
      host or ahead of the loop; else None.
    scale: [C] float, factors of their weights, from the sampler; or None.
    first_phase: the clients of phase 0 with their batches, leaves [C, ...], if
      they were drawn ahead; else None.
    starts: for clients on disk: [C'] int32, the row where the examples of each
      client begin, for the clients of this device, in the order of computation.
      Else None.
    client_state: what clients keep; leaves [M, ...], or [C, ...] for the rows
      of the cohort if those of all clients are on the host.
    arrival: how the clients of the cohort come, leaves [C]; None without a
      schedule.
    write_slot: [] int32, the slot of the server's present version; None if no
      client starts from an older one.
    versions: what the server sent in the versions that are kept, leaves
      [slots, ...]; None if no client starts from an older one.
  """

  examples: dict[str, jax.Array]
  sizes: jax.Array
  indices: jax.Array | lists.Lists | None = None
  clients: jax.Array | None = None
  scale: jax.Array | None = None
  first_phase: Client | None = None
  starts: jax.Array | None = None
  client_state: Any = None
  arrival: Arrival | None = None
  write_slot: jax.Array | None = None
  versions: Any = None


class Segment(NamedTuple):
  """What is there before some rounds begin: from the host, or drawn ahead.

  The fields are those of `RoundData`, leaves [T, ...]; the examples are those
  of all T rounds. A field is None if each round has it from elsewhere, or not.
  """

  clients: jax.Array | None = None
  scale: jax.Array | None = None
  first_phase: Client | None = None
  starts: jax.Array | None = None
  arrival: Arrival | None = None
  write_slot: jax.Array | None = None
  examples: dict[str, jax.Array] | None = None

  def of_round(self, i: jax.Array | int) -> dict[str, Any]:
    """The fields of `RoundData` that the i-th round has from here."""
    own = trees.take(self._replace(examples=None), i)._asdict()
    own["examples"] = self.examples
    return {name: value for name, value in own.items() if value is not None}


def visit_in_chunks(
  config: Config,
  round_data: RoundData,
  visit: Callable[..., tuple[Any, Any, Any]],
  clients: Client,
  summarize: Callable[[Client, Any], tuple[Any, Any]],
) -> tuple[Any, Any]:
  """Visits all clients that this device computes, a chunk at a time.

  Args:
    config: static options.
    round_data: what the round sees of the population.
    visit: `(client, state) -> (message, state, record)`, the work of a client.
    clients: leaves [C', ...], whole chunks.
    summarize: `(clients, visited) -> (sums, stacked)`, of a chunk: `sums` are
      added up over the chunks; `stacked`, leaves [chunk, ...], are joined.

  Returns:
    The sums, and the joined arrays, leaves [C', ...].
  """

  def one_chunk(clients):
    return summarize(clients, _visit_chunk(config, round_data, visit, clients))

  chunk = config.client_chunk
  if chunk == len(clients.number):
    return one_chunk(clients)
  one_chunk = jax.jit(one_chunk)  # Traced once for its shapes and the loop.
  split = lambda leaf: leaf.reshape(-1, chunk, *leaf.shape[1:])
  chunks = jax.tree.map(split, clients)
  sums, rows = jax.eval_shape(one_chunk, trees.take(chunks, 0))
  num_chunks = len(clients.number) // chunk
  blank_rows = lambda leaf: jnp.zeros((num_chunks, *leaf.shape), leaf.dtype)
  blank, stacked = trees.zeros_of(sums), jax.tree.map(blank_rows, rows)

  def add_chunk(i, carry):
    total, stacked = carry
    sums, new = one_chunk(trees.take(chunks, i))
    put = lambda rows, row: trees.with_row(rows, i, row)
    return jax.tree.map(jnp.add, total, sums), jax.tree.map(put, stacked, new)

  def add_block(block, carry):
    total, correction, stacked = carry
    first = block * _PLAIN_SUMS
    last = jnp.minimum(first + _PLAIN_SUMS, num_chunks)
    sums, stacked = lax.fori_loop(first, last, add_chunk, (blank, stacked))
    return *_compensated_sum(total, correction, sums), stacked

  if num_chunks <= _PLAIN_SUMS:
    total, stacked = lax.fori_loop(0, num_chunks, add_chunk, (blank, stacked))
  else:
    num_blocks = -(-num_chunks // _PLAIN_SUMS)
    carry = (blank, blank, stacked)
    total, _, stacked = lax.fori_loop(0, num_blocks, add_block, carry)
  join = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])
  return total, jax.tree.map(join, stacked)


# Chunks whose sums are added plainly, before the total takes them exactly: a
# float32 sum of so many terms has an error below 1e-6 times the sum of their
# absolute values.
_PLAIN_SUMS = 16


def _compensated_sum(total, correction, sums):
  """The new total, and the excess that rounding added to it.

  References:
    Kahan, "Further remarks on reducing truncation errors", CACM 1965.
  """
  corrected = jax.tree.map(jnp.subtract, sums, correction)
  new_total = jax.tree.map(jnp.add, total, corrected)
  excess = lambda new, old, added: (new - old) - added
  return new_total, jax.tree.map(excess, new_total, total, corrected)


def _visit_chunk(config, round_data, visit, clients):
  """Maps `visit` over a chunk of clients, leaves [chunk, ...]."""
  if config.client_chunk > 1:
    return jax.vmap(visit)(
      *_with_batches_and_states(config, round_data, clients)
    )
  # One client needs no batch axis, which would slow its products down.
  visited = visit_one(config, round_data, visit, clients)
  return jax.tree.map(lambda leaf: leaf[None], visited)


def visit_one(
  config: Config,
  round_data: RoundData,
  visit: Callable[..., tuple[Any, Any, Any]],
  clients: Client,
) -> tuple[Any, Any, Any]:
  """What `visit` returns for the first of the clients."""
  first = trees.take(clients, slice(1))
  return visit(
    *trees.take(_with_batches_and_states(config, round_data, first), 0)
  )


def _with_batches_and_states(config, round_data, clients):
  """The clients with their batches, and what they keep."""
  if clients.batches is None:
    clients = with_batches(config, round_data, clients)
  gather = lambda leaf: leaf.at[clients.state_row].get(mode="clip")
  return clients, jax.tree.map(gather, round_data.client_state)


def with_batches(
  config: Config, round_data: RoundData, clients: Client
) -> Client:
  """The clients with the batches of their local steps."""
  if round_data.indices is None:
    rows = clients.location[:, None] + jnp.arange(config.max_size)
  else:
    rows = lists.rows_of(round_data.indices, round_data.sizes, clients.location)
  batches, batch_sizes, num_steps = draw_batches(
    config.plan, clients.key, rows, clients.size
  )
  if clients.arrival is not None and clients.arrival.steps is not None:
    num_steps = jnp.minimum(num_steps, clients.arrival.steps)
    is_taken = jnp.arange(config.plan.max_steps) < num_steps[:, None]
    batch_sizes = jnp.where(is_taken, batch_sizes, 0)
  return clients._replace(
    rows=rows, batches=batches, batch_sizes=batch_sizes, num_steps=num_steps
  )


def pad_cohort(config: Config, clients: jax.Array) -> jax.Array:
  """[C] -> [C'], padded with the number M to whole chunks on each device."""
  unit = config.client_chunk * config.layout.client_devices
  padding = (0, -len(clients) % unit)
  return jnp.pad(clients, padding, constant_values=config.num_clients)


def computing_order(config: Config, sizes: jax.Array) -> jax.Array | None:
  """The order in which the clients of a cohort are computed.

  The order is by size, if sizes differ. Then the clients of a chunk, and those
  that devices compute at the same time, take about equally many steps, so there
  is little padding.

  Args:
    config: static options.
    sizes: [C'] examples of each client.

  Returns:
    [C'] int32, or None for the order of the cohort.
  """
  at_once = config.client_chunk * config.layout.client_devices
  if config.plan.common_steps is not None or at_once >= len(sizes):
    return None
  return jnp.argsort(-sizes, stable=True)


def unsort(tree: Any, order: jax.Array | None) -> Any:
  """Leaves [C', ...], from the order of computation to that of the cohort."""
  return tree if order is None else trees.take(tree, jnp.argsort(order))
