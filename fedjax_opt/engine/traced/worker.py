"""One client in one round: its local steps and gradients, see `Worker`."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.typing import ArrayLike

from fedjax_opt import optimizers
from fedjax_opt.arrays import counters, running_statistics, trees
from fedjax_opt.base import ClientRule, LossFn, Params, grad_fn_of
from fedjax_opt.checks import functions
from fedjax_opt.data import lists
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced.precision import (
  computed_loss,
  local_model,
  master_model,
)

# A worker's own key is its client's key, folded with this number. An epoch of
# this number, of more than four thousand in a round, would have the same key.
_OWN_KEY = 0x0FF1


class Arrival(NamedTuple):
  """How a client takes part on a schedule; stacked, leaves [C].

  A field is None if it is the same for all clients in all rounds.
  """

  draw: jax.Array | None = None  # [C] int32, see `schedules.Timetable.draws`
  is_taken: jax.Array | None = None  # [C] bool, whether its message is taken
  steps: jax.Array | None = None  # [C] int32, local steps that it has done
  staleness: jax.Array | None = None  # [C] int32, versions since it started
  slot: jax.Array | None = None  # [C] int32, where its version is kept
  is_last: jax.Array | None = None  # [C] bool, no later place has this client


class Client(NamedTuple):
  """One client of a cohort; stacked, leaves [C, ...].

  A cohort is padded to whole chunks on every device with clients that do not
  exist. Such a client has the number M, the weight 0 and a true `is_out`.
  """

  number: jax.Array  # [C] int32, in the population
  size: jax.Array  # [C] int32, its examples
  weight: jax.Array  # [C] float, in means
  is_out: jax.Array  # [C] bool, whether it has dropped out of the round
  state_row: jax.Array  # [C] int32, the row of what it keeps
  arrival: Arrival | None = None  # From a schedule, else None.
  # The fields below are set only for the clients that this device computes.
  # `rows` and those after it are large, and are set for one chunk at a time.
  location: jax.Array | None = None  # [C] int32, where its examples are
  key: jax.Array | None = None  # [C] random key of this client in this phase
  rows: jax.Array | None = None  # [C, n_max] int32, its rows of the pool
  batches: jax.Array | None = None  # [C, K, B] int32, the rows of each step
  batch_sizes: jax.Array | None = None  # [C, K] int32, how many are examples
  num_steps: jax.Array | None = None  # [C] int32, local steps


# Examples in a chunk of a mean gradient: enough for large matrix products, and
# few enough for any memory.
_EXAMPLES_AT_ONCE = 512


class Worker:
  """One client in one round, as an algorithm sees it.

  Attributes:
    client: [] int32, the number of the client in the population.
    round: [] int32, the round; on an asynchronous schedule the round from whose
      model the client started.
    key: [] random key of this client in this phase, for the algorithm's own
      draws. `sample_gradient` draws from it too; fold a number into it to draw
      anything else beside that.
    size: [] int32, its examples.
    num_steps: [] int32, the local steps of the client.
    gradient_evaluations: [8], gradients traced so far, in examples; a counter,
      see `counters`. Those that a rule takes of `value_fn` are not in it.
    traces: {name: [K]}, the traced fields of its rule's state, from the last
      `descend`.
    gradient_counts: pairs (number of gradients, their examples). Examples are
      None for a local batch, "all" for all of the client's, or a number.
  """

  def __init__(
    self,
    config: Config,
    round: jax.Array,
    client: Client,
    examples: dict[str, jax.Array],
    state: Any,
  ):
    """A cohort makes it, once for each trace of `one_client`.

    Args:
      config: static options.
      round: [] int32.
      client: leaves of one client, without the axis [C].
      examples: {name: [N, ...]}, the pool.
      state: what the client keeps; None if nothing.
    """
    self.client = client.number
    self.round = round
    # Batches use the client's key folded with an epoch's number, 0, 1, ...
    # Losses use it folded with 1 or 2, then with the number of a step or chunk.
    # So epochs 1 and 2 have keys that are also parents of those of losses; the
    # next change of `STREAMS` can give losses numbers that no epoch has.
    self.key = jax.random.fold_in(client.key, _OWN_KEY)
    self.size = client.size
    self.num_steps = client.num_steps
    self._state = state
    self.gradient_evaluations = counters.zero()
    self.traces = {}
    self.gradient_counts: list[tuple[int, Any]] = []
    self._config = config
    self._client = client
    self._pool = examples

  @property
  def state(self) -> Any:
    """The client's state, of the structure of `Algorithm.init_client`.

    Raises:
      ValueError: if the algorithm has no `init_client`.
    """
    return functions.checked_state(self._state)

  @property
  def staleness(self) -> ArrayLike:
    """[] int32, server steps since the version that the client started from.

    It is 0 unless the schedule is asynchronous.
    """
    arrival = self._client.arrival
    is_fresh = arrival is None or arrival.staleness is None
    return np.int32(0) if is_fresh else arrival.staleness

  @property
  def is_last(self) -> ArrayLike:
    """[] bool, whether this work decides the client's state.

    On an asynchronous schedule a client may come several times in one server
    step. Then only the last time counts.
    """
    arrival = self._client.arrival
    is_once = arrival is None or arrival.is_last is None
    return np.bool_(True) if is_once else arrival.is_last

  def descend(
    self, loss_fn: LossFn, rule: ClientRule, params: Params
  ) -> Params:
    """Takes the client's local steps, with a fresh state of the rule.

    Args:
      loss_fn: `(params, batch, rng) -> [B]`.
      rule: an optax transformation, or a function from the round to one. Its
        `update` gets these keyword arguments: `value` and `grad`, the mean loss
        of the batch and its gradient at the current point; `value_fn` (also as
        `obj_fn`) and `grad_fn`, functions that give them at any other point.
      params: where to start.

    Returns:
      The local model after the last step.
    """
    rule = optimizers.rule_at(rule, self.round)
    rule_state = optimizers.init(
      "client", rule, local_model(self._config.precision, params)
    )
    return self.descend_from(loss_fn, rule, params, rule_state)[0]

  def descend_from(
    self,
    loss_fn: LossFn,
    rule: optax.GradientTransformation,
    params: Params,
    rule_state: optax.OptState,
  ) -> tuple[Params, optax.OptState]:
    """Descends from a given state of the rule, such as a momentum.

    Returns:
      The local model and the rule's state after the last step, in the types of
      the arguments.
    """
    config = self._config
    start = local_model(config.precision, params)
    rule = optax.with_extra_args_support(rule)
    gradients_per_step = 1

    def step(k, carry):
      nonlocal gradients_per_step
      params, rule_state, traces = carry
      mean_loss = self._step_loss(loss_fn, k)
      value, grads = jax.value_and_grad(mean_loss)(params)
      extras, calls = extras_of(rule, mean_loss, params, value, grads)
      old_state = rule_state
      params, rule_state = optimizers.step(
        "client", rule, grads, rule_state, params, **extras
      )
      # The model and traced hyperparameters may have different types.
      if config.precision == "bfloat16":
        rule_state = trees.cast_like(rule_state, old_state)
      name = "client: the rule's state"
      functions.check_like(name, rule_state, old_state, "init")
      gradients_per_step = 1 + len(calls)
      record = lambda name, trace: trace.at[k].set(
        _traced_field(rule_state, name)
      )
      traces = {name: record(name, trace) for name, trace in traces.items()}
      return params, rule_state, traces

    blank = lambda name: jnp.full(
      config.plan.max_steps,
      jnp.nan,
      trees.at_least_float32(_traced_field(rule_state, name)).dtype,
    )
    traces = {name: blank(name) for name in config.trace}
    # A static number of steps needs no masking under vmap.
    num_steps = config.plan.common_steps or self.num_steps
    # Steps may overwrite their input. XLA would let them overwrite the caller's
    # model, also where a rule keeps it, and so copy that for each client.
    initial = *lax.optimization_barrier((start, rule_state)), traces
    end, rule_state, self.traces = lax.fori_loop(0, num_steps, step, initial)
    examples = jnp.sum(self._client.batch_sizes, dtype=jnp.int32)
    self._count_gradients(gradients_per_step, examples, None)
    return master_model(params, start, end), rule_state

  def gradient(self, loss_fn: LossFn, params: Params) -> Params:
    """The exact gradient of the client's mean loss over all its examples.

    It is computed in chunks of up to 512 examples, or of one batch if that is
    larger, so it needs the memory of one chunk. A model that normalizes by its
    batch does so by the chunk, which has some examples twice if it is not full.

    Args:
      loss_fn: `(params, batch, rng) -> [B]`.
      params: where to take it.

    Returns:
      The gradient; zero for a client without examples.
    """
    rows, size = self._client.rows, self._client.size
    return self._mean_gradients(
      loss_fn, (params,), rows, jnp.arange(len(rows)) < size, "all", size
    )[0]

  def batch_gradients(self, loss_fn: LossFn, *models: Params) -> list[Params]:
    """Gradients of the mean loss over all local batches, at several models.

    Args:
      loss_fn: `(params, batch, rng) -> [B]`.
      *models: where to take them, each on the same K B examples.

    Returns:
      One gradient for each model.
    """
    rows, sizes = self._client.batches, self._client.batch_sizes
    in_batch = jnp.arange(rows.shape[1]) < sizes[:, None]  # [K, B]
    return self._mean_gradients(
      loss_fn, models, rows.reshape(-1), in_batch.reshape(-1), None
    )

  def sample_gradient(
    self, loss_fn: LossFn, params: Params, num_examples: int
  ) -> Params:
    """The gradient over examples drawn uniformly with replacement.

    They are drawn from `key`, so two calls in a phase draw the same examples.

    Args:
      loss_fn: `(params, batch, rng) -> [B]`.
      params: where to take it.
      num_examples: how many to draw.

    Returns:
      The gradient of their mean loss; zero for a client without examples.
    """
    rows, size = self._client.rows, self._client.size
    positions = jax.random.randint(
      self.key, (num_examples,), 0, jnp.maximum(size, 1), jnp.int32
    )
    mask = jnp.full(num_examples, size > 0)
    return self._mean_gradients(
      loss_fn, (params,), rows[positions], mask, num_examples
    )[0]

  def _mean_gradients(self, loss_fn, models, rows, mask, counted_as, stop=None):
    """Gradients at each model of the mean loss over rows, in chunks.

    Gradients are zero at running statistics, which change by local steps, not
    by gradients. Rows [n] have the weight 1 where `mask` [n] is true, and 0
    elsewhere. From position `stop` on, `mask` is false. `counted_as` says which
    examples the rows are, see `gradient_counts`.
    """
    loss_fn = computed_loss(self._config.precision, loss_fn)
    batch_size = self._config.plan.batch_size
    chunk = max(1, _EXAMPLES_AT_ONCE // batch_size) * batch_size
    chunk = min(chunk, len(rows))
    padding = -len(rows) % chunk
    rows, mask = jnp.pad(rows, (0, padding)), jnp.pad(mask, (0, padding))
    rows = lists.fill_padding(rows, mask)

    def add(i, totals):
      batch = self._examples_at(
        lax.dynamic_slice_in_dim(rows, i * chunk, chunk)
      )
      in_chunk = lax.dynamic_slice_in_dim(mask, i * chunk, chunk)
      rng = jax.random.fold_in(jax.random.fold_in(self._client.key, 2), i)

      def loss(params):
        return jnp.sum(jnp.where(in_chunk, loss_fn(params, batch, rng), 0))

      grads = [jax.grad(loss)(model) for model in models]
      return jax.tree.map(jnp.add, totals, grads)

    # In half precision, sums over many examples overflow and lose digits.
    zeros_of = lambda leaf: trees.at_least_float32(jnp.zeros_like(leaf))
    zeros = [jax.tree.map(zeros_of, model) for model in models]
    if len(rows) == chunk:
      totals = add(0, zeros)
    else:
      num_chunks = -(-(len(rows) if stop is None else stop) // chunk)
      totals = lax.fori_loop(0, num_chunks, add, zeros)
    num_rows = jnp.sum(mask)
    self._count_gradients(len(models), num_rows.astype(jnp.int32), counted_as)
    mean = lambda leaf: leaf / jnp.maximum(num_rows, 1).astype(leaf.dtype)
    return [
      optax.tree.cast_like(
        running_statistics.zeroed(jax.tree.map(mean, total)), model
      )
      for total, model in zip(totals, models, strict=True)
    ]

  def _count_gradients(self, gradients, examples, counted_as):
    """Counts gradients of this many examples each, see `gradient_counts`."""
    self.gradient_counts.append((gradients, counted_as))
    spent = counters.times(counters.counter(examples), gradients)
    self.gradient_evaluations = counters.add(self.gradient_evaluations, spent)

  def _examples_at(self, rows):
    """{name: [B, ...]}, the pooled examples of these rows."""
    return {
      name: jnp.take(leaf, rows, axis=0, mode="clip")
      for name, leaf in self._pool.items()
    }

  def _step_loss(self, loss_fn, k):
    """The loss of step k's batch, `(params, draw=0) -> scalar`."""
    loss_fn = computed_loss(self._config.precision, loss_fn)
    rows = trees.row(self._client.batches, k)  # [B]
    batch = self._examples_at(rows)
    rng = jax.random.fold_in(jax.random.fold_in(self._client.key, 1), k)
    is_plain_mean = self._config.plan.fills_all_steps
    count = trees.row(self._client.batch_sizes, k)
    mask = jnp.arange(len(rows)) < count

    def mean_loss(params, draw=0):
      draw_rng = jax.random.fold_in(rng, draw) if draw else rng
      losses = loss_fn(params, batch, draw_rng)
      if is_plain_mean:
        return jnp.mean(losses)
      losses = jnp.where(mask, losses, 0)
      return jnp.sum(losses) / jnp.maximum(count, 1)

    return mean_loss


def _traced_field(rule_state, name):
  """A field of a rule's state, at any depth of a chain of rules."""
  return jnp.asarray(optimizers.traced_field(rule_state, name))


def extras_of(
  rule: optax.GradientTransformationExtraArgs,
  mean_loss: Callable[..., jax.Array],
  params: Params,
  value: jax.Array,
  grads: Params,
) -> tuple[dict[str, Any], list[None]]:
  """The keyword arguments that `rule.update` is given in a local step.

  Optax's own line searches, SAM and others take these arguments.

  Args:
    rule: the client's rule.
    mean_loss: `(params, draw=0) -> scalar`, the loss of this step's batch. With
      another `draw` it draws other dropout masks.
    params: the current point.
    value: `mean_loss(params)`.
    grads: the gradient there.

  Returns:
    `value`, `grad`, and as functions of any point `value_fn`, `obj_fn` and
    `grad_fn`, all on this batch; those that the rule takes. All draw the same
    masks as the gradient did, except `grad_fn(point, draw=1)`. Also a list,
    which grows by one each time a call of `grad_fn` is traced.
  """
  calls = []

  # The names that optax's line searches and `contrib.sam` pass on.
  def value_fn(point, *, grad_fn=None, obj_fn=None):
    del grad_fn, obj_fn
    return mean_loss(point)

  def grad_fn(point, step=None, *, draw=0):
    del step
    calls.append(None)
    draw_loss = functools.partial(mean_loss, draw=draw) if draw else mean_loss
    return grad_fn_of(draw_loss, params)(point)

  extras = {
    "value": value,
    "grad": grads,
    "value_fn": value_fn,
    "obj_fn": mean_loss,
    "grad_fn": grad_fn,
  }
  # An `update` without `**extra_args` gets only the arguments that it names.
  parameters = inspect.signature(rule.update).parameters
  if not any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
    extras = {name: extras[name] for name in extras if name in parameters}
  return extras, calls
