"""What the verbs of a cohort return: the value, who counted, what it cost.

These arrays of bool, one entry for each place of a cohort, say who counts:

  is_absent  there is no client: an empty place of the cohort, or padding
  is_taken   the schedule uses the message (`Arrival`)
  is_out     is_absent, not is_taken, or the client has dropped out (`Client`)
  is_valid   what the client returned is finite, and not rejected as too long
  counted    is_valid and not is_out: the client is in the mean (`Reply`)
  is_last    no later place of the server step has this client (`Arrival`)
  stores     counted and is_last: what the client keeps changes

States of clients on the host: only rows of clients with is_taken are written
back (`client_state.Cohorts.kept`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_opt.arrays import (
  counters,
  norms,
  running_statistics,
  sharding,
  trees,
)
from fedjax_opt.base import ClientOutput
from fedjax_opt.checks import functions
from fedjax_opt.checks.values import MAX_INT32
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced.worker import Client, Worker
from fedjax_opt.transforms import messages

# The row of a client state that is not written: no array has so many.
NO_ROW = MAX_INT32


class ClientRecord(NamedTuple):
  """What the engine records of one client; stacked, leaves [C, ...]."""

  weight: jax.Array | None  # [] float, if it returned one
  is_valid: jax.Array  # [] bool, whether it is finite and not rejected
  is_clipped: jax.Array | None  # [] bool; None if none can be clipped
  bytes_up: jax.Array  # [8] counter
  gradient_evaluations: jax.Array  # [8] counter, in examples
  num_steps: jax.Array  # [] int32, local steps
  examples: jax.Array  # [] int32, in its batches
  traces: dict[str, jax.Array]  # name -> [K]
  metrics: dict[str, jax.Array]  # name -> []


def limited(
  config: Config, message: Any, part_shapes: list[Any] | None
) -> tuple[Any, jax.Array | None]:
  """A message that is no longer than allowed, and whether it was longer.

  Args:
    config: static options.
    message: any tree.
    part_shapes: what `messages.shapes_of_differences` returned. The norm is
      that of all differences together, and only they are clipped. If
      `part_shapes` is None, this holds for all floats except running
      statistics.

  Returns:
    The message, clipped if the options say so; and [] bool, or None if there
    is no limit. Numbers that are not finite stay as they are.
  """
  limit = config.max_update_norm
  if limit is None:
    return message, None
  if part_shapes is None:
    part_shapes = [running_statistics.weights(message)]
  differences = messages.differences_of("max_update_norm", message, part_shapes)
  shorter, is_long = norms.clipped(differences, limit)
  if not config.clips_updates:
    return message, is_long
  return messages.with_differences(message, shorter), is_long


def client_record(
  config: Config,
  output: ClientOutput,
  worker: Worker,
  client: Client,
  is_long: jax.Array | None,
) -> ClientRecord:
  """What the engine records of a client, given the output that it returned.

  Args:
    config: static options.
    output: what it returned, with its message already limited, and the bytes of
      that message.
    worker: the client's worker.
    client: the client.
    is_long: what `limited` returned; None if there is no limit.
  """
  weight, bytes_up = output.weight, output.bytes_up
  if jnp.ndim(bytes_up) == 0:  # Else it is a counter.
    bytes_up = counters.counter(bytes_up)
  if weight is not None:
    weight = jnp.asarray(weight, float)
    weight = jnp.where(weight >= 0, weight, jnp.nan)  # NaN is rejected.
  is_valid = norms.all_finite((output.message, output.state, weight))
  is_clipped = None
  if config.clips_updates:
    is_clipped = is_long & is_valid
  elif is_long is not None:
    is_valid &= ~is_long
  return ClientRecord(
    weight=weight,
    is_valid=is_valid,
    is_clipped=is_clipped,
    bytes_up=bytes_up,
    gradient_evaluations=worker.gradient_evaluations,
    num_steps=client.num_steps,
    examples=jnp.sum(client.batch_sizes, dtype=jnp.int32),
    traces=worker.traces,
    metrics=jax.tree.map(jnp.asarray, dict(output.metrics)),
  )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Reply:
  """What a verb of a cohort returns, and `round` returns to the engine.

  Attributes:
    value: the mean, all messages, or the message of the picked client.
    counted: [C] bool, which clients count: those that did not drop out and
      returned finite numbers, no longer than `max_update_norm` if such messages
      are rejected.
    weights: [C] float, the weights of all clients, also of those that do not
      count. If clients return their weights, those that dropped out have 0.
    cohort_share: [] float, the weight of the clients that count, divided by
      that of all M. Weights are those of the option `weighting`, not those that
      clients returned.
    is_lost: [] bool, whether no client counts, or the weights of those that
      count sum to 0. Exception: the round is not lost if clients returned their
      weights and all of them are 0. The engine keeps the state from before a
      lost round.
    counts: {name: [8]}, counters of the costs of the phase, see `counters`.
    traces: {name: [C, ...]}, traced fields and metrics of the clients.
    client_state: leaves [C', ...], the clients' new states; None if this phase
      changed none.
    state_rows: [C'] int32, their rows; NO_ROW for clients whose state does
      not change.
    phase: number of the phase; static.
  """

  value: Any
  counted: jax.Array
  weights: jax.Array
  cohort_share: jax.Array
  is_lost: jax.Array
  counts: dict[str, jax.Array]
  traces: dict[str, jax.Array]
  client_state: Any
  state_rows: jax.Array
  phase: int = dataclasses.field(metadata={"static": True})


class Phase(NamedTuple):
  """A phase of a round, and what the server sends in it.

  Attributes:
    number: the phase's number, from 0 on.
    label: name under which its cost is also reported apart; "" for none.
    broadcast: what each client receives.
    bytes_down: bytes of `broadcast` that are sent; None for all.
  """

  number: int
  label: str
  broadcast: Any
  bytes_down: int | None

  @property
  def num_bytes(self) -> int:
    """What each client receives."""
    if self.bytes_down is None:
      return trees.num_bytes(self.broadcast)
    return self.bytes_down


def reply_of_all(
  config: Config,
  visited: tuple[Any, Any, ClientRecord],
  clients: Client,
  phase: Phase,
  share_of: Callable[[Client, jax.Array], jax.Array],
  order: jax.Array | None,
) -> Reply:
  """The reply of a phase of all clients of the cohort.

  Args:
    config: static options.
    visited: the reply's value; what these clients keep from now on, leaves [C',
      ...], or None; and their records.
    clients: leaves [C', ...].
    phase: the reply's phase.
    share_of: `(clients, counted) -> cohort_share`, see `Reply`.
    order: the clients in the order of computation, see
      `mapping.computing_order`.
  """
  *_, records = visited
  reply = _without_costs(config, visited, clients, phase, share_of)
  computed = {"computed_examples": computed_examples(config, records, order)}
  visits, bytes_up = config.cohort_size, records.bytes_up[: config.cohort_size]
  if config.has_empty_places:
    is_present = clients.number < config.num_clients
    visits = jnp.sum(is_present, dtype=jnp.int32)
    bytes_up = jnp.where(is_present[:, None], records.bytes_up, 0)
  costs = _costs(reply, phase, visits, bytes_up)
  return dataclasses.replace(reply, counts=reply.counts | computed | costs)


def reply_of_one(
  config: Config,
  visited: tuple[Any, Any, ClientRecord],
  client: Client,
  phase: Phase,
  share_of: Callable[[Client, jax.Array], jax.Array],
) -> Reply:
  """The reply of a phase of one client that was picked.

  It has no traces and no metrics, and its examples have no padding.

  Args:
    config: static options.
    visited: as in `reply_of_all`, but leaves have no axis of clients.
    client: leaves [1, ...].
    phase: the reply's phase.
    share_of: see `reply_of_all`.
  """
  value, *state_and_records = visited
  state, records = jax.tree.map(lambda leaf: leaf[None], state_and_records)
  visited = value, state, records
  reply = _without_costs(config, visited, client, phase, share_of)
  counts = {n: count for n, count in reply.counts.items() if n != "examples"}
  return dataclasses.replace(
    reply,
    is_lost=~reply.counted[0],
    traces={},
    counts=counts | _costs(reply, phase, 1, records.bytes_up),
  )


def _without_costs(config, visited, clients, phase, share_of):
  """The reply of some clients, leaves [C', ...], without what they cost."""
  value, client_state, records = visited
  keys = records.traces.keys() & records.metrics.keys()
  if keys:
    raise ValueError(
      f"ClientOutput.metrics: {min(keys)!r} is a field of trace= too; give the "
      "metric another name"
    )
  counted, arrival = is_counted(clients, records), clients.arrival
  stores = counted
  if arrival is not None and arrival.is_last is not None:
    stores = counted & arrival.is_last
  weight = weights_of(clients, records)
  has_none = jnp.sum(jnp.where(counted, weight, 0)) == 0
  if records.weight is not None:  # All clients may have returned the weight 0.
    has_none &= jnp.any((weight > 0) & ~counted)
  left_out = {"rejected_clients": ~records.is_valid & ~clients.is_out}
  if records.is_clipped is not None:
    left_out["clipped_clients"] = records.is_clipped & ~clients.is_out
  in_cohort = lambda tree: trees.take(tree, slice(config.cohort_size))
  is_absent = clients.number >= config.num_clients  # Empty places of a cohort.
  return Reply(
    value=value,
    counted=in_cohort(counted),
    weights=in_cohort(weight),
    cohort_share=share_of(clients, counted),
    is_lost=~jnp.any(counted) | has_none,
    counts=counters.totals(
      **{name: flags.astype(jnp.int32) for name, flags in left_out.items()},
      examples=records.examples,
    )
    | {"gradient_evaluations": counters.total(records.gradient_evaluations)},
    traces=in_cohort(_of_present(records.traces | records.metrics, is_absent)),
    client_state=client_state,
    state_rows=jnp.where(stores, clients.state_row, NO_ROW),
    phase=phase.number,
  )


def _of_present(recorded, is_absent):
  """{name: [C, ...]}, with NaN in place of what empty places computed."""

  def blank(leaf):
    mask = trees.along(is_absent, leaf)
    return jnp.where(mask, jnp.nan, trees.at_least_float32(leaf))

  return jax.tree.map(blank, recorded)


def computed_examples(config, records, order):
  """[8], examples computed, with padding to each chunk's slowest client."""
  steps = records.num_steps if order is None else records.num_steps[order]
  # The steps of the first device, chunk by chunk, then of the next device.
  steps = jnp.swapaxes(steps.reshape(-1, sharding.num_shards()), 0, 1)
  slowest = jnp.max(steps.reshape(-1, config.client_chunk), 1)
  width = config.client_chunk * config.plan.batch_size
  return counters.times(counters.total(counters.counter(slowest)), width)


def _costs(reply, phase, visits, bytes_up):
  """{name: [8]}, what the phase cost, and once more under its label.

  All clients that took part count, also those that dropped out.

  Args:
    reply: without these costs.
    phase: the reply's phase.
    visits: how many clients took part; a number, or [] int32.
    bytes_up: [n, 8] counters, of the clients that took part.
  """
  if isinstance(visits, int):
    bytes_down = counters.counter(visits * phase.num_bytes)
  else:
    bytes_down = counters.times(counters.counter(visits), phase.num_bytes)
  spent = {
    "bytes_down": bytes_down,
    "bytes_up": counters.total(bytes_up),
    "gradient_evaluations": reply.counts["gradient_evaluations"],
  }
  if not phase.label:
    return spent
  labelled = {f"{phase.label}_{name}": count for name, count in spent.items()}
  return spent | labelled | {"labelled_visits": counters.counter(visits)}


def blank_like(reply: Reply, value: Any) -> Reply:
  """The reply of a phase without clients, in the shapes of another reply."""
  blank = trees.zeros_of(reply)
  cast = lambda leaf, like: jnp.asarray(leaf, like.dtype)
  to_nan = lambda leaf: jnp.full_like(leaf, jnp.nan)
  return dataclasses.replace(
    blank,
    traces=jax.tree.map(to_nan, blank.traces),
    value=jax.tree.map(cast, value, reply.value),
    state_rows=jnp.full_like(blank.state_rows, NO_ROW),
  )


def is_counted(clients: Client, records: ClientRecord) -> jax.Array:
  """[C'] bool, whose messages count."""
  return records.is_valid & ~clients.is_out


def weights_of(clients: Client, records: ClientRecord) -> jax.Array:
  """[C'] float, weights in means: those that clients returned, or their own."""
  if records.weight is None:
    return clients.weight
  # Clients that dropped out, and padding, have returned a weight too.
  return jnp.where(clients.is_out, 0, records.weight)


def type_of_mean(leaf: jax.Array) -> Any:
  """The type of a message's leaf, or float if it has whole numbers."""
  return jnp.result_type(leaf.dtype, float)


def weighted_sum(weight: jax.Array, leaf: jax.Array) -> jax.Array:
  """[C], [C, ...] -> [...], the weighted sum without rows of weight 0.

  In float32, or a wider type of the leaf: in half precision the mean of equal
  rows would not be a row.
  """
  dtype = jnp.promote_types(type_of_mean(leaf), jnp.float32)
  weight = trees.along(weight.astype(dtype), leaf)
  # Padding of a chunk may have computed anything, such as NaN.
  return jnp.sum(jnp.where(weight > 0, weight * leaf, 0), axis=0)


def mean_of_counted(
  total: Any, clients: Client, records: ClientRecord, is_normalized: bool
) -> Any:
  """The mean over the clients that count, from their weighted sum.

  Args:
    total: the weighted sum.
    clients: leaves [C', ...].
    records: the records of these clients.
    is_normalized: whether the weights of all of `clients` sum to 1. False if a
      sampler scaled them: their sum is then 1 only in expectation. Running
      statistics are divided by the actual sum in both cases, so that a variance
      does not become negative.
  """
  weight, counted = weights_of(clients, records), is_counted(clients, records)
  mass = jnp.sum(jnp.where(counted, weight, 0))
  if records.weight is not None:
    divisor = mass
  else:  # Nothing changes if all count.
    is_short = jnp.any((weight > 0) & ~counted)
    part = mass if is_normalized else mass / jnp.sum(weight)
    divisor = jnp.where(is_short, part, 1)
  divided_by = lambda number: jax.tree.map(
    lambda leaf: leaf / jnp.where(mass > 0, number, 1).astype(leaf.dtype), total
  )
  mean = divided_by(divisor)
  if is_normalized:
    return mean
  return running_statistics.replaced(mean, divided_by(mass))


def checked_client_state(new: Any, old: Any) -> Any:
  """What a client keeps from now on, checked against what it kept.

  Args:
    new: None if it keeps what it had.
    old: what it kept; None if clients keep nothing.

  Raises:
    ValueError: if the new state has another structure, or the algorithm does
      not declare a state.
  """
  if new is None:
    return None
  if old is None:
    raise ValueError(
      "ClientOutput.state: was given, but the algorithm has no init_client; "
      "declare what one client keeps: Algorithm(..., init_client=...)"
    )
  new = trees.cast_like(new, old)
  functions.check_like("ClientOutput.state", new, old, "Algorithm.init_client")
  return jax.tree.map(jnp.asarray, new)
