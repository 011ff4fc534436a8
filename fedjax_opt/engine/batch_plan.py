"""How many local steps clients take, over how many epochs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt.checks.values import MAX_INT32


def default_batch_size(default: int, largest: int, is_fixed: bool) -> int:
  """B where none is given: no larger than the largest client.

  Args:
    default: B where clients are large enough.
    largest: examples of the largest client.
    is_fixed: whether batches are of one size whatever the clients are: they
      must be full, or are drawn with replacement.
  """
  return default if is_fixed else min(default, largest)


@dataclasses.dataclass(frozen=True)
class BatchPlan:
  """How clients go through their examples.

  Attributes:
    batch_size: B.
    epochs: passes over the client's examples; None if `steps` is given.
    steps: local steps; None if `epochs` is given.
    replacement: whether every batch is drawn with replacement.
    drop_remainder: whether the last batch of an epoch is dropped when it is
      not full.
    max_steps: K, the most steps any client takes.
    min_steps: the fewest steps any client takes.
    max_epochs: the most shuffles of its examples that any client needs.
    is_full: whether all batches have B examples.
  """

  batch_size: int
  epochs: float | None
  steps: int | None
  replacement: bool
  drop_remainder: bool
  max_steps: int = 0
  min_steps: int = 0
  max_epochs: int = 0
  is_full: bool = False

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
    """Checks the options against the sizes of the clients.

    Args:
      sizes: [...] examples of each client of the population.
      batch_size: examples in a batch.
      epochs: passes over the examples; one pass if `steps` is None as well.
      steps: local steps, instead of epochs.
      replacement: see the class.
      drop_remainder: see the class.

    Raises:
      ValueError: naming the invalid option.
    """
    largest = int(np.max(sizes))
    if batch_size > largest:
      raise ValueError(
        f"batch_size={batch_size}: must be at most {largest}, the examples of "
        "the largest client"
      )
    if epochs is not None and steps is not None:
      raise ValueError(
        f"local_epochs={epochs:g} and local_steps={steps}: give only one"
      )
    if epochs is None and steps is None:
      epochs = 1.0
    plan = cls(batch_size, epochs, steps, replacement, drop_remainder)
    _check_budget("local_epochs", epochs, largest)
    _check_budget("local_steps", steps, batch_size)
    num_steps = plan.num_steps(sizes)
    if not np.any(num_steps):
      raise ValueError(
        f"local_epochs={epochs:g}: gives no client a whole step, as batch_size="
        f"{batch_size} and the largest client has {largest} examples; must be "
        "larger"
      )
    per_epoch = np.maximum(plan.steps_per_epoch(sizes), 1)
    return dataclasses.replace(
      plan,
      max_steps=int(np.max(num_steps)),
      min_steps=int(np.min(num_steps)),
      max_epochs=int(np.max(-(-num_steps // per_epoch))),
      is_full=bool(
        replacement or drop_remainder or not np.any(sizes % batch_size)
      ),
    )

  @property
  def common_steps(self) -> int | None:
    """K, if every client of the population takes K local steps, else None."""
    return self.max_steps if self.min_steps == self.max_steps else None

  @property
  def fills_all_steps(self) -> bool:
    """Whether all batches are full and all clients take K steps."""
    return self.is_full and self.common_steps is not None

  def steps_per_epoch(self, sizes):
    """Batches in one pass; `sizes` may be a number or an array."""
    # In a program `//` would also handle negative numbers.
    divide = lax.div if isinstance(sizes, jax.Array) else np.floor_divide
    full = divide(sizes, np.int32(self.batch_size))
    if self.drop_remainder:
      return full
    return full + (full * self.batch_size < sizes)

  def num_steps(self, sizes):
    """Local steps of clients of these sizes, rounded up to whole steps."""
    xnp = jnp if isinstance(sizes, jax.Array) else np
    per_epoch = self.steps_per_epoch(sizes)
    if self.steps is not None:
      return xnp.where(per_epoch > 0, self.steps, 0)
    # Only the fraction is rounded up: 3 epochs are exactly 3 x per_epoch.
    full_epochs, fraction = divmod(self.epochs, 1.0)
    return int(full_epochs) * per_epoch + _part_of(per_epoch, fraction, xnp)


def _part_of(number, fraction, xnp):
  """ceil(fraction * number), int32, in integers: the same on all devices.

  In float32 it would be wrong from 2^24 on. The fraction is written in three
  digits of base 2^16, which are multiplied from the last digit on. A product
  that exceeds a whole number by less than 7 / 2^16 = 1e-4 counts as that
  number, as 0.1 * 30 does, which is not exactly 3 in floating point.

  Args:
    number: array of whole numbers from 0 to 2^31 - 1.
    fraction: a Python float in [0, 1).
    xnp: numpy or jax.numpy.
  """
  if not fraction:
    return 0
  number = xnp.asarray(number).astype(np.uint32)
  high, low = number >> np.uint32(16), number & np.uint32(0xFFFF)
  digits = int(fraction * 2**48)
  product, remainder = xnp.zeros_like(number), None
  for shift in (0, 16, 32):
    digit = np.uint32(digits >> shift & 0xFFFF)
    # (digit * number + product) / 2^16, of which no part reaches 2^32.
    remainder = low * digit + (product & np.uint32(0xFFFF))
    product = (
      high * digit + (product >> np.uint32(16)) + (remainder >> np.uint32(16))
    )
    remainder = remainder & np.uint32(0xFFFF)
  return (product + (remainder >= np.uint32(7))).astype(np.int32)


def _check_budget(name, value, examples):
  """Checks that int32 can count a client's examples in a round."""
  if value is not None and value * examples > MAX_INT32:
    raise ValueError(
      f"{name}={value:g}: gives a client more than {MAX_INT32} examples "
      "in a round; must be smaller"
    )
