"""Who is sent out next, and for how long."""

import math

import numpy as np

from fedjax_opt.systems import Durations

_BLOCK_SIZE = 1 << 16
# Draws that may find a client that is not available, before all are asked.
_TRIES = 32
# How often the time at which enough clients are available may move on.
_WAITS = 10_000


class Sender:
  """Draws clients that are idle, uniformly, and how long they are away.

  Random numbers are drawn in blocks, on whose size results do not depend. The
  idle clients are a list. The last one takes the place of the one that is
  drawn, and clients that come back are appended. If clients are not always
  available, clients are drawn until one is.
  """

  def __init__(self, durations: Durations):
    seeds = np.random.SeedSequence(durations.seed).spawn(2)
    self._generators = [np.random.default_rng(seed) for seed in seeds]
    self._durations = durations
    self._idle = list(range(len(durations.steps)))
    self._next = _BLOCK_SIZE
    self._steps = durations.steps.tolist()
    self._transfer = durations.transfer.tolist()
    self._once = durations.seconds_per_step.tolist()
    self._groups = durations.groups.tolist()
    self._available = durations.availability

  def send(self, now: float) -> tuple[int, float] | None:
    """A client, no longer idle, and its seconds per step this time.

    Args:
      now: in seconds.

    Returns:
      None if nobody is available; then see `wakes`.
    """
    place, i = self._place(now)
    if place is None:
      return None
    idle = self._idle
    client, last_client = idle[place], idle.pop()
    if place < len(idle):
      idle[place] = last_client
    if self._seconds:
      return client, self._seconds[self._groups[client]][i]
    return client, self._once[client]

  def _place(self, now):
    """The place of the next client among the idle ones, and its draw."""
    available, idle = self._available, self._idle
    if not idle:
      return None, 0
    if available is None:
      i = self._next_index()
      return int(self._who[i] * len(idle)), i
    for _ in range(_TRIES):
      i = self._next_index()
      place = int(self._who[i] * len(idle))
      if available.is_on(idle[place], now):
        return place, i
    slots = [p for p, client in enumerate(idle) if available.is_on(client, now)]
    if not slots:
      return None, 0
    i = self._next_index()
    return slots[int(self._who[i] * len(slots))], i

  def _next_index(self):
    """The index of the next random numbers."""
    if self._next == _BLOCK_SIZE:
      picks, speeds = (rng.random(_BLOCK_SIZE) for rng in self._generators)
      self._who, self._next = picks.tolist(), 0
      self._seconds = self._durations.seconds(speeds).tolist()
    self._next += 1
    return self._next - 1

  def wakes(self, now: float) -> float:
    """When the next client that is idle becomes available; perhaps never."""
    if self._available is None:
      return math.inf
    times = (self._available.next_on(client, now) for client in self._idle)
    return min(times, default=math.inf)

  def when(self, number: int, now: float) -> float:
    """The first time from now on when so many idle clients are available.

    Raises:
      ValueError: if there is none, or none is found.
    """
    for _ in range(_WAITS):
      times = sorted(self._available.next_on(c, now) for c in self._idle)
      # Before this time fewer clients become available, so not enough are.
      time = times[number - 1]
      if time <= now:
        return now
      now = time
      if now == math.inf:
        break
    period = "again" if now == math.inf else f"in the next {_WAITS:,} changes"
    raise ValueError(
      f"durations: {number} clients are never available at once {period}; a "
      "round must have fewer clients, there must be fewer rounds, or clients "
      "must be available for longer"
    )

  def duration(self, client: int, seconds_per_step: float) -> float:
    """Seconds from sending a client out to its arrival."""
    return self._steps[client] * seconds_per_step + self._transfer[client]

  def back(self, client: int) -> None:
    """Makes a client idle again."""
    self._idle.append(client)


def check_comes(time: float) -> None:
  """Raises ValueError if nothing happens any more."""
  if time == math.inf:
    raise ValueError(
      "durations: no client is ever available again; there must be fewer "
      "server steps, or clients must be available for longer"
    )
