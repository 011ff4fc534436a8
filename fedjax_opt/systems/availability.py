"""When clients are there to be sent out.

A client is sent out only while it is available, and finishes its work in any
case. All of this is NumPy on the host, and the same for the same seed.
"""

import bisect
import functools
import math
import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import Count, PositiveFloat, Seed
from fedjax_opt.files import csv_files

_COLUMNS = ("client", "start", "end")
_PERIODS_PER_BLOCK = 64  # Periods that are drawn at a time.


class Availability(NamedTuple):
  """When M clients are available.

  Attributes:
    num_clients: M.
    next_on: `(client, time) -> time`, the first second from then on at which a
      client is available: `time` itself if it is available then; infinity if it
      never is again.
  """

  num_clients: int
  next_on: Callable[[int, float], float]

  def is_on(self, client: int, time: float) -> bool:
    """Whether a client is available.

    Args:
      client: its number.
      time: in seconds.
    """
    return self.next_on(client, time) <= time


fields.KINDS[Availability] = fields.instance_of(
  Availability, "one of fedjax_opt.systems, such as systems.cyclic(100)"
)


@fields.checked(share="(0, 1]")
def cyclic(
  num_clients: Count,
  *,
  period: PositiveFloat = 100.0,
  share: float = 0.5,
  seed: Seed = 0,
) -> Availability:
  """Each client is available for the same part of every period.

  Args:
    num_clients: M.
    period: seconds of a period; such as those of a day.
    share: share of the period for which a client is available; in (0, 1].
    seed: of the second of the period from which each is.

  Returns:
    When clients are available.
  """
  starts = (np.random.default_rng(seed).random(num_clients) * period).tolist()
  period, length = float(period), float(share) * float(period)

  def next_on(client, time):
    since = (time - starts[client]) % period
    wait = period - since
    # Rounding may leave a rest before the second from which it is on.
    is_on = since < length or wait <= 1e-12 * (time + period)
    return time if is_on else time + wait

  return Availability(num_clients, next_on)


@fields.checked()
def markov(
  num_clients: Count,
  *,
  mean_on: PositiveFloat = 50.0,
  mean_off: PositiveFloat = 50.0,
  seed: Seed = 0,
) -> Availability:
  """Each client goes on and off by a Markov chain in continuous time.

  Periods have exponential lengths. At the start clients are on with their
  long-run probability.

  Args:
    num_clients: M.
    mean_on: mean seconds for which a client is available.
    mean_off: mean seconds for which a client is absent.
    seed: of the periods.

  Returns:
    When clients are available.
  """
  means = float(mean_on), float(mean_off)

  @functools.cache
  def of(client):
    """Whether it is on at first, the ends of its periods, and what draws."""
    generator = np.random.default_rng([seed, client])
    starts_on = bool(generator.random() < means[0] / sum(means))
    return starts_on, [0.0], generator

  def next_on(client, time):
    starts_on, changes, generator = of(client)
    while changes[-1] <= time:  # They are drawn as they are needed.
      lengths = generator.exponential(size=_PERIODS_PER_BLOCK)
      is_odd = np.arange(_PERIODS_PER_BLOCK) % 2 != (len(changes) - 1) % 2
      lengths *= np.where(starts_on ^ is_odd, *means)
      changes += (changes[-1] + np.cumsum(lengths)).tolist()
    place = bisect.bisect_right(changes, time) - 1  # The period of `time`.
    is_on = starts_on ^ (place % 2 == 1)
    return time if is_on else changes[place + 1]

  return Availability(num_clients, next_on)


@fields.checked()
def periods(
  path: str | os.PathLike,
  num_clients: Count,
  *,
  repeat: PositiveFloat | None = None,
) -> Availability:
  """Availability from a trace.

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
  _, columns = csv_files.read(path, _COLUMNS)
  if not np.isfinite(columns).all() or (columns[0] % 1).any():
    raise ValueError(f"{path}: must have whole numbers of clients, and seconds")
  by_client = [([], []) for _ in range(num_clients)]
  latest = math.inf if repeat is None else repeat
  for client, start, end in sorted(zip(*columns, strict=True)):
    where = f"{path}: client {client:.9g} from {start:g} to {end:g}"
    if not 0 <= client < num_clients:
      raise ValueError(
        f"{where}: must be below the number of clients, {num_clients}"
      )
    starts, ends = by_client[int(client)]
    least = ends[-1] if ends else 0.0
    if not least <= start < end <= latest:
      limit = "" if repeat is None else f", and at most {repeat:g}"
      raise ValueError(
        f"{where}: must end after its start{limit}, and not overlap another one"
      )
    starts.append(start)
    ends.append(end)

  def next_on(client, time):
    starts, ends = by_client[client]
    if not starts:
      return math.inf
    base = 0.0 if repeat is None else time // repeat * repeat
    place = bisect.bisect_right(ends, time - base)
    if place < len(starts):
      return max(time, base + starts[place])
    return math.inf if repeat is None else base + repeat + starts[0]

  return Availability(num_clients, next_on)
