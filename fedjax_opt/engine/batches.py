"""Which examples every client of a cohort sees at each of its local steps."""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt.engine.plan import BatchPlan


def draw_batches(
  plan: BatchPlan, keys: jax.Array, rows: jax.Array, sizes: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Draws the batches of some clients.

  Args:
    plan: how clients go through their examples.
    keys: [C], one random key per client.
    rows: [C, n_max] int32, each client's rows of the pooled examples.
    sizes: [C] int32, how many of them are its own.

  Returns:
    The pooled rows of each step, [C, K, B] int32; how many rows of each batch
    are examples, [C, K] int32; and how many steps each client takes, [C] int32.
    Rows and steps after these are padding.
  """
  of_client = lambda key, size, rows: _positions(plan, key, size, len(rows))
  positions, counts = jax.vmap(of_client)(keys, sizes, rows)  # [C, K, B]
  drawn = jax.vmap(lambda rows, positions: rows[positions])(rows, positions)
  num_steps = plan.num_steps(sizes)
  is_taken = jnp.arange(plan.max_steps) < num_steps[:, None]
  return drawn, jnp.where(is_taken, counts, 0), num_steps


def _positions(plan, key, size, n_max):
  """[K, B] positions in a client's list, and [K] how many are examples."""
  if plan.replacement:
    shape = (plan.max_steps, plan.batch_size)
    positions = jax.random.randint(key, shape, 0, jnp.maximum(size, 1))
    return positions, jnp.full(plan.max_steps, plan.batch_size)
  orders = jax.vmap(lambda epoch: shuffle(key, epoch, n_max, size))(
    jnp.arange(plan.max_epochs)
  )  # [epochs, n_max]
  if plan.max_epochs == 1:
    return _cut(plan, orders[0], size)
  per_epoch = jnp.maximum(plan.steps_per_epoch(size), 1)
  k = jnp.arange(plan.max_steps)
  epoch, start = k // per_epoch, k % per_epoch * plan.batch_size  # [K]
  position = start[:, None] + jnp.arange(plan.batch_size)  # [K, B]
  counts = jnp.clip(size - start, 0, plan.batch_size)
  # Only padding is beyond the end.
  epoch = jnp.minimum(epoch, plan.max_epochs - 1)
  position = jnp.minimum(position, n_max - 1)
  return orders[epoch[:, None], position], counts


def _cut(plan, order, size):
  """The batches of `_positions` of one epoch, without looking each up."""
  k = jnp.arange(plan.max_steps)
  length = plan.max_steps * plan.batch_size
  padding = max(length - len(order), 0)
  positions = jnp.pad(order, (0, padding), mode="edge")[:length]
  counts = jnp.clip(size - k * plan.batch_size, 0, plan.batch_size)
  return positions.reshape(plan.max_steps, plan.batch_size), counts


# Positions below this are packed into the low bits of the sorting key.
_PACKED = 1 << 12


def shuffle(key, epoch, n_max, size):
  """[n_max] int32: a random order of the positions below size, then the rest.

  The random bits of a position do not depend on n_max, so padding a client's
  list changes nothing.
  """
  position = lax.iota(jnp.int32, n_max)
  bits = jax.random.bits(jax.random.fold_in(key, epoch), (n_max,), jnp.uint32)
  last = jnp.where(position < size, jnp.uint32(0), jnp.uint32(1 << 31))
  sort_key = (bits >> 1) | last
  if n_max > _PACKED:
    return lax.sort_key_val(sort_key, position)[1]
  # Sorting one array is three times faster than sorting pairs, on CPU. The 19
  # random bits that stay leave two positions tied once in half a million.
  low = jnp.uint32(_PACKED - 1)
  return (
    lax.sort((sort_key & ~low) | position.astype(jnp.uint32)) & low
  ).astype(jnp.int32)


def first_of_shuffle(key, epoch, n_max, count):
  """[count] int32: how `shuffle(key, epoch, n_max, n_max)` begins.

  Of many positions only those with the smallest keys are sorted. Their bound is
  found bit by bit, by counting: an eighth of the time of sorting 100,000.
  """
  if n_max <= _PACKED:
    return shuffle(key, epoch, n_max, n_max)[:count]
  bits = jax.random.bits(jax.random.fold_in(key, epoch), (n_max,), jnp.uint32)
  sort_key = bits >> 1

  def try_bit(i, bound):
    higher = bound | (jnp.uint32(1 << 30) >> i.astype(jnp.uint32))
    return jnp.where(jnp.sum(sort_key < higher) < count, higher, bound)

  # All positions with a smaller key, and the first ones with the largest key.
  bound = lax.fori_loop(0, 31, try_bit, jnp.uint32(0))
  is_below, is_tied = sort_key < bound, sort_key == bound
  wanted = count - jnp.sum(is_below)
  taken = is_below | (is_tied & (jnp.cumsum(is_tied) <= wanted))
  positions = jnp.nonzero(taken, size=count)[0].astype(jnp.int32)
  return positions[jnp.argsort(sort_key[positions], stable=True)]
