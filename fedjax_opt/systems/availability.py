"""When clients are there to be sent out.

A client is sent out only while it is available; what it has begun it finishes.
All of it is NumPy on the host, and the same for the same seed.
"""

import bisect
import math
import os
from collections.abc import Sequence

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.files import csv_files

_COLUMNS = ("client", "start", "end")


class Availability:
  """When M clients are available: alternating times, from `_times`.

  Attributes:
    num_clients: M.
  """

  def __init__(self, num_clients: int):
    """Of so many clients."""
    self.num_clients = num_clients

  def is_on(self, client: int, time: float) -> bool:
    """Whether a client is available.

    Args:
      client: its number.
      time: in seconds.
    """
    return self.next_on(client, time) <= time

  def next_on(self, client: int, time: float) -> float:
    """The first second from `time` on at which a client is available.

    Args:
      client: its number.
      time: in seconds.

    Returns:
      The second, `time` itself if it is available then; infinity if it never
      is again.
    """
    raise NotImplementedError


class _Cyclic(Availability):
  """Of each period a share, which starts at a random time for each client."""

  def __init__(self, num_clients, period, share, seed):
    super().__init__(num_clients)
    self._period, self._length = period, share * period
    begins = np.random.default_rng(seed).random(num_clients) * period
    self._begins = begins.tolist()

  def next_on(self, client, time):
    since = (time - self._begins[client]) % self._period
    left = self._period - since
    # Rounding may leave a rest before the second from which it is on.
    is_on = since < self._length or left <= 1e-12 * (time + self._period)
    return time if is_on else time + left


class _Markov(Availability):
  """Periods of exponential length, on and off in turn, drawn as needed."""

  _BLOCK = 64

  def __init__(self, num_clients, mean_on, mean_off, seed):
    super().__init__(num_clients)
    self._means, self._seed = (mean_on, mean_off), seed
    self._changes: dict[int, tuple[bool, list[float], np.random.Generator]] = {}

  def next_on(self, client, time):
    starts_on, changes, generator = self._of(client)
    while changes[-1] <= time:
      lengths = generator.exponential(size=self._BLOCK)
      is_odd = np.arange(self._BLOCK) % 2 != (len(changes) - 1) % 2
      lengths *= np.where(starts_on ^ is_odd, *self._means)
      changes += (changes[-1] + np.cumsum(lengths)).tolist()
    place = bisect.bisect_right(changes, time) - 1  # The period of `time`.
    is_on = starts_on ^ (place % 2 == 1)
    return time if is_on else changes[place + 1]

  def _of(self, client):
    """Whether it is on at first, the ends of its periods, and what draws."""
    if client not in self._changes:
      generator = np.random.default_rng([self._seed, client])
      mean_on, mean_off = self._means
      starts_on = bool(generator.random() < mean_on / (mean_on + mean_off))
      self._changes[client] = starts_on, [0.0], generator
    return self._changes[client]


class _Periods(Availability):
  """Given periods, perhaps again and again."""

  def __init__(self, periods, repeat):
    super().__init__(len(periods))
    self._periods, self._repeat = periods, repeat

  def next_on(self, client, time):
    starts, ends = self._periods[client]
    if not starts:
      return math.inf
    base = 0.0
    if self._repeat is not None:
      base = time // self._repeat * self._repeat
    place = bisect.bisect_right(ends, time - base)
    if place < len(starts):
      return max(time, base + starts[place])
    return math.inf if self._repeat is None else base + self._repeat + starts[0]


@fields.checked(
  num_clients=fields.whole(1),
  period="(0, inf)",
  share="(0, 1]",
  seed=fields.SEED,
)
def cyclic(
  num_clients: int, *, period: float = 100.0, share: float = 0.5, seed: int = 0
) -> Availability:
  """Each client is available for the same part of every period.

  Args:
    num_clients: M.
    period: seconds; such as those of a day.
    share: share of the period for which a client is available; in (0, 1].
    seed: of the second of the period from which each is.

  Returns:
    When clients are available.
  """
  return _Cyclic(num_clients, float(period), float(share), seed)


@fields.checked(
  num_clients=fields.whole(1),
  mean_on="(0, inf)",
  mean_off="(0, inf)",
  seed=fields.SEED,
)
def markov(
  num_clients: int,
  *,
  mean_on: float = 50.0,
  mean_off: float = 50.0,
  seed: int = 0,
) -> Availability:
  """Each client goes on and off by a Markov chain in continuous time.

  Periods have exponential lengths; at first clients are on with the chance that
  they have in the long run.

  Args:
    num_clients: M.
    mean_on: mean seconds for which a client is on.
    mean_off: mean seconds for which it is off.
    seed: of the periods.

  Returns:
    When clients are available.
  """
  return _Markov(num_clients, float(mean_on), float(mean_off), seed)


@fields.checked(num_clients=fields.whole(1), repeat="(0, inf)")
def periods(
  path: str | os.PathLike, num_clients: int, *, repeat: float | None = None
) -> Availability:
  """Availability of a trace.

  Args:
    path: of a CSV file with the columns client, start and end, the last two in
      seconds, a line for each period in which a client is available.
    num_clients: M. A client without a line is never available.
    repeat: seconds after which the table begins again; such as those of a day.
      None if nobody is available after the last end.

  Returns:
    When clients are available.

  Raises:
    ValueError: if the file cannot be read, lacks a column, or has a period that
      overlaps another one, ends before it starts or after `repeat`, or is of a
      client that does not exist.
  """
  _, numbers = csv_files.read(path, _COLUMNS)
  if not np.isfinite(numbers).all() or (numbers[0] % 1).any():
    raise ValueError(f"{path}: must have whole numbers of clients, and seconds")
  found = [([], []) for _ in range(num_clients)]
  for client, start, end in sorted(zip(*numbers, strict=True)):
    _add(path, found, int(client), start, end, repeat)
  return _Periods(found, repeat)


def _add(
  path: str | os.PathLike,
  found: Sequence[tuple[list[float], list[float]]],
  client: int,
  start: float,
  end: float,
  repeat: float | None,
) -> None:
  """Adds a period of a client."""
  where = f"{path}: client {client} from {start:g} to {end:g}"
  if not 0 <= client < len(found):
    raise ValueError(
      f"{where}: must be below the number of clients, {len(found)}"
    )
  starts, ends = found[client]
  least = ends[-1] if ends else 0.0
  if not least <= start < end <= (math.inf if repeat is None else repeat):
    limit = "" if repeat is None else f", and at most {repeat:g}"
    raise ValueError(
      f"{where}: must end after its start{limit}, and not overlap another one"
    )
  starts.append(start)
  ends.append(end)
