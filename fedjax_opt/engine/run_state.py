"""The state of a run between two calls of its program."""

from typing import Any, NamedTuple

from fedjax_opt.base import State


class RunState(NamedTuple):
  """The state of all points; or its shapes.

  In a grid of several points, leaves have the leading axes [settings, seeds].

  Attributes:
    server: the algorithm's state, without its frozen leaves.
    client_state: what every client keeps, leaves [M, ...]; None if nothing.
    frozen: the frozen leaves, see `frozen.leaves_of`: those that depend on the
      seed, [seeds, ...], and the others, of which there is one copy. All are
      others in a single run.
  """

  server: State
  client_state: Any
  frozen: tuple[Any, Any]
