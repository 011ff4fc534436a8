"""Equal tuning budgets: no method may try more settings than another."""

import math
from collections.abc import Mapping, Sequence

BUDGETS = ("equal", "unequal")


def num_settings(grid: Mapping[str, Sequence[float]]) -> int:
  """The settings of a grid {name: values}: all combinations; 1 of none."""
  return math.prod(len(values) for values in grid.values())


def check_equal(budgets: Mapping[str, int], hint: str) -> None:
  """Checks that all methods that are tuned try as many settings.

  A method with a single setting is not tuned; it may stand beside tuned ones.

  Args:
    budgets: method -> number of settings.
    hint: how to allow unequal ones, for the message.

  Raises:
    ValueError: naming methods whose budgets differ.
  """
  tuned = {method: n for method, n in budgets.items() if n > 1}
  if len(set(tuned.values())) < 2:
    return
  shown = ", ".join(f"{method} {n}" for method, n in tuned.items())
  raise ValueError(
    f"budget: methods try different numbers of settings ({shown}); give grids "
    f"of one size, or {hint}"
  )


def fresh_seeds(seeds: Sequence[int], number: int | None) -> list[int]:
  """Seeds that were not used for tuning.

  Args:
    seeds: those of tuning.
    number: how many; as many as those of tuning if None.
  """
  first = max(seeds) + 1
  return list(range(first, first + (len(seeds) if number is None else number)))
