"""What a rule or an algorithm can be tuned by, as the registries tell it."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple


class Hyperparameter(NamedTuple):
  """A numeric argument of a factory.

  Attributes:
    name: of the argument.
    default: its default; a bool marks a switch, which is not tuned.
    help: what it is, with its unit.
    interval: the values allowed, such as "(0, inf)" or "[0, 1)".
  """

  name: str
  default: float | bool
  help: str
  interval: str = "(-inf, inf)"

  def check(self, value: float, flag: str | None = None) -> None:
    """Raises ValueError if the value is not allowed.

    Args:
      value: to be checked.
      flag: what to call the hyperparameter in the message.
    """
    low, high = (float(end) for end in self.interval[1:-1].split(","))
    above = value >= low if self.interval[0] == "[" else value > low
    below = value <= high if self.interval[-1] == "]" else value < high
    # An infinite value is allowed only where the interval is closed there.
    if not (above and below) or math.isnan(value):
      raise ValueError(
        f"{flag or self.name}={value:g}: must be in {self.interval}"
      )


class Choice(NamedTuple):
  """An entry of a registry.

  Attributes:
    factory: makes the rule or the algorithm.
    help: one line.
    hyperparameters: what it can be tuned by.
  """

  factory: Callable[..., Any]
  help: str
  hyperparameters: tuple[Hyperparameter, ...] = ()
