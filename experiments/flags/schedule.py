"""The clients' learning rate over rounds: its flags, and what they mean."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.flags import command_line
from experiments.flags.registries import Flags, numbers
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.registry import Hyperparameter, check_choice
from fedjax_opt.rules import step_decay

_OPTIONS = {"step_decay": "client_milestones", "exponential": "client_decay"}


def define() -> None:
  """Defines them."""
  command_line.text(
    "client_schedule",
    "constant",
    "Clients' learning rate over rounds: constant; step_decay, divided by 10 "
    "at each of client_milestones; or exponential, multiplied with "
    "client_decay after each round.",
  )
  command_line.text(
    "client_milestones",
    None,
    "Fractions of the rounds after which step_decay divides the rate, between "
    "commas. Default: 0.5,0.75.",
  )
  command_line.number(
    "client_decay",
    None,
    "What exponential multiplies the rate with after each round. Default: "
    "0.998.",
  )


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

  def resolved(self) -> dict[str, Any]:
    """Flag -> value, of what was chosen besides `--client_schedule`."""
    if self.decay is not None:
      return {"client_decay": self.decay}
    if self.milestones:
      fractions = ",".join(f"{fraction:g}" for fraction in self.milestones)
      return {"client_milestones": fractions}
    return {}


_FRACTION = Hyperparameter(
  "client_milestones", 0.5, "fraction of the rounds", "(0, 1)"
)
_DECAY = Hyperparameter("client_decay", 0.998, "factor of a round", "(0, 1)")


def read(flags: Flags) -> Schedule:
  """The schedule that the flags choose.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  name = flags["client_schedule"]
  check_choice("client_schedule", name, ["constant", *_OPTIONS])
  for owner, option in _OPTIONS.items():
    if owner != name and flags[option] is not None:
      raise ValueError(
        f"{option}={flags[option]}: belongs to client_schedule {owner}, not to "
        f"{name}"
      )
  if name == "constant":
    return Schedule()
  if name == "exponential":
    given = flags["client_decay"]
    decay = _DECAY.default if given is None else given
    _DECAY.check(decay)
    return Schedule(decay=decay)
  given = flags["client_milestones"]
  fractions = numbers(
    "client_milestones", "0.5,0.75" if given is None else given
  )
  for fraction in fractions:
    _FRACTION.check(fraction)
  return Schedule(tuple(fractions))


def check(name: str, algorithm: str, client: str, has_rate: bool) -> None:
  """Checks that there is a rate that can change.

  Args:
    name: value of `--client_schedule`.
    algorithm: its name.
    client: name of the clients' rule.
    has_rate: whether that has a learning rate.

  Raises:
    ValueError: if there is none.
  """
  if name == "constant":
    return
  if not has_rate:
    raise ValueError(
      f"client_schedule={name!r}: client {client} has no learning rate that "
      "could drop; must be constant"
    )
  if not ALGORITHMS[algorithm].rate_may_drop:
    raise ValueError(
      f"client_schedule={name!r}: algorithm {algorithm} has one rate for all "
      "rounds; must be constant"
    )
