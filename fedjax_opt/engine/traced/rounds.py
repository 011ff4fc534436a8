"""The loop over rounds, one round, and the evaluation of a model.

All of it is traced: `run_rounds` for one grid point becomes a part of the
compiled program, in which Python is not in the loop.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt import contract
from fedjax_opt.arrays import counters, frozen, target, trees
from fedjax_opt.base import LOSSES, Algorithm, Batch, State
from fedjax_opt.checks import functions
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced import versions
from fedjax_opt.engine.traced.cohort import Cohort
from fedjax_opt.engine.traced.mapping import RoundData, Segment
from fedjax_opt.engine.traced.replies import NO_ROW, Reply
from fedjax_opt.transforms import messages


def run_rounds(
  config: Config,
  algorithm: Algorithm,
  state: tuple[State, Any],
  key: jax.Array,
  data: ClientData,
  segment: Segment,
  first_round: jax.Array,
  num_rounds: jax.Array,
  secret_key: jax.Array | None = None,
  frozen_leaves: Any = None,
) -> tuple[tuple[State, Any], dict[str, jax.Array], dict[str, jax.Array]]:
  """Runs some rounds, the first of which has the number `first_round`.

  Args:
    config: static options.
    algorithm: the algorithm of this grid point.
    state: a pair: the server's state without its frozen leaves; the clients'
      states, leaves [M, ...]. If the clients' states are on the host: those of
      the cohort, leaves [C, ...].
    key: [] random key of the run.
    data: the clients in memory; of clients on disk only `sizes`.
    segment: the input that the host gives for these rounds, see `engine.feed`.
    first_round: [] int32.
    num_rounds: [] int32, traced, at most T = `config.segment_rounds`, so that
      one compiled program serves every segment of a run.
    secret_key: [] random key of these rounds, see `Cohort.secret_key`.
    frozen_leaves: see `frozen.leaves_of`; None if there are none.

  Returns:
    The state, counters {name: [8]}, and traces {name: [T, C, ...]}.
  """

  if segment.clients is None:
    segment = _drawn_ahead(config, key, data, first_round)

  @jax.jit  # Traced once for its shapes and the loop.
  def one_round(state, round):
    server, client_state = state
    round_data = _data_of_round(
      data, segment, round - first_round, client_state
    )
    keys = {"key": key, "secret_key": secret_key}
    server = frozen.join(server, frozen_leaves)
    (server, client_state), *outputs = _one_round(
      config, algorithm, server, keys, round, round_data
    )
    return (frozen.emptied(server), client_state), *outputs

  _, counts, traces = jax.eval_shape(one_round, state, first_round)
  names = list(counts)
  is_short = counters.fit(config.segment_rounds, config.cohort_size)
  add = jnp.add if is_short else counters.add
  # One array of all counters: a loop copies each array that it carries.
  pack = lambda counts: jnp.stack([counts[name] for name in names])  # [n, 8]
  blank = lambda leaf: jnp.zeros(
    (config.segment_rounds, *leaf.shape), leaf.dtype
  )

  def body(round, carry):
    state, total, all_traces = carry
    state, counts, traces = one_round(state, round)
    total = add(total, pack(counts))
    write = lambda rows, row: trees.with_row(rows, round - first_round, row)
    return state, total, jax.tree.map(write, all_traces, traces)

  carry = (state, pack(trees.zeros_of(counts)), jax.tree.map(blank, traces))
  state, total, traces = lax.fori_loop(
    first_round, first_round + num_rounds, body, carry
  )
  return state, {name: total[i] for i, name in enumerate(names)}, traces


# The most numbers of cohorts and batches that are drawn ahead.
_MOST_AHEAD = 1 << 22


def _drawn_ahead(config, key, data, first_round):
  """The segment of what its cohorts draw, see `Cohort.draws`.

  A round in the loop then has about ten kernels fewer, each of which a GPU
  takes some microseconds to start. It is empty on a processor, where this only
  compiles for longer; if the draws are many; and if clients are not computed
  all at once.
  """
  layout, plan = config.layout, config.plan
  per_client = config.max_size + plan.max_steps * plan.batch_size
  num_drawn = config.segment_rounds * config.cohort_size * per_client
  is_at_once = (
    layout.client_devices == 1 and config.client_chunk == config.cohort_size
  )
  if target.platform() == "cpu" or num_drawn > _MOST_AHEAD or not is_at_once:
    return Segment()

  def of_round(round):
    round_data = _data_of_round(data, Segment(), 0, None)
    return Cohort(config, key, round, round_data).draws()

  return jax.vmap(of_round)(first_round + jnp.arange(config.segment_rounds))


def _data_of_round(data, segment, i, client_state):
  """The data of the i-th round of a segment."""
  in_memory = RoundData(
    data.examples, data.sizes, data.indices, client_state=client_state
  )
  return in_memory._replace(**segment.of_round(i))


def _one_round(config, algorithm, server, keys, round, round_data):
  """One round: `((server, client_state), counts, traces)`."""
  part_shapes = None
  if config.max_update_norm is not None:
    part_shapes = messages.shapes_of_differences(algorithm, server)
  if round_data.write_slot is not None:
    server = versions.store_version(algorithm, server, round_data.write_slot)
    round_data = round_data._replace(versions=server.versions)
  cohort = Cohort(
    config, round=round, round_data=round_data, part_shapes=part_shapes, **keys
  )
  output = contract.call_function("round", algorithm, server, cohort)
  new_server, replies = _state_and_replies(output, cohort.phases)
  keeps = [reply.client_state is not None for reply in replies]
  if round_data.client_state is not None and not any(keeps):
    raise ValueError(
      "Algorithm.init_client: was given, but no client returns what it keeps; "
      "return ClientOutput(message, state=...), or leave init_client out"
    )
  new_server = trees.cast_like(new_server, server)
  name = "Algorithm.round: state"
  functions.check_like(name, new_server, server, "Algorithm.init")
  is_lost = functools.reduce(
    jnp.logical_or, [reply.is_lost for reply in replies], jnp.array(False)
  )
  # A lost round does not change the state.
  server = jax.tree.map(
    lambda old, new: jnp.where(is_lost, old, new), server, new_server
  )
  client_state = round_data.client_state
  for reply in replies:
    client_state = _store_client_state(client_state, reply, is_lost)
  counts = {"lost_rounds": counters.counter(is_lost)}
  traces = {}
  for reply in replies:
    for name, counter in reply.counts.items():
      if name in counts:
        counter = counters.add(counts[name], counter)
      counts[name] = counter
    names = set(traces) & set(reply.traces) - set(config.trace)
    if names:
      raise ValueError(
        f"ClientOutput.metrics: two phases have {min(names)!r}; give those of "
        "each phase names of their own"
      )
    traces |= reply.traces
  return (server, client_state), counts, traces


def _state_and_replies(output, phases):
  """What `round` returned, as `(state, [replies])`.

  Raises:
    ValueError: if it is not that, or lacks a reply.
  """
  is_pair = type(output) is tuple and len(output) == 2
  state, replies = output if is_pair else (None, None)
  replies = [replies] if isinstance(replies, Reply) else replies
  if (
    not is_pair
    or not isinstance(replies, tuple | list)
    or not all(isinstance(reply, Reply) for reply in replies)
  ):
    raise ValueError(
      "round: must return (state, reply), or (state, (reply, ...)) after "
      "several verbs; a reply is what a verb of the cohort returns, and its "
      "message is reply.value"
    )
  numbers = [reply.phase for reply in replies]
  # Without compilation `Cohort.cond` calls its verb twice.
  calls = set(phases) if jax.config.jax_disable_jit else phases
  if len(set(numbers)) < len(numbers) or len(set(phases)) < len(calls):
    raise ValueError(
      f"round: called verbs of the phases {phases} and returned replies of the "
      f"phases {numbers}; give each verb a phase of its own, such as "
      "cohort.mean(..., phase=1), and return each reply once"
    )
  missing = sorted(set(phases) - set(numbers))
  if missing:
    raise ValueError(
      f"round: the reply of phase {missing[0]} was not returned; return "
      "(state, (reply, ...)) with the replies of all verbs that were called"
    )
  return state, replies


def _store_client_state(client_state, reply, is_lost):
  """What clients keep, with new rows for those that counted."""
  if reply.client_state is None:
    return client_state
  rows = jnp.where(is_lost, NO_ROW, reply.state_rows)
  write = lambda leaf, new: leaf.at[rows].set(new, mode="drop")
  return jax.tree.map(write, client_state, reply.client_state)


def evaluate(
  config: Config,
  algorithm: Algorithm,
  server: State,
  data: ClientData,
  test: Batch | None,
  validation: Batch | None,
) -> dict[str, jax.Array]:
  """The metrics of the model that an algorithm has, {name: scalar}.

  Args:
    config: static options.
    algorithm: the algorithm of this grid point.
    server: its state.
    data: the clients in memory, or some of those on disk.
    test: pooled test examples, or None.
    validation: pooled validation examples, or None.
  """
  params = contract.evaluated_params(algorithm, server)
  if config.evaluate is None:
    return {}
  metrics = functions.checked_metrics(
    config.evaluate, params, data, test, validation
  )
  if algorithm.penalty is not None:
    penalty = contract.call_function("penalty", algorithm, params)
    checked = {"penalty": penalty}
    checked = functions.checked_scalars("Algorithm.penalty", checked)
    metrics |= {
      f"regularized_{name}": metrics[name] + checked["penalty"]
      for name in LOSSES
      if name in metrics
    }
  return metrics
