"""The clients of a round, as an algorithm sees them: the verbs of `Cohort`.

participants.py draws the clients. The work of one client is written with the
`Worker` of worker.py; mapping.py maps it over the clients; replies.py holds
what a verb returns.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt.arrays import sharding, trees
from fedjax_opt.base import client_output
from fedjax_opt.checks import functions
from fedjax_opt.checks.values import check_integer
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced import mapping, replies
from fedjax_opt.engine.traced.mapping import RoundData
from fedjax_opt.engine.traced.participants import MAX_PHASES, Participants
from fedjax_opt.engine.traced.replies import Reply
from fedjax_opt.engine.traced.worker import Worker


class PhaseWork(NamedTuple):
  """What a client is sent, does and sends in a phase."""

  gradient_counts: list[tuple[int, Any]]  # As a `Worker` has them.
  bytes_down: int
  bytes_up: int | None  # None if it depends on its data.


class Cohort:
  """The clients of one round, as an algorithm sees them.

  An algorithm describes what one client does as a function `one_client(worker,
  broadcast)`, which returns its message, any pytree, or a `ClientOutput`. The
  verbs `mean`, `each` and `pick` map it over the clients; each returns a
  `Reply`. Clients draw the same batches in verbs of the same `phase`, and fresh
  ones in another.

  A client that drops out, or whose message is not finite, is left out of the
  mean, with its weight; its state does not change. If no client is left, the
  round is lost: the engine keeps the server's state from before the round.

  Verbs, properties and `check_everyone` are for algorithms; `draws` is for the
  engine.

  Attributes:
    round: [] int32, the round.
    key: [] random key of this round, for the algorithm's own draws. `pick`
      folds the number of its phase into it; fold in a number from 8 on.
    clients: [C] int32, who takes part; M for an empty place, which only some
      samplers and schedules leave.
    config: the options of the run, see `engine.config.Config`: for example
      `config.num_clients` is M, `config.plan.max_steps` is K.
    phases: for the engine: numbers of the phases of all verbs that were called.
    work: for the engine: number of a phase -> its `PhaseWork`; None if it is
      not the same for all clients in all rounds.
    has_plain_means: whether `mean` is the weighted mean; an aggregator's is
      not.
  """

  has_plain_means = True

  def __init__(
    self,
    config: Config,
    key: jax.Array,
    round: jax.Array,
    round_data: RoundData,
    part_shapes: list[Any] | None = None,
    secret_key: jax.Array | None = None,
  ):
    """Draws the cohort of a round.

    Args:
      config: static options.
      key: [] random key of the run.
      round: [] int32.
      round_data: what this round sees of the population.
      part_shapes: what `messages.shapes_of_differences` returned; needed only
        if updates have a limit.
      secret_key: [] random key of several rounds, see the property.
    """
    self._drawn = Participants(config, key, round, round_data)
    self.clients, self.key = self._drawn.numbers, self._drawn.key
    self.config, self.round, self.phases = config, round, []
    self.work: dict[int, PhaseWork | None] = {}
    self._round_data, self._part_shapes = round_data, part_shapes
    self._secret_key = secret_key

  @property
  def secret_key(self) -> jax.Array:
    """[] random key of this round and grid point, which no seed determines.

    The key is made from the operating system's entropy during the run, and is
    not kept. So noise that is drawn from it cannot be computed again.

    Raises:
      ValueError: if the algorithm does not say `has_secret_noise`.
    """
    if self._secret_key is None:
      raise ValueError(
        "round: reads cohort.secret_key; give the algorithm "
        "has_secret_noise=True"
      )
    return jax.random.fold_in(self._secret_key, self.round)

  @property
  def staleness(self) -> jax.Array | np.ndarray:
    """[C] int32, the server's steps since the version that each client has.

    It is 0 unless the schedule is asynchronous.
    """
    arrival = self._round_data.arrival
    if arrival is None or arrival.staleness is None:
      return np.zeros(self.config.cohort_size, np.int32)
    return arrival.staleness

  @property
  def max_steps(self) -> int | jax.Array:
    """The most local steps of a client with this seed's clients.

    It is traced only if seeds differ; `config.plan.max_steps` is of all seeds.
    """
    plan = self.config.plan
    if not self.config.seeds_differ:
      return plan.max_steps
    return jnp.max(plan.num_steps(self._round_data.sizes))

  @property
  def mean_size(self) -> int | jax.Array:
    """Examples of a client of this seed, on average, rounded up."""
    if not self.config.seeds_differ:
      return math.ceil(self.config.mean_sizes[0])
    return -(-jnp.sum(self._round_data.sizes) // self.config.num_clients)

  @property
  def is_scaled(self) -> bool:
    """Whether the sampler changes the weights of the clients in means.

    A sampler that draws clients by weights does, as it may draw one twice.
    """
    return self._drawn.scale is not None

  @property
  def clip_norm(self) -> float | None:
    """The norm to which longer differences are clipped; None if none are."""
    config = self.config
    return config.max_update_norm if config.clips_updates else None

  @property
  def is_everyone(self) -> bool:
    """Whether each client of the population takes part in each round.

    A sampler that is a function is assumed to draw each client once.
    """
    config = self.config
    has_all = config.cohort_size == config.num_clients
    draws_all = not config.has_empty_places and not self.is_scaled
    if config.clock is not None:
      draws_all &= config.clock.is_everyone
    return has_all and draws_all and config.client_dropout == 0

  def check_everyone(self, name: str) -> None:
    """Checks that all clients take part in each round of an algorithm.

    Args:
      name: of the algorithm.

    Raises:
      ValueError: if some may be left out.
    """
    if not self.is_everyone:
      raise ValueError(
        f"cohort_size: {name} needs all clients in each round; leave out "
        "cohort_size, client_dropout and samplers that draw only some clients"
      )

  def draws(self) -> mapping.Segment:
    """What this cohort has drawn, without the axis [T]."""
    first = mapping.with_batches(
      self.config, self._round_data, self._clients_of_phase(0)[2]
    )
    scale = self._drawn.scale if self.is_scaled else None
    return mapping.Segment(self.clients, scale, first)

  def mean(
    self,
    one_client: Callable[..., Any],
    broadcast: Any,
    *,
    phase: int = 0,
    label: str = "",
    bytes_down: int | None = None,
  ) -> Reply:
    """The weighted mean of the messages of the cohort's clients.

    Args:
      one_client: `(worker, broadcast) -> message`, or a `ClientOutput`.
      broadcast: what the server sends to every client.
      phase: number of the phase, from 0 to 7.
      label: name under which the cost of this phase is also reported
        separately, such as "stage_start".
      bytes_down: the bytes that the server sends to each client, if clients
        already have a part of `broadcast`; None for the size of all of it.

    Returns:
      The reply. Its `value` is the mean message.
    """

    types = []  # The message's, once it is traced.

    def summarize(clients, visited):
      message, state, records = visited
      types[:] = [jax.tree.map(replies.type_of_mean, message)]
      weight = replies.weights_of(clients, records)
      weight = jnp.where(replies.is_counted(clients, records), weight, 0)
      add_up = lambda leaf: replies.weighted_sum(weight, leaf)
      return jax.tree.map(add_up, message), (state, records)

    this_phase = replies.Phase(phase, label, broadcast, bytes_down)
    clients, order, total, (state, records) = self._visit_all(
      one_client, this_phase, summarize
    )
    is_normalized = not self.is_scaled
    mean = replies.mean_of_counted(
      sharding.sum_of_devices(total), clients, records, is_normalized
    )
    mean = jax.tree.map(lambda leaf, kind: leaf.astype(kind), mean, *types)
    visited = mean, state, records
    return replies.reply_of_all(
      self.config, visited, clients, this_phase, self._drawn.cohort_share, order
    )

  def average(self, reply: Reply, part: Any) -> Any:
    """A part of a reply's mean, with weights that sum to 1.

    If a sampler has scaled the weights, they sum to 1 only in expectation. This
    keeps the mean of differences unbiased. But a second moment, or a number of
    steps, would grow or shrink with their sum.

    Args:
      reply: what `mean` returned; its clients returned no weights.
      part: a part of the reply's value.
    """
    if not self.is_scaled:
      return part
    total = jnp.sum(reply.weights)
    total = jnp.where(total > 0, total, 1)
    return jax.tree.map(lambda leaf: leaf / total.astype(leaf.dtype), part)

  def each(
    self,
    one_client: Callable[..., Any],
    broadcast: Any,
    *,
    phase: int = 0,
    label: str = "",
    bytes_down: int | None = None,
  ) -> Reply:
    """The messages of the cohort's clients, not averaged.

    Args:
      one_client: see `mean`.
      broadcast: see `mean`.
      phase: see `mean`.
      label: see `mean`.
      bytes_down: see `mean`.

    Returns:
      The reply. Its `value` has all messages, leaves [C, ...], in the order of
      `clients`, also messages that do not count, see `Reply.counted`.
    """
    this_phase = replies.Phase(phase, label, broadcast, bytes_down)
    clients, order, _, (messages, state, records) = self._visit_all(
      one_client, this_phase, lambda clients, visited: (None, visited)
    )
    messages = trees.take(messages, slice(self.config.cohort_size))
    visited = messages, state, records
    return replies.reply_of_all(
      self.config, visited, clients, this_phase, self._drawn.cohort_share, order
    )

  def pick(
    self,
    one_client: Callable[..., Any],
    broadcast: Any,
    *,
    phase: int = 0,
    client: int | None = None,
    others_work: bool = False,
    label: str = "",
    bytes_down: int | None = None,
  ) -> Reply:
    """The message of one of the clients that do not drop out.

    It is drawn uniformly. The round is lost if all clients of the cohort drop
    out, or if the message is not finite. Unless the others work too, no traces
    and no metrics of that client are recorded.

    Args:
      one_client: see `mean`.
      broadcast: what the server sends to that client.
      phase: see `mean`.
      client: the number of a client of the population, instead of a drawn one.
      others_work: whether the other clients of the cohort do the same work; it
        is counted in the cost, and their messages are not used.
      label: see `mean`.
      bytes_down: see `mean`.

    Returns:
      The reply. Its `value` is the message; `counted` is for all clients whose
      message was computed.
    """
    this_phase = replies.Phase(phase, label, broadcast, bytes_down)
    if client is not None:
      self._check_client(client, others_work)
    if others_work:
      index, all_are_out = self._drawn.draw_index(phase)
      names = {"phase": phase, "label": label, "bytes_down": bytes_down}
      reply = self.each(one_client, broadcast, **names)
      is_lost = ~reply.counted[index] | all_are_out
      value = trees.take(reply.value, index)
      return dataclasses.replace(reply, value=value, is_lost=is_lost)
    self.work[phase] = None
    visit = self._visitor(one_client, this_phase)
    visit_one = functools.partial(
      mapping.visit_one, self.config, self._round_data, visit
    )
    if client is not None:
      picked = self._drawn.clients_of(jnp.array([client], jnp.int32), None)
      visited = visit_one(self._with_keys(picked, None, phase))
    else:
      index, _ = self._drawn.draw_index(phase)
      clients, order, computed = self._clients_of_phase(phase)
      # The position of the picked client in the order of computation.
      position = mapping.unsort(jnp.arange(len(clients.number)), order)[index]
      num_shards = sharding.num_shards()
      visited = visit_one(trees.take(computed, (position // num_shards)[None]))
      visited = sharding.from_shard(position % num_shards, visited)
      picked = trees.take(clients, index[None])
    return replies.reply_of_one(
      self.config, visited, picked, this_phase, self._drawn.cohort_share
    )

  def cond(
    self,
    predicate: jax.Array,
    verb: Callable[[], Reply],
    otherwise: Any,
  ) -> Reply:
    """A verb that only some rounds have.

    Args:
      predicate: [] bool, a function of `round` alone. In a grid, any other
        predicate would have the verb computed in every round.
      verb: `() -> Reply`, calls a verb of this cohort.
      otherwise: the value if the predicate is false, of the structure of the
        verb's value.

    Returns:
      The verb's reply, or a reply with the value `otherwise` and no cost.
    """
    old_phases = set(self.work)
    verb = jax.jit(verb)  # Traced once for its shapes and the branch.
    shapes = jax.eval_shape(verb)
    if jax.tree.structure(otherwise) != jax.tree.structure(shapes.value):
      raise ValueError(
        f"cohort.cond: otherwise is {functions.form_of(otherwise)}; must be as "
        f"the verb's value, {functions.form_of(shapes.value)}"
      )
    self.work |= dict.fromkeys(self.work.keys() - old_phases)
    skip = lambda: replies.blank_like(shapes, otherwise)
    return lax.cond(predicate, verb, skip)

  def _visit_all(self, one_client, phase, summarize):
    """Visits all clients of a phase, see `mapping.visit_in_chunks`.

    Returns:
      The clients, padded, and the order in which they were computed, see
      `_clients_of_phase`; the sums of this device; and the joined arrays of all
      devices, leaves [C', ...], in the order of the cohort.
    """
    clients, order, computed = self._clients_of_phase(phase.number)
    visit = self._visitor(one_client, phase)
    sums, arrays = mapping.visit_in_chunks(
      self.config, self._round_data, visit, computed, summarize
    )
    arrays = mapping.unsort(sharding.gather_rows(arrays), order)
    return clients, order, sums, arrays

  def _clients_of_phase(self, phase_number):
    """The clients of a phase.

    Returns:
      The clients of the cohort, padded, leaves [C', ...]; the order in which
      they are computed, None for the order of the cohort; and the clients that
      this device computes, in that order.
    """
    if phase_number == 0 and self._round_data.first_phase is not None:
      self.phases.append(phase_number)
      return self._round_data.first_phase, None, self._round_data.first_phase
    numbers = mapping.pad_cohort(self.config, self.clients)
    clients = self._drawn.clients_of(numbers, self._drawn.scale)
    order = mapping.computing_order(self.config, clients.size)
    in_order = clients if order is None else trees.take(clients, order)
    computed = self._with_keys(
      sharding.local_rows(in_order), self._round_data.starts, phase_number
    )
    return clients, order, computed

  def _with_keys(self, clients, starts, phase_number):
    """The same clients, with the locations of their examples and their keys."""
    if not 0 <= phase_number < MAX_PHASES:
      raise ValueError(f"phase={phase_number}: must be in [0, {MAX_PHASES})")
    if self._round_data.versions is not None and self.phases:
      raise ValueError(
        "schedule: clients that start from older versions have no second phase "
        "of a round; give a synchronous schedule, or another algorithm"
      )
    self.phases.append(phase_number)
    location = clients.number if starts is None else starts
    keys = self._drawn.keys_of(clients, phase_number)
    return clients._replace(location=location, key=keys)

  def _check_client(self, client, others_work):
    """Checks that `pick` can take this client."""
    # The value of a tracer is not known.
    if not isinstance(client, jax.core.Tracer):
      check_integer("client", client)
      if not 0 <= client < self.config.num_clients:
        raise ValueError(
          f"client={client}: must be in [0, {self.config.num_clients})"
        )
    if others_work:
      raise ValueError(
        f"client={client} with others_work=True: one of the cohort is drawn, "
        "and the others work; give only one of the two arguments"
      )
    if self._round_data.arrival is not None:
      raise ValueError(
        f"client={client}: a schedule says who takes part; leave schedule out"
      )
    if self._round_data.starts is not None or self.config.state_is_on_host:
      raise ValueError(
        f"client={client}: clients are read round by round here, so only those "
        "of the cohort are in memory; leave client out"
      )

  def _visitor(self, one_client, phase):
    """The function `(client, state) -> (message, state, record)` of one client.

    The state that it returns is None if the client keeps what it had.
    """
    config, round_data = self.config, self._round_data

    def visit(client, state):
      received, start_round = phase.broadcast, self.round
      if round_data.versions is not None:
        received = trees.take(round_data.versions, client.arrival.slot)
        start_round = start_round - client.arrival.staleness
      worker = Worker(config, start_round, client, round_data.examples, state)
      output = client_output(one_client, worker, received)
      message = jax.tree.map(jnp.asarray, output.message)
      message, is_long = replies.limited(config, message, self._part_shapes)
      new_state = replies.checked_client_state(output.state, state)
      output = output._replace(message=message, state=new_state)
      if output.bytes_up is None:
        output = output._replace(bytes_up=trees.num_bytes(message))
      is_known = isinstance(output.bytes_up, int | np.integer)
      bytes_up = int(output.bytes_up) if is_known else None
      work = PhaseWork(worker.gradient_counts, phase.num_bytes, bytes_up)
      self.work.setdefault(phase.number, work)  # When it is first traced.
      record = replies.client_record(config, output, worker, client, is_long)
      return message, new_state, record

    return visit
