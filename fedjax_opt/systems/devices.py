"""How long clients take: their speed, their connections, and their work.

All of it is NumPy on the host, and the same for the same seed.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import Count, Seed
from fedjax_opt.checks.values import (
  check_count,
  check_in_interval,
  checked_array,
)
from fedjax_opt.files import csv_files
from fedjax_opt.systems.availability import Availability
from fedjax_opt.systems.distributions import Distribution

UNITS = ("step", "round")  # What seconds are of.


class Durations(NamedTuple):
  """How long a client is away when it is sent out, of M clients.

  Attributes:
    steps: [M] float64, batch gradients of each; 1 if seconds are of a round.
    whole: [M] float64, so many of `steps` are one local step.
    transfer: [M] float64, seconds of download and upload.
    seconds_per_step: [M] float64, if it is drawn once.
    redrawn: distributions of the seconds per step of groups of clients, if it
      is drawn each time; else empty.
    groups: [M] int32, the group of each client.
    seed: of who is sent out, and of what is drawn each time.
    availability: when clients can be sent out; None for always.
  """

  steps: np.ndarray
  whole: np.ndarray
  transfer: np.ndarray
  seconds_per_step: np.ndarray
  redrawn: tuple[Distribution, ...]
  groups: np.ndarray
  seed: int
  availability: Availability | None = None

  @property
  def typical(self) -> np.ndarray:
    """[M], seconds away; the mean of what is drawn each time."""
    seconds = self.seconds_per_step
    if self.redrawn:
      shares = (np.arange(1000) + 0.5) / 1000
      seconds = self.seconds(shares).mean(1)[self.groups]
    return self.steps * seconds + self.transfer

  def seconds(self, shares: np.ndarray) -> np.ndarray:
    """[G, n], seconds per step of each group, or [0, n] if drawn once.

    Args:
      shares: [n], random numbers in [0, 1), one each time.

    Raises:
      ValueError: if a distribution gives a number that is not positive, or
        infinite.
    """
    rows = [distribution.quantile(shares) for distribution in self.redrawn]
    for row in rows:
      _check_drawn(_COLUMNS[0], np.asarray(row))
    return np.reshape(rows, (len(rows), len(shares)))


class System(NamedTuple):
  """The devices of M clients.

  Attributes:
    seconds_per_step: [M] float64, of each client.
    bytes_down: [M] float64, bytes per second from the server; infinite if the
      download takes no time.
    bytes_up: [M] float64, bytes per second to the server.
    redrawn: distributions of groups, see `sample`; else empty.
    groups: [M] int32, the group of each client.
    seed: of all that is drawn.
    of: what the seconds count for: a local 'step', or a 'round' with any number
      of steps.
    availability: when clients can be sent out; None for always.
  """

  seconds_per_step: np.ndarray
  bytes_down: np.ndarray
  bytes_up: np.ndarray
  redrawn: tuple[Distribution, ...]
  groups: np.ndarray
  seed: int
  of: str = "step"
  availability: Availability | None = None

  @fields.checked()
  def when(self, availability: Availability) -> "System":
    """The same devices, sent out only when they are available.

    Args:
      availability: of as many clients, such as `systems.cyclic(num_clients)`.

    Returns:
      The system.

    Raises:
      ValueError: if it is of another number of clients.
      TypeError: if it is none.
    """
    if availability.num_clients != len(self.groups):
      raise ValueError(
        f"availability: is of {availability.num_clients} clients; must be of "
        f"{len(self.groups)}"
      )
    return self._replace(availability=availability)

  @fields.checked()
  def durations(
    self,
    steps: float | Sequence[float] | np.ndarray = 1,
    bytes_down: float = 0.0,
    bytes_up: float = 0.0,
    seed: Seed | None = None,
    per_step: float = 1.0,
  ) -> Durations:
    """How long the clients are away with such work.

    Args:
      steps: batch gradients, one or more for each local step; of all or of
        each client [M]; at least 1.
      bytes_down: what a client receives.
      bytes_up: what it sends.
      seed: of who is sent out, and of what is drawn each time. Default: that of
        the system.
      per_step: gradients of one local step. A part of a client's work has whole
        local steps.

    Returns:
      The durations.

    Raises:
      ValueError: if a number is out of range.
      TypeError: if it is none.
    """
    num_clients = len(self.groups)
    if np.ndim(steps):
      steps = checked_array("steps", steps, "[M]", interval="[1, inf)")
      check_count("steps", steps, num_clients, "clients")
    else:
      check_in_interval("steps", steps, "[1, inf)")
    for name, value in (("bytes_down", bytes_down), ("bytes_up", bytes_up)):
      check_in_interval(name, value, "[0, inf)")
    check_in_interval("per_step", per_step, "[1, inf)")
    transfer = bytes_down / self.bytes_down + bytes_up / self.bytes_up
    steps = np.broadcast_to(np.asarray(steps, np.float64), num_clients)
    unit = np.full(num_clients, per_step, np.float64)
    if self.of == "round":
      steps, unit = np.ones(num_clients), unit / steps
    return Durations(
      steps, unit, transfer, self.seconds_per_step, self.redrawn, self.groups,
      self.seed if seed is None else seed, self.availability,
    )  # fmt: skip


@fields.checked(of=fields.one_of(*UNITS))
def sample(
  num_clients: Count,
  seconds_per_step: Distribution | Sequence[Distribution],
  *,
  bytes_down: Distribution | None = None,
  bytes_up: Distribution | None = None,
  redraw: bool = False,
  of: str = "step",
  seed: Seed = 0,
) -> System:
  """Devices drawn from distributions.

  FADAS's clients take other seconds in each round, in groups from U(1, 2) to
  U(50, 80): give a list of four `uniform`, with `redraw` and `of='round'`.

  Args:
    num_clients: M.
    seconds_per_step: the distribution for one local step. Several distributions
      have equally many clients each, chosen at random.
    bytes_down: bytes per second from the server. Default: downloads take no
      time.
    bytes_up: bytes per second to the server. Default: uploads take no time.
    redraw: whether a client's seconds per step are drawn anew each time that it
      is sent out; by default they are drawn once.
    of: what the seconds count for: a local 'step', or a 'round' with any number
      of steps.
    seed: of all that is drawn.

  Returns:
    The system.

  Raises:
    ValueError: if a distribution gives a number that is not positive.
    TypeError: if an argument is of a wrong type.

  References:
    Wang et al., "FADAS: Towards Federated Adaptive Asynchronous Optimization",
    ICML 2024, section 6.
  """
  is_list = type(seconds_per_step) in (list, tuple)
  kinds = tuple(seconds_per_step) if is_list else (seconds_per_step,)
  for i, kind in enumerate(kinds):
    name = "seconds_per_step" + f"[{i}]" * is_list
    fields.KINDS[Distribution].check(name, kind)
  if not kinds:
    raise ValueError("seconds_per_step=[]: must be distributions")
  generator = np.random.default_rng(seed)
  order = generator.permutation(num_clients)
  groups = (order * len(kinds) // num_clients).astype(np.int32)
  shares = generator.random((3, num_clients))
  group_seconds = np.stack([kind.quantile(shares[0]) for kind in kinds])
  seconds = group_seconds[groups, np.arange(num_clients)]
  rates = [
    np.full(num_clients, np.inf) if kind is None else kind.quantile(row)
    for kind, row in zip((bytes_down, bytes_up), shares[1:], strict=True)
  ]
  for name, column in zip(_COLUMNS, (seconds, *rates), strict=True):
    _check_drawn(name, column, may_be_infinite=name != _COLUMNS[0])
  return System(seconds, *rates, kinds if redraw else (), groups, seed, of)


_COLUMNS = ("seconds_per_step", "bytes_down", "bytes_up")


def _check_drawn(name, values, may_be_infinite=False):
  is_wrong = ~(values > 0) | (np.isinf(values) & (not may_be_infinite))
  if is_wrong.any():
    kind = "positive" if may_be_infinite else "positive and finite"
    raise ValueError(f"{name}: drew {values[is_wrong][0]:g}; must be {kind}")


@fields.checked()
def from_csv(
  path: str | os.PathLike, num_clients: Count | None = None, seed: Seed = 0
) -> System:
  """Devices from a table.

  Args:
    path: of a CSV file with the columns seconds_per_step, bytes_down and
      bytes_up, the last two in bytes per second; a device a line.
    num_clients: M, each of which has a device drawn from the table. Default:
      one client a line, in their order.
    seed: of all that is drawn.

  Returns:
    The system.

  Raises:
    ValueError: if the file cannot be read, lacks a column, or has a number that
      is not positive.
  """
  frame, columns = csv_files.read(path, _COLUMNS)
  for name, column in zip(_COLUMNS, columns, strict=True):
    # Bytes that take no time are infinitely many per second.
    limit = np.inf if name == _COLUMNS[0] else np.nan
    is_right = (column > 0) & (column != limit)
    if not is_right.all():
      line = int(np.argmin(is_right)) + 2
      raise ValueError(
        f"{path}: line {line}: {name}={frame[name][line - 2]}: must be a "
        "positive number"
      )
  if not len(frame):
    raise ValueError(f"{path}: has no lines; must have one for each device")
  rows = np.arange(len(frame))
  if num_clients is not None:
    rows = np.random.default_rng(seed).integers(len(frame), size=num_clients)
  groups = np.zeros(len(rows), np.int32)
  return System(*(column[rows] for column in columns), (), groups, seed)
