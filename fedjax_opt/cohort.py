"""The clients of a round: what an algorithm sees of them, and how they move.

`Cohort` maps what an algorithm does with one client, the `Worker` of worker.py,
over all clients of the round. This is the only place that maps over clients.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt import sharding
from fedjax_opt.base import tree_bytes
from fedjax_opt.batches import first_of_shuffle
from fedjax_opt.data.clients import ClientData
from fedjax_opt.program import Phase, Program
from fedjax_opt.worker import Place, Slot, Worker

# Phases that a round may have, at most.
MAX_PHASES = 8


class Totals(NamedTuple):
  """Sums over rounds and clients; all float32."""

  gradient_evaluations: jax.Array  # [MAX_PHASES], in examples
  visits: jax.Array  # [MAX_PHASES], clients that took part
  rejected: jax.Array  # [MAX_PHASES], those whose message was not finite
  lost_rounds: jax.Array  # [], those in which nobody was left
  examples: jax.Array  # [], in the clients' batches
  computed: jax.Array  # [], the same with padding

  @classmethod
  def zeros(cls) -> "Totals":
    """Nothing done."""
    by_phase, zero = jnp.zeros(MAX_PHASES, jnp.float32), jnp.float32(0)
    return cls(by_phase, by_phase, by_phase, zero, zero, zero)


class Draw(NamedTuple):
  """The clients of a phase, and who of them is computed here, and when."""

  places: Place  # leaves [C, ...], filled up
  # [C] the places in the order in which they are computed; None for their own.
  order: jax.Array | None
  slots: Slot  # of this device, in that order

  def in_order(self, tree: Any) -> Any:
    """Leaves [C, ...] by place -> in the order in which they are computed."""
    return tree if self.order is None else _take(tree, self.order)

  def by_place(self, tree: Any) -> Any:
    """The inverse of `in_order`."""
    return tree if self.order is None else _take(tree, jnp.argsort(self.order))


def _take(tree, rows):
  return jax.tree.map(lambda leaf: leaf[rows], tree)


class Notes(NamedTuple):
  """What the simulator writes down about one client; not seen by algorithms."""

  gradient_evaluations: jax.Array  # [] float32, in examples
  num_steps: jax.Array  # [] int32, local steps
  examples: jax.Array  # [] int32, in its batches
  is_finite: jax.Array  # [] bool, whether all that it sends is
  traces: dict[str, jax.Array]  # name -> [K]


class Cohort:
  """The clients of one round, as an algorithm sees them.

  An algorithm describes what one client does as a function
  `one_client(worker, broadcast) -> message` and leaves the rest to the verbs
  `mean`, `each` and `pick`. Each call of a verb is a phase of its own, in
  which clients draw fresh batches.

  A client whose message is not finite, or that drops out, is left out of the
  mean, with its weight, and keeps the memory that it had. If that leaves nobody
  the round is lost, and the simulator keeps the state before it.

  Attributes:
    round: [] int32, the round.
    key: [] random key of this round, for the algorithm's own draws.
    budget: K B, examples in the local batches of a client, at most.
    mean_size: examples of a client, on average over the population.
    totals: sums over the clients so far.
    is_lost: [] bool, whether one of the phases so far was left by all.
    memories: leaves of the memories that `mean` gave; those left out have
      theirs unchanged in them.
    traces: {name: [C, K]} recorded by the clients' rules.
  """

  def __init__(
    self, program: Program, round: jax.Array, key: jax.Array, data: ClientData
  ):
    self.round = round
    # The cohort and its phases take the numbers from 0 on.
    self.key = jax.random.fold_in(key, 1 + MAX_PHASES)
    self.budget = program.plan.max_steps * program.plan.batch_size
    self.mean_size = program.mean_size
    self.totals = Totals.zeros()
    self.is_lost = jnp.array(False)
    self.memories = []
    self.traces = {}
    self._program = program
    self._key = key
    self._data = data
    self._phase = 0
    self._left = 1.0  # of the cohort's weight, in the last mean

  @property
  def num_phases(self) -> int:
    """How many phases there were so far."""
    return self._phase

  @property
  def common_steps(self) -> int | None:
    """K, if every client of the population takes K local steps, else None."""
    return self._program.plan.common_steps

  @property
  def share(self) -> jax.Array:
    """[] The cohort's part of the weights of the whole population.

    After a `mean`, the part of those who counted in it.
    """
    program = self._program
    if not program.by_examples:
      return self._left * (program.cohort_size / self._data.num_clients)
    sizes = self._data.sizes.astype(float)
    whole = jnp.maximum(jnp.sum(sizes), 1)
    return self._left * jnp.sum(sizes[self._members()]) / whole

  @property
  def is_everyone(self) -> bool:
    """Whether every client of the population is in it."""
    return self._program.cohort_size == self._data.num_clients

  def mean(
    self,
    one_client: Callable[..., Any],
    broadcast: Any,
    memory: Any = None,
    label: str = "",
  ) -> Any:
    """The weighted mean over the cohort of what each client sends.

    Args:
      one_client: `(worker, broadcast) -> message`, any pytree of arrays. With
        memory, `(worker, broadcast, own) -> (message, own)`.
      broadcast: what the server sends to every client.
      memory: what every client of the population keeps, leaves [M, ...]; `own`
        is one client's row. Rows of clients outside the cohort stay.
      label: under which name the cost of this phase is reported apart, such as
        "stage_start".

    Returns:
      The mean message; with memory, `(mean, memory)`.
    """
    self._check_rows(memory)
    phase, draw = self._phase, self._draw()
    visit = self._visitor(one_client, broadcast, memory is not None)

    def one_chunk(carry, slots):
      total, memory = carry
      place = slots.place
      gather = lambda leaf: leaf.at[place.row].get(mode="clip")
      own = jax.tree.map(gather, memory)
      message, own, notes = self._side_by_side(visit, slots, own)
      counts = _counts(place, notes)
      weight = jnp.where(counts, place.weight, 0)
      add = lambda total, sent: total + _weighted_sum(weight, sent)
      # A row that does not exist is not written.
      rows = jnp.where(counts, place.row, self._data.num_clients)
      keep = lambda leaf, own: leaf.at[rows].set(own, mode="drop")
      total = jax.tree.map(add, total, message)
      return (total, jax.tree.map(keep, memory, own)), notes

    message = self._shape_of_one(visit, draw.slots, memory)
    zeros = jax.tree.map(
      lambda leaf: jnp.zeros(leaf.shape, _mean_dtype(leaf)), message
    )
    carry = (zeros, memory)
    (total, memory), notes = self._over_chunks(one_chunk, carry, draw.slots)
    total = sharding.total(total)
    memory = _exchange(memory, draw.slots.place)
    notes = draw.by_place(sharding.gather(notes))
    self._note(phase, draw, notes, (broadcast, message, label))
    total = self._of_those_left(phase, draw.places, notes, total)
    self.memories += jax.tree.leaves(memory)
    return total if memory is None else (total, memory)

  def each(self, one_client: Callable[..., Any], broadcast: Any) -> Any:
    """What each client of the cohort sends, not averaged.

    Nobody is left out here: what is not finite, or of a client that drops out,
    is among it.

    Args:
      one_client: `(worker, broadcast) -> message`.
      broadcast: what the server sends to every client.

    Returns:
      The messages, leaves [C, ...], in the order of the cohort.
    """
    phase, draw = self._phase, self._draw()
    visit = self._visitor(one_client, broadcast, with_memory=False)

    def one_chunk(_, slots):
      message, _, notes = self._side_by_side(visit, slots, None)
      return None, (message, notes)

    _, sent = self._over_chunks(one_chunk, None, draw.slots)
    messages, notes = draw.by_place(sharding.gather(sent))
    message = self._shape_of_one(visit, draw.slots, None)
    self._note(phase, draw, notes, (broadcast, message, ""))
    return jax.tree.map(
      lambda leaf: leaf[: self._program.cohort_size], messages
    )

  def pick(
    self,
    one_client: Callable[..., Any],
    broadcast: Any,
    client: int | None = None,
    others_work: bool = False,
  ) -> Any:
    """What one client, drawn uniformly from the cohort, sends.

    Drawn from those of it that do not drop out; the round is lost if all do, or
    if what it sends is not finite.

    Args:
      one_client: `(worker, broadcast) -> message`.
      broadcast: what the server sends to that client.
      client: the number of a client of the population to take instead.
      others_work: whether the other clients of the cohort do the same, for
        nothing. The message is not changed by it.

    Returns:
      The message.
    """
    phase = self._phase
    if client is not None and others_work:
      raise ValueError(
        f"client={client} with others_work=True: the others are those of a "
        "cohort, of which one is drawn; give only one of them"
      )
    if client is not None and self._data.cohort is not None:
      raise ValueError(
        f"client={client}: with clients that are read round by round only "
        "those of the cohort are at hand"
      )
    if client is None:
      place, nobody = self._draw_place(jax.random.fold_in(self.key, phase))
    if others_work:
      messages = self.each(one_client, broadcast)
      message = jax.tree.map(lambda leaf: leaf[place], messages)
      self._reject(phase, ~_all_finite(message) & ~nobody)
      self.is_lost |= nobody
      return message
    visit = self._visitor(one_client, broadcast, with_memory=False)
    if client is None:
      draw = self._draw()
      message, notes = self._of_one_place(visit, draw, place)
      is_out = draw.places.is_out[place]
    else:
      places = self._places(jnp.array([client], jnp.int32))
      message, _, notes = self._alone(visit, self._slots(places), None)
      is_out = places.is_out[0]
    self._count(phase, notes, 1, (broadcast, message, ""))
    self._reject(phase, ~notes.is_finite & ~is_out)
    self.is_lost |= is_out
    return message

  def cond(
    self,
    predicate: jax.Array,
    on_true: Callable[[], Any],
    on_false: Callable[[], Any],
  ) -> Any:
    """One of two results, computing only that one.

    Args:
      predicate: [] bool, of the round alone: a grid over anything else would
        compute both.
      on_true: `() -> result`; may use the cohort's verbs, without traces.
      on_false: the same, with a result of the same shapes.

    Returns:
      The result.
    """
    before, traces = (self.totals, self.is_lost), self.traces

    def branch(compute):
      def run():
        (self.totals, self.is_lost), self.traces = before, traces
        result = compute()
        return result, (self.totals, self.is_lost)

      return run

    # Always traced, both of them: what follows is then the same phase, and so
    # draws the same batches, whichever was taken.
    with jax.disable_jit(False):
      result, (self.totals, self.is_lost) = lax.cond(
        predicate, branch(on_true), branch(on_false)
      )
    self.traces = traces
    return result

  def _draw(self):
    """What each verb begins with."""
    program, population = self._program, self._data.num_clients
    clients = fill_up(program, population, self._members())
    places = self._places(clients)
    draw = Draw(places, computing_order(program, places.size), slots=None)
    slots = self._slots(sharding.own(draw.in_order(places)))
    return draw._replace(slots=slots)

  def _check_rows(self, memory):
    """That there is a row for each client that may be here."""
    on_host = self._program.client_memory == "host"
    population, cohort = self._data.num_clients, self._program.cohort_size
    for leaf in jax.tree.leaves(memory):
      if len(leaf) != (cohort if on_host else population):
        raise ValueError(
          f"memory: has a leaf of {len(leaf)} rows for {population} clients; "
          "must be one for each, and the part of the state that "
          "`Algorithm.memory` names"
        )

  def _of_one_place(self, visit, draw, place):
    """The message and notes of one place, wherever it is computed."""
    turn = draw.by_place(jnp.arange(len(draw.places.client)))[place]
    shards = sharding.num_shards()
    slot = _take(draw.slots, (turn // shards)[None])
    message, _, notes = self._alone(visit, slot, None)
    return sharding.from_shard(turn % shards, (message, notes))

  def _members(self):
    """[C] int32, the clients of the round."""
    if self._data.cohort is not None:  # Drawn when their examples were read.
      return self._data.cohort
    return members(self._program, self._key, self._data.num_clients)

  def _places(self, clients):
    """The places of these clients."""
    program, data = self._program, self._data
    sizes = data.sizes.at[clients].get(mode="fill", fill_value=0)
    weights = sizes.astype(float)
    if not program.by_examples:
      weights = (clients < data.num_clients).astype(float)
    weights = weights / jnp.maximum(jnp.sum(weights), 1)
    # Of a memory on the host the cohort's rows are here, in its order.
    on_host = program.client_memory == "host"
    row = jnp.arange(len(clients), dtype=jnp.int32) if on_host else clients
    return Place(clients, row, sizes, weights, self._dropouts(clients))

  def _slots(self, places):
    """What these clients begin with; each call is a phase of its own."""
    phase_key = jax.random.fold_in(self._key, 1 + self._phase)
    self._phase += 1
    of_client = lambda client: jax.random.fold_in(phase_key, client)
    keys = jax.vmap(of_client)(places.client)
    return Slot(places, keys, self._data.where(places.client))

  def _with_batches(self, slots):
    """The same slots, with what was left to be drawn."""
    rows = self._data.rows_of(slots.where)
    batches = self._program.plan.draw(slots.key, rows, slots.place.size)
    return slots._replace(rows=rows, batches=batches)

  def _draw_place(self, key):
    """A place in the cohort of who does not drop out, and if nobody is left."""
    size = self._program.cohort_size
    if self._program.client_dropout == 0:
      return jax.random.randint(key, (), 0, size), jnp.array(False)
    is_out = self._dropouts(self._members())
    draws = jnp.where(is_out, -1, jax.random.uniform(key, (size,)))
    return jnp.argmax(draws), jnp.all(is_out)

  def _dropouts(self, clients):
    """[C] bool, which clients drop out, in all phases of the round alike."""
    rate = self._program.client_dropout
    if rate == 0:
      return jnp.zeros(len(clients), bool)
    key = jax.random.fold_in(self._key, 2 + MAX_PHASES)
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(clients)
    return jax.vmap(lambda key: jax.random.bernoulli(key, rate))(keys)

  def _visitor(self, one_client, broadcast, with_memory):
    """The function `(slot, own) -> (message, own, notes)` of one client."""

    def visit(slot, own):
      worker = Worker(self._program, self.round, slot, self._data)
      if with_memory:
        message, own = one_client(worker, broadcast, own)
      else:
        message = one_client(worker, broadcast)
      notes = Notes(
        worker.gradient_evaluations,
        worker.num_steps,
        jnp.sum(slot.batches.counts),
        _all_finite((message, own)),
        worker.traces,
      )
      return message, own, notes

    return visit

  def _side_by_side(self, visit, slots, own):
    """Maps `visit` over a chunk of clients: leaves [chunk, ...]."""
    if self._program.chunk > 1:
      return jax.vmap(visit)(self._with_batches(slots), own)
    # One client needs no batch axis, which would slow its products down.
    visited = self._alone(visit, slots, own)
    return jax.tree.map(lambda leaf: leaf[None], visited)

  def _alone(self, visit, slots, own):
    """What `visit` gives for the first of the slots."""
    slots, own = jax.tree.map(lambda leaf: leaf[:1], (slots, own))
    slots = self._with_batches(slots)
    return visit(*jax.tree.map(lambda leaf: leaf[0], (slots, own)))

  def _shape_of_one(self, visit, slots, memory):
    """The shapes of the message that one client sends."""
    alone = lambda slots, memory: self._alone(visit, slots, memory)[0]
    return jax.eval_shape(alone, slots, memory)

  def _over_chunks(self, one_chunk, carry, slots):
    """Scans `one_chunk` over chunks; what it gives is stacked over clients."""
    chunk = self._program.chunk
    if chunk == len(slots.key):
      return one_chunk(carry, slots)
    split = lambda leaf: leaf.reshape(-1, chunk, *leaf.shape[1:])
    carry, out = lax.scan(one_chunk, carry, jax.tree.map(split, slots))
    join = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])
    return carry, jax.tree.map(join, out)

  def _of_those_left(self, phase, places, notes, total):
    """The mean over those that count, from the weighted sum over them."""
    counts, has_weight = _counts(places, notes), places.weight > 0
    left = jnp.sum(jnp.where(counts, places.weight, 0))
    is_short = jnp.any(has_weight & ~counts)
    # Exactly as it is where nobody is left out.
    divisor = jnp.where(is_short & (left > 0), left, 1)
    self._left = jnp.where(is_short, left, 1)
    rejected = ~notes.is_finite & ~places.is_out
    rejected &= places.client < self._data.num_clients
    self._reject(phase, rejected, is_short & (left == 0))
    mean = lambda leaf: leaf / divisor.astype(leaf.dtype)
    return jax.tree.map(mean, total)

  def _reject(self, phase, rejected, is_lost=None):
    """Counts those whose message was rejected; by default that loses all."""
    number = jnp.sum(rejected).astype(jnp.float32)
    self.totals = self.totals._replace(
      rejected=self.totals.rejected.at[phase].add(number)
    )
    self.is_lost |= jnp.any(rejected) if is_lost is None else is_lost

  def _note(self, phase, draw, notes, exchange):
    """Writes down what a phase of all clients took."""
    program = self._program
    # As they are computed: by device, and there chunk by chunk.
    steps = draw.in_order(notes.num_steps)
    steps = jnp.swapaxes(steps.reshape(-1, sharding.num_shards()), 0, 1)
    by_chunk = jnp.max(steps.reshape(-1, program.chunk), 1)
    computed = jnp.sum(by_chunk) * program.chunk
    self.totals = self.totals._replace(
      examples=self.totals.examples + jnp.sum(notes.examples),
      computed=self.totals.computed + computed * program.plan.batch_size,
    )
    self._count(phase, notes, program.cohort_size, exchange)
    cohort = lambda leaf: leaf[: program.cohort_size]
    self.traces |= jax.tree.map(cohort, notes.traces)

  def _count(self, phase, notes, visits, exchange):
    """Adds up gradients and visits, and what one visit exchanges."""
    if phase >= MAX_PHASES:
      raise ValueError(f"round: has more than {MAX_PHASES} phases")
    broadcast, message, label = exchange
    self._program.phases[phase] = Phase(
      tree_bytes(broadcast), tree_bytes(message), label
    )
    totals, taken = self.totals, jnp.sum(notes.gradient_evaluations)
    self.totals = totals._replace(
      gradient_evaluations=totals.gradient_evaluations.at[phase].add(taken),
      visits=totals.visits.at[phase].add(visits),
    )


def _all_finite(tree):
  """[] bool; what is whole, or a random key, always is."""
  is_float = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact)
  leaves = [leaf for leaf in jax.tree.leaves(tree) if is_float(leaf)]
  finite = [jnp.all(jnp.isfinite(leaf)) for leaf in leaves]
  return jnp.all(jnp.array(finite)) if finite else jnp.array(True)


def _counts(places, notes):
  """[C] bool, whose messages count."""
  return notes.is_finite & ~places.is_out


def _exchange(memory, places):
  """Memories in which each device has written the rows of its own clients."""
  if sharding.num_shards() == 1 or memory is None:
    return memory
  read = lambda leaf: leaf.at[places.row].get(mode="clip")
  rows, values = sharding.gather((places.row, jax.tree.map(read, memory)))
  write = lambda leaf, values: leaf.at[rows].set(values, mode="drop")
  return jax.tree.map(write, memory, values)


def _mean_dtype(leaf):
  """The type of a mean: the leaf's own, or float where that is whole."""
  return jnp.result_type(leaf.dtype, float)


def _weighted_sum(weight, leaf):
  """[C], [C, ...] -> [...]; what weighs nothing counts nothing, even NaN."""
  weight = weight.astype(_mean_dtype(leaf)).reshape(-1, *[1] * (leaf.ndim - 1))
  # A place for no client takes steps too, where all take equally many.
  return jnp.sum(jnp.where(weight > 0, weight * leaf, 0), axis=0)


def members(program: Program, key: jax.Array, num_clients: int) -> jax.Array:
  """[C] int32, the clients of a round, by its key."""
  if program.cohort_size == num_clients:
    return jnp.arange(num_clients, dtype=jnp.int32)
  # Uniform without replacement.
  return first_of_shuffle(key, 0, num_clients, program.cohort_size)


def members_of_round(
  program: Program, seed: jax.Array, round: jax.Array, num_clients: int
) -> jax.Array:
  """[C] int32, the same as the program itself draws; for use on the host."""
  key = jax.random.fold_in(jax.random.key(seed), round)
  return members(program, key, num_clients)


def fill_up(program: Program, num_clients: int, clients: jax.Array):
  """[C] with places for no client, for whole chunks on every device."""
  unit = program.chunk * program.layout.client_devices
  padding = (0, -program.cohort_size % unit)
  return jnp.pad(clients, padding, constant_values=num_clients)


def computing_order(program: Program, sizes: jax.Array) -> jax.Array | None:
  """The order in which the places of a cohort are computed.

  By size where that differs, so that those of a chunk, and what devices have to
  do at a time, are of a length and little of it is padding.

  Args:
    program: static settings.
    sizes: [C] examples of each place.

  Returns:
    [C] places, or None for their own order.
  """
  at_once = program.chunk * program.layout.client_devices
  if program.plan.common_steps is not None or at_once >= len(sizes):
    return None
  return jnp.argsort(-sizes, stable=True)
