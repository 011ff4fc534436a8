"""Learning rates that change over communication rounds."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import Count, NonNegative, NonNegativeFloat


@fields.checked(
  milestones=fields.sequence_of(
    fields.Scalar(interval="[0, inf)"),
    "a list or tuple of fractions of the rounds",
  )
)
def step_decay(
  round: NonNegative,
  num_rounds: Count,
  milestones: Sequence[float] = (0.5, 0.75),
  factor: NonNegativeFloat = 0.1,
) -> jax.Array:
  r"""The factor of a learning rate in a round.

  The Δ-SGD paper's SGD(↓) and SGDM(↓) divide the rate by 10 after 50 % of
  the rounds and again after 75 %.

  Args:
    round: [] int, the round, from 0.
    num_rounds: R, of the run; at least 1.
    milestones: fractions of R, non-negative; the rate drops in the first
      round at or past each.
    factor: by which each drop multiplies the rate; non-negative.

  Returns:
    A scalar: `factor` to the power of the drops so far.

  Raises:
    ValueError: if an argument is out of range.
    TypeError: if it is no number, or no whole one where it must be.

  Example:
    A client rule is allowed to be a function of the round:

    >>> client = lambda r: optax.sgd(0.1 * step_decay(r, num_rounds=500))
  """
  # The small term keeps 0.29 * 100 from being 29.000000000000004.
  starts = jnp.array([math.ceil(num_rounds * m - 1e-9) for m in milestones])
  return jnp.asarray(factor) ** jnp.sum(round >= starts)
