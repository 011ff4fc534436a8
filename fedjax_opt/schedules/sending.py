"""Who is sent out next, and for how long."""

import numpy as np

from fedjax_opt.systems import Durations

_BLOCK = 1 << 16


class Sender:
  """Draws clients that are idle, uniformly, and how long they are away.

  Random numbers are drawn in blocks, of which results do not depend. Those that
  are idle are a list: the last one takes the place of the one that is drawn,
  and those that come back are appended.
  """

  def __init__(self, durations: Durations):
    seeds = np.random.SeedSequence(durations.seed).spawn(2)
    self._generators = [np.random.default_rng(seed) for seed in seeds]
    self._durations = durations
    self._idle = list(range(len(durations.steps)))
    self._next = _BLOCK
    self._steps = durations.steps.tolist()
    self._transfer = durations.transfer.tolist()
    self._once = durations.seconds_per_step.tolist()
    self._groups = durations.groups.tolist()

  def send(self) -> tuple[int, float]:
    """A client, no longer idle, and its seconds per step this time."""
    if self._next == _BLOCK:
      who, how = (each.random(_BLOCK) for each in self._generators)
      self._who, self._next = who.tolist(), 0
      self._seconds = self._durations.seconds(how).tolist()
    i, idle = self._next, self._idle
    self._next = i + 1
    place = int(self._who[i] * len(idle))
    client, last = idle[place], idle.pop()
    if place < len(idle):
      idle[place] = last
    if self._seconds:
      return client, self._seconds[self._groups[client]][i]
    return client, self._once[client]

  def duration(self, client: int, seconds_per_step: float) -> float:
    """Seconds from sending a client out to its arrival."""
    return self._steps[client] * seconds_per_step + self._transfer[client]

  def back(self, client: int) -> None:
    """A client is idle again."""
    self._idle.append(client)
