"""Which examples every client of a cohort sees at each of its local steps."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Batches(NamedTuple):
  """The local steps of a cohort, as rows of the pooled examples.

  A client takes `num_steps` steps; those after it are padding. In a step the
  first `counts` rows are examples; those after them are padding.
  """

  rows: jax.Array  # [C, K, B] int32
  counts: jax.Array  # [C, K] int32
  num_steps: jax.Array  # [C] int32


@dataclasses.dataclass(frozen=True)
class BatchPlan:
  """How clients go through their examples; static, so part of the program.

  Attributes:
    batch_size: B.
    epochs: passes over the client's examples, any fraction; None if the number
      of steps is given.
    steps: local steps; None if the number of epochs is given.
    replacement: whether every batch is drawn afresh with replacement, instead
      of going through a new shuffle of all examples in each epoch.
    drop_remainder: whether the last batch of an epoch is dropped when it is
      not full.
    max_steps: K, the most steps any client takes.
    min_steps: the fewest steps any client takes.
    max_epochs: the most shuffles any client needs.
    full: whether all batches have B examples.
    even: whether besides all clients take K steps, so that nothing need be
      masked.
  """

  batch_size: int
  epochs: float | None
  steps: int | None
  replacement: bool
  drop_remainder: bool
  max_steps: int
  min_steps: int
  max_epochs: int
  full: bool
  even: bool

  @classmethod
  def create(
    cls,
    sizes: np.ndarray,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    replacement: bool = False,
    drop_remainder: bool = False,
  ) -> "BatchPlan":
    """Checks the settings against the sizes of the clients.

    Args:
      sizes: [...] examples of each client of the population.
      batch_size: examples in a batch.
      epochs: passes over the examples; one pass if `steps` is None as well.
      steps: local steps, instead of epochs.
      replacement: see the class.
      drop_remainder: see the class.

    Raises:
      ValueError: naming the setting that cannot be.
    """
    if batch_size < 1:
      raise ValueError(f"batch_size={batch_size}: must be at least 1")
    largest = int(np.max(sizes))
    if batch_size > largest:
      raise ValueError(
        f"batch_size={batch_size}: larger than every client; the largest has "
        f"{largest} examples"
      )
    if epochs is not None and steps is not None:
      raise ValueError(
        f"local_epochs={epochs:g} and local_steps={steps}: give only one"
      )
    if steps is not None and steps < 1:
      raise ValueError(f"local_steps={steps}: must be at least 1")
    if epochs is None and steps is None:
      epochs = 1.0
    if epochs is not None and not 0 < epochs < math.inf:
      raise ValueError(f"local_epochs={epochs:g}: must be above 0")
    plan = cls(
      batch_size,
      epochs,
      steps,
      replacement,
      drop_remainder,
      0,
      0,
      0,
      False,
      False,
    )
    num_steps = plan.num_steps(sizes)
    if not np.any(num_steps):
      raise ValueError(
        f"local_epochs={epochs:g}: gives no client a step, of batch_size="
        f"{batch_size} and at most {largest} examples; must be larger"
      )
    max_epochs = np.max(
      -(-num_steps // np.maximum(plan.steps_per_epoch(sizes), 1))
    )
    full = bool(replacement or drop_remainder or not np.any(sizes % batch_size))
    max_steps, min_steps = int(np.max(num_steps)), int(np.min(num_steps))
    return dataclasses.replace(
      plan,
      max_steps=max_steps,
      min_steps=min_steps,
      max_epochs=int(max_epochs),
      full=full,
      even=full and min_steps == max_steps,
    )

  @property
  def common_steps(self) -> int | None:
    """K, if every client of the population takes K local steps, else None."""
    return self.max_steps if self.min_steps == self.max_steps else None

  def steps_per_epoch(self, sizes):
    """Batches in one pass, for NumPy and JAX sizes alike."""
    if self.drop_remainder:
      return sizes // self.batch_size
    return -(-sizes // self.batch_size)

  def num_steps(self, sizes):
    """Local steps of clients of these sizes: epochs are rounded up."""
    xnp = jnp if isinstance(sizes, jax.Array) else np
    per_epoch = self.steps_per_epoch(sizes)
    if self.steps is not None:
      return xnp.where(per_epoch > 0, self.steps, 0)
    # The fraction is rounded up apart: 3 epochs are exactly 3 x per_epoch.
    whole, fraction = divmod(self.epochs, 1.0)
    rest = xnp.ceil(fraction * per_epoch - 1e-4).astype(np.int32)
    return int(whole) * per_epoch + rest

  def draw(
    self, keys: jax.Array, indices: jax.Array, sizes: jax.Array
  ) -> Batches:
    """Draws the batches of a cohort.

    Args:
      keys: [C], one random key per client.
      indices: [C, n_max] int32, each client's rows of the pooled examples.
      sizes: [C] int32, how many of them are its own.

    Returns:
      Their batches.
    """
    slots, counts = jax.vmap(self._slots)(keys, sizes, indices)  # [C, K, B]
    rows = jax.vmap(lambda own, slot: own[slot])(indices, slots)
    num_steps = self.num_steps(sizes)
    taken = jnp.arange(self.max_steps) < num_steps[:, None]
    return Batches(rows, jnp.where(taken, counts, 0), num_steps)

  def _slots(self, key, size, indices):
    """[K, B] positions in a client's list, and [K] how many are examples."""
    if self.replacement:
      shape = (self.max_steps, self.batch_size)
      slots = jax.random.randint(key, shape, 0, jnp.maximum(size, 1))
      return slots, jnp.full(self.max_steps, self.batch_size)
    n_max = indices.shape[0]
    orders = jax.vmap(lambda epoch: shuffle(key, epoch, n_max, size))(
      jnp.arange(self.max_epochs)
    )  # [epochs, n_max]
    per_epoch = jnp.maximum(self.steps_per_epoch(size), 1)
    k = jnp.arange(self.max_steps)
    epoch, start = k // per_epoch, k % per_epoch * self.batch_size  # [K]
    position = start[:, None] + jnp.arange(self.batch_size)  # [K, B]
    counts = jnp.clip(size - start, 0, self.batch_size)
    # Past the end are only padded steps and rows.
    epoch = jnp.minimum(epoch, self.max_epochs - 1)
    position = jnp.minimum(position, n_max - 1)
    return orders[epoch[:, None], position], counts


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

  # The largest key that is taken, and of those who have it the first.
  bound = lax.fori_loop(0, 31, try_bit, jnp.uint32(0))
  is_below, is_tied = sort_key < bound, sort_key == bound
  wanted = count - jnp.sum(is_below)
  taken = is_below | (is_tied & (jnp.cumsum(is_tied) <= wanted))
  positions = jnp.nonzero(taken, size=count)[0].astype(jnp.int32)
  return positions[jnp.argsort(sort_key[positions], stable=True)]
