"""The clients' learning rate over rounds."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_opt.rules import step_decay


class Schedule(NamedTuple):
  """What the clients' learning rate is multiplied with, round by round.

  Attributes:
    milestones: fractions of the rounds after which it is divided by 10.
    decay: the factor of one round; None if there is none.
  """

  milestones: tuple[float, ...] = ()
  decay: float | None = None

  @property
  def is_constant(self) -> bool:
    """Whether the rate stays as it is."""
    return not self.milestones and self.decay is None

  def factor(self, round: jax.typing.ArrayLike, rounds: int) -> jax.Array:
    """What to multiply the rate with in a round, of R rounds."""
    if self.decay is not None:
      # A power of `decay` in float32 would be 5e-5 off after 2,000 rounds.
      return jnp.exp(round * math.log(self.decay))
    return step_decay(round, rounds, self.milestones)
