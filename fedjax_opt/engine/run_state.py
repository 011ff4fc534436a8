"""The points of a run, and their state between two calls of the program.

In the engine a setting is one combination of hyperparameters, and a point is a
setting with a seed.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.base import Algorithm, State


class GridPoints(NamedTuple):
  """The points of a run: each setting with each seed.

  Attributes:
    make: `(**hyperparameters) -> Algorithm`.
    hyperparameters: {name: [settings]}; {name: scalar} of one point.
    num_settings: how many settings the grid has; 1 for a single run.
    seeds: the seeds of each setting.
    is_grid: whether results have an axis S, also for a grid of one point.
  """

  make: Callable[..., Algorithm]
  hyperparameters: Mapping[str, np.ndarray]
  num_settings: int
  seeds: tuple[int, ...]
  is_grid: bool

  @property
  def num_points(self) -> int:
    """S."""
    return self.num_settings * len(self.seeds)

  @property
  def has_axes(self) -> bool:
    """Whether arrays have the axes [settings, seeds]: not for one point."""
    return self.num_points > 1

  @property
  def seed_numbers(self) -> np.ndarray:
    """[seeds] uint32; [] of one point."""
    numbers = np.asarray(self.seeds, np.uint32)
    return numbers if self.has_axes else numbers[0]


class RunState(NamedTuple):
  """The state of all points; or its shapes.

  In a grid of several points, leaves have the leading axes [settings, seeds].

  Attributes:
    server: the algorithm's state, without its frozen leaves.
    client_state: what every client keeps, leaves [M, ...]; None if nothing.
    frozen: the frozen leaves, see `frozen.leaves_of`, as a pair: those that
      depend on the seed, [seeds, ...], and one copy of those that do not. In a
      single run the second has all of them.
  """

  server: State
  client_state: Any
  frozen: tuple[Any, Any]
