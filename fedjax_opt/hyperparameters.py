"""What a rule, an algorithm or a partition can be tuned by, and how far.

The registries list these; the command line and its checks are made from them.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple


class Hyperparameter(NamedTuple):
  """A numeric argument of a factory.

  Attributes:
    name: of the argument.
    default: its default; an int marks a whole number, a bool a switch, which
      is not tuned; None if the factory knows what to do without.
    help: what it is, with its unit.
    interval: the values allowed, such as "(0, inf)" or "[0, 1)".
    is_static: whether it is a whole number that shapes the program, so that it
      cannot be tuned in a grid.
  """

  name: str
  default: float | bool | None
  help: str
  interval: str = "(-inf, inf)"
  is_static: bool = False

  @property
  def is_tuned(self) -> bool:
    """Whether a grid can have several values of it."""
    return not (self.is_static or isinstance(self.default, bool))

  def check(self, value: float, flag: str | None = None) -> None:
    """Raises ValueError if the value is not allowed.

    Args:
      value: to be checked.
      flag: what to call the hyperparameter in the message.
    """
    low, high = (float(end) for end in self.interval[1:-1].split(","))
    above = value >= low if self.interval[0] == "[" else value > low
    below = value <= high if self.interval[-1] == "]" else value < high
    whole = self.is_static or isinstance(self.default, int)
    # An infinite value is allowed only where the interval is closed there.
    if not (above and below) or math.isnan(value) or (whole and value % 1):
      shown = value if isinstance(value, int) else f"{value:g}"
      wanted = "a whole number in" if whole else "in"
      raise ValueError(
        f"{flag or self.name}={shown}: must be {wanted} {self.interval}"
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


def check_seeds(seeds: Sequence[int]) -> None:
  """That seeds fit into 32 bits, as JAX's random keys take them.

  Raises:
    ValueError: naming the one that does not.
  """
  for seed in seeds:
    if not 0 <= seed < 1 << 32:
      raise ValueError(f"seed={seed}: must be from 0 to {(1 << 32) - 1}")


def check_choice(name: str, value: str, accepted: Iterable[str]) -> None:
  """Raises ValueError if a value is not among those accepted.

  Args:
    name: of the argument or flag.
    value: to be checked.
    accepted: all values allowed.
  """
  accepted = list(accepted)
  if value in accepted:
    return
  near = difflib.get_close_matches(str(value), accepted, 1)
  hint = f"; did you mean {near[0]}?" if near else ""
  raise ValueError(
    f"{name}={value!r}: must be one of {', '.join(accepted)}{hint}"
  )


def check_belongs(
  name: str, value: Any, kind: str, chosen: str, owners: Iterable[str]
) -> None:
  """Raises ValueError if a hyperparameter is none of what was chosen.

  Args:
    name: of the hyperparameter.
    value: its value.
    kind: of choice: "client", "partition", ...
    chosen: the name chosen.
    owners: all names of that kind which have the hyperparameter.
  """
  owners = list(owners)
  if chosen in owners:
    return
  belongs = f"belongs to {kind} {', '.join(owners)}" if owners else "unknown"
  raise ValueError(f"{name}={value}: {belongs}, not to {kind} {chosen}")
