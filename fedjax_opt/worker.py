"""One client in one round: it takes the local steps, see `Worker`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_opt.base import ClientRule, LossFn, Params, grad_fn_of
from fedjax_opt.batches import Batches
from fedjax_opt.data.clients import ClientData
from fedjax_opt.precision import (
  computed_loss,
  keep_types,
  local_model,
  master_model,
)
from fedjax_opt.program import Program


class Place(NamedTuple):
  """One client's place in a cohort; stacked, leaves [C, ...].

  A cohort may be filled up with places for no client, to whole chunks on every
  device: they have number M, weight 0 and no steps.
  """

  client: jax.Array  # [C] int32
  row: jax.Array  # [C] int32, where in the memory what it keeps is
  size: jax.Array  # [C] int32, its examples
  weight: jax.Array  # [C] float, sums to 1
  is_out: jax.Array  # [C] bool, whether it drops out of the round


class Slot(NamedTuple):
  """What a client of a cohort works with; stacked, leaves [C, ...]."""

  place: Place
  key: jax.Array  # [C] random key of this client in this phase
  where: jax.Array  # [C] int32, what its data are found by, see `rows_of`
  # Both are drawn when it is its turn: they need more memory than the rest.
  rows: jax.Array | None = None  # [C, n_max] int32, of its examples
  batches: Batches | None = None


# Examples whose gradient is computed at once, where it is their mean that
# counts: enough for large matrix products, few enough for any memory.
_CHUNK = 512


class Worker:
  """One client in one round, as an algorithm sees it.

  Attributes:
    client: [] int32, its number in the population.
    round: [] int32, the round.
    key: [] random key of this client in this phase, for the algorithm's own
      draws.
    num_steps: [] int32, the local steps that it takes.
    gradient_evaluations: [] float32, those done so far, in examples.
    traces: {name: [K]} recorded so far.
  """

  def __init__(
    self, program: Program, round: jax.Array, slot: Slot, data: ClientData
  ):
    self.client = slot.place.client
    self.round = round
    # The key itself has been used to draw the batches, 1 and 2 for the losses.
    self.key = jax.random.fold_in(slot.key, 3)
    self.num_steps = slot.batches.num_steps
    self.gradient_evaluations = jnp.float32(0)
    self.traces = {}
    self._program = program
    self._slot = slot
    self._data = data

  def descend(
    self, loss_fn: LossFn, rule: ClientRule, params: Params
  ) -> Params:
    """Takes the client's local steps, with a fresh state of the rule.

    Args:
      loss_fn: `(params, batch, rng) -> [B]`.
      rule: an optax transformation, or a function from the round to one. Its
        `update` gets `value`, the mean loss of the batch, and `grad_fn`, its
        gradient at any other point.
      params: where to start.

    Returns:
      The local model after the last step.
    """
    if not isinstance(rule, optax.GradientTransformation):
      rule = rule(self.round)
    rule_state = rule.init(local_model(self._program.precision, params))
    return self.descend_from(loss_fn, rule, params, rule_state)[0]

  def descend_from(
    self,
    loss_fn: LossFn,
    rule: optax.GradientTransformation,
    params: Params,
    rule_state: optax.OptState,
  ) -> tuple[Params, optax.OptState]:
    """As `descend`, from a given state of the rule, such as a momentum.

    Returns:
      The local model and the rule's state after the last step, in the types of
      those given.
    """
    program = self._program
    start = local_model(program.precision, params)
    rule = optax.with_extra_args_support(rule)
    gradients_per_step = 1

    def step(k, carry):
      nonlocal gradients_per_step
      params, rule_state, traces = carry
      mean_loss = self._mean_loss(loss_fn, k)
      grad_fn, calls = _count_calls(grad_fn_of(mean_loss, params))
      value, grads = jax.value_and_grad(mean_loss)(params)
      before = rule_state
      updates, rule_state = rule.update(
        grads, rule_state, params, value=value, grad_fn=grad_fn
      )
      if program.precision == "bfloat16":
        rule_state = keep_types(rule_state, before)
      gradients_per_step = 1 + len(calls)
      params = optax.apply_updates(params, updates)
      record = lambda name, all: all.at[k].set(_field(rule_state, name))
      traces = {name: record(name, all) for name, all in traces.items()}
      return params, rule_state, traces

    blank = lambda name: jnp.full(
      program.plan.max_steps, jnp.nan, _field(rule_state, name).dtype
    )
    traces = {name: blank(name) for name in program.trace}
    # A number that the program knows needs no masking side by side.
    num_steps = program.plan.common_steps or self.num_steps
    end, rule_state, self.traces = lax.fori_loop(
      0, num_steps, step, (start, rule_state, traces)
    )
    examples = jnp.sum(self._slot.batches.counts).astype(jnp.float32)
    self.gradient_evaluations += gradients_per_step * examples
    return master_model(params, start, end), rule_state

  def gradient(self, loss_fn: LossFn, params: Params) -> Params:
    """The gradient of the client's own objective, the mean over its examples.

    Exact, and computed in chunks, so that it needs the memory of one.

    Args:
      loss_fn: `(params, batch, rng) -> [B]`.
      params: where to take it.

    Returns:
      The gradient; zero for a client that owns nothing.
    """
    rows, size = self._slot.rows, self._slot.place.size
    return self._mean_gradients(
      loss_fn, (params,), rows, jnp.arange(len(rows)) < size, size
    )[0]

  def batch_gradients(self, loss_fn: LossFn, *points: Params) -> list[Params]:
    """Gradients of the mean loss over all local batches, at several points.

    Args:
      loss_fn: `(params, batch, rng) -> [B]`.
      *points: where to take them, each on the same K B examples.

    Returns:
      One gradient for each point.
    """
    rows, counts = self._slot.batches.rows, self._slot.batches.counts
    in_batch = jnp.arange(rows.shape[1]) < counts[:, None]  # [K, B]
    return self._mean_gradients(
      loss_fn, points, rows.reshape(-1), in_batch.reshape(-1)
    )

  def sample_gradient(
    self, loss_fn: LossFn, params: Params, num_examples: int
  ) -> Params:
    """The gradient over examples drawn uniformly with replacement.

    Args:
      loss_fn: `(params, batch, rng) -> [B]`.
      params: where to take it.
      num_examples: how many to draw.

    Returns:
      The gradient of their mean loss; zero for a client that owns nothing.
    """
    rows, size = self._slot.rows, self._slot.place.size
    places = jax.random.randint(
      self.key, (num_examples,), 0, jnp.maximum(size, 1)
    )
    is_there = jnp.full(num_examples, size > 0)
    return self._mean_gradients(loss_fn, (params,), rows[places], is_there)[0]

  def _mean_gradients(self, loss_fn, points, rows, counts, stop=None):
    """Gradients at each point of the mean loss over rows, in chunks.

    Rows [n] weigh 1 where `counts` [n] is true and 0 elsewhere; at `stop` and
    after it none is.
    """
    loss_fn = computed_loss(self._program.precision, loss_fn)
    batch_size = self._program.plan.batch_size
    chunk = max(1, _CHUNK // batch_size) * batch_size
    chunk = min(chunk, len(rows))
    padding = -len(rows) % chunk
    rows, counts = jnp.pad(rows, (0, padding)), jnp.pad(counts, (0, padding))

    def add(i, totals):
      batch = self._examples(lax.dynamic_slice_in_dim(rows, i * chunk, chunk))
      mask = lax.dynamic_slice_in_dim(counts, i * chunk, chunk)
      rng = jax.random.fold_in(jax.random.fold_in(self._slot.key, 2), i)

      def loss(params):
        return jnp.sum(jnp.where(mask, loss_fn(params, batch, rng), 0))

      grads = [jax.grad(loss)(point) for point in points]
      return jax.tree.map(jnp.add, totals, grads)

    zeros = [optax.tree.zeros_like(point) for point in points]
    if len(rows) == chunk:
      totals = add(0, zeros)
    else:
      num_chunks = -(-(len(rows) if stop is None else stop) // chunk)
      totals = lax.fori_loop(0, num_chunks, add, zeros)
    number = jnp.sum(counts)
    self.gradient_evaluations += len(points) * number.astype(jnp.float32)
    mean = lambda leaf: leaf / jnp.maximum(number, 1).astype(leaf.dtype)
    return jax.tree.map(mean, totals)

  def _examples(self, rows):
    """{name: [B, ...]}, the pooled examples of these rows."""
    return {
      name: jnp.take(leaf, rows, axis=0, mode="clip")
      for name, leaf in self._data.examples.items()
    }

  def _mean_loss(self, loss_fn, k):
    """The loss of step k's batch, `params -> scalar`."""
    loss_fn = computed_loss(self._program.precision, loss_fn)
    rows = self._slot.batches.rows[k]  # [B]
    batch = self._examples(rows)
    rng = jax.random.fold_in(jax.random.fold_in(self._slot.key, 1), k)
    if self._program.plan.even:
      return lambda params: jnp.mean(loss_fn(params, batch, rng))
    count = self._slot.batches.counts[k]
    mask = jnp.arange(len(rows)) < count

    def mean_loss(params):
      losses = jnp.where(mask, loss_fn(params, batch, rng), 0)
      return jnp.sum(losses) / jnp.maximum(count, 1)

    return mean_loss


def _count_calls(fn):
  """The function, and a list that grows by one each time it is traced."""
  calls = []

  def counted(*args):
    calls.append(None)
    return fn(*args)

  return counted, calls


def _field(rule_state, name):
  """A field of the state of a rule, however deep in a chain."""
  value = optax.tree.get(rule_state, name)
  if value is None:
    raise ValueError(
      f"trace={name!r}: the client rule's state has no such field"
    )
  return jnp.asarray(value)
