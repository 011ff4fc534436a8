"""Which examples every client of a cohort sees at each of its local steps."""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt.arrays import trees
from fedjax_opt.arrays.draws import shuffle
from fedjax_opt.engine.batch_plan import BatchPlan


def draw_batches(
  plan: BatchPlan, keys: jax.Array, rows: jax.Array, sizes: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Draws the batches of some clients.

  Args:
    plan: how clients go through their examples.
    keys: [C], one random key per client.
    rows: [C, n_max] int32, each client's rows of the pooled examples.
    sizes: [C] int32, how many entries of a client's row are its examples; the
      others are padding.

  Returns:
    The pooled rows of each step, [C, K, B] int32; how many rows of each batch
    are examples, [C, K] int32; and how many steps each client takes, [C] int32.
    Rows and steps beyond these counts are padding. That of a batch repeats its
    examples, so a model that normalizes by its batch sees no other client's.
  """

  def of_client(key, size, rows):
    positions, counts = _positions(plan, key, size, len(rows))
    if not plan.is_full:
      place = jnp.arange(plan.batch_size) % jnp.maximum(counts, 1)[:, None]
      positions = jax.vmap(trees.row)(positions, place)
    num_steps = plan.num_steps(size)
    is_taken = jnp.arange(plan.max_steps) < num_steps
    return trees.row(rows, positions), jnp.where(is_taken, counts, 0), num_steps

  # For as long as the process lives, JAX keeps what it traced of each jitted
  # function of jax.numpy, for each shape. Here shapes differ from run to run.
  with jax.disable_jit():
    return jax.vmap(of_client)(keys, sizes, rows)


def _positions(plan, key, size, n_max):
  """[K, B] positions in a client's list, and [K] how many are examples."""
  if plan.replacement:
    shape = (plan.max_steps, plan.batch_size)
    most = jnp.maximum(size, 1)
    positions = jax.random.randint(key, shape, 0, most, jnp.int32)
    return positions, jnp.full(plan.max_steps, plan.batch_size)
  orders = jax.vmap(lambda epoch: shuffle(key, epoch, n_max, size))(
    jnp.arange(plan.max_epochs)
  )  # [epochs, n_max]
  if plan.max_epochs == 1:
    return _cut(plan, orders[0], size)
  per_epoch = jnp.maximum(plan.steps_per_epoch(size), 1)
  k = jnp.arange(plan.max_steps)
  # `//` would also handle negative numbers, which do not occur here.
  epoch = lax.div(k, jnp.full_like(k, per_epoch))  # [K]
  start = (k - epoch * per_epoch) * plan.batch_size
  position = start[:, None] + jnp.arange(plan.batch_size)  # [K, B]
  counts = jnp.clip(size - start, 0, plan.batch_size)
  # Indices past the end belong to padding; any valid index will do.
  epoch = jnp.minimum(epoch, plan.max_epochs - 1)
  position = jnp.minimum(position, n_max - 1)
  return orders[epoch[:, None], position], counts


def _cut(plan, order, size):
  """What `_positions` returns for a single epoch, by slices of its order."""
  k = jnp.arange(plan.max_steps)
  length = plan.max_steps * plan.batch_size
  padding = max(length - len(order), 0)
  positions = jnp.pad(order, (0, padding), mode="edge")[:length]
  counts = jnp.clip(size - k * plan.batch_size, 0, plan.batch_size)
  return positions.reshape(plan.max_steps, plan.batch_size), counts
