"""A timetable, made ready for the rounds: what each server step is given.

All of it is NumPy on the host. The versions that clients in flight still use
are kept in slots, which are assigned like registers: a version takes the lowest
free slot when it is sent first, and gives it back after the last step that uses
it. So there are as many slots as versions are ever in use at once.
"""

import dataclasses
import functools
import hashlib
import heapq
from typing import Any

import numpy as np

from fedjax_opt.checks import values as checks
from fedjax_opt.engine.plan import BatchPlan
from fedjax_opt.schedules.timetable import Timetable, check_clients


def check_is_timetable(schedule: Any) -> None:
  """That a schedule is a whole timetable.

  Raises:
    TypeError: if it is none.
    ValueError: if it does not begin at the first step.
  """
  if not isinstance(schedule, Timetable):
    raise TypeError(
      f"schedule={checks.shown(schedule)}: must be a Timetable, such as "
      "schedules.by_hand(clients, versions)"
    )
  if schedule.first or not len(schedule.time):
    raise ValueError(
      f"schedule: has {len(schedule.time)} steps from step {schedule.first}; "
      "must be a whole timetable, from step 0"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Clock:
  """A timetable of T server steps with K places.

  Attributes:
    table: the timetable.
    num_clients: M.
  """

  table: Timetable
  num_clients: int

  def __post_init__(self):
    check_clients(self.table, self.num_clients)

  @property
  def places(self) -> int:
    """K."""
    return self.table.clients.shape[1]

  @functools.cached_property
  def is_free(self) -> np.ndarray:
    """[T, K] bool, whether nobody is in a place."""
    return self.table.clients < 0

  @functools.cached_property
  def has_empty_places(self) -> bool:
    """Whether a step uses fewer messages than it has places."""
    return not self.table.taken.all()

  @functools.cached_property
  def expected_size(self) -> float:
    """Clients of a step on average, those that are not taken included."""
    return float((~self.is_free).sum() / len(self.table.time))

  @functools.cached_property
  def is_everyone(self) -> bool:
    """Whether each step takes each client once, from the newest version."""
    everyone = np.arange(self.num_clients)
    in_order = np.sort(self.table.clients, axis=1)
    is_all = in_order.shape[1] == len(everyone) and (in_order == everyone).all()
    return bool(is_all and not self.has_empty_places and not self.is_stale)

  @functools.cached_property
  def is_stale(self) -> bool:
    """Whether any client starts from an older version, or comes twice."""
    staleness = self.table.staleness[self.table.taken]
    return bool(staleness.any() or not self.is_last.all())

  @functools.cached_property
  def is_partial(self) -> bool:
    """Whether any client does a part of its local steps."""
    return bool((self.table.share < 1).any())

  @functools.cached_property
  def is_last(self) -> np.ndarray:
    """[T, K] bool, whether no later place of the step takes this client."""
    clients = np.where(self.table.taken, self.table.clients, -1)
    order = np.argsort(clients, axis=1, kind="stable")
    in_order = np.take_along_axis(clients, order, 1)
    is_last = np.ones(clients.shape, bool)
    is_last[:, :-1] = (in_order[:, :-1] != in_order[:, 1:]) | (
      in_order[:, :-1] < 0
    )
    found = np.empty_like(is_last)
    np.put_along_axis(found, order, is_last, 1)
    return found

  @functools.cached_property
  def slots(self) -> np.ndarray:
    """[T] int32, the slot of each version; each is in use at its own step."""
    last_use = np.arange(len(self.table.time))
    taken, steps = self.table.taken, self.table.steps
    which = np.broadcast_to(steps[:, None], taken.shape)[taken]
    np.maximum.at(last_use, self.table.versions[taken], which)
    return _assigned(last_use)

  @functools.cached_property
  def num_slots(self) -> int:
    """The most versions that are in use at once."""
    return int(self.slots.max()) + 1

  @functools.cached_property
  def digest(self) -> str:
    """Of all that a run depends on."""
    found = hashlib.sha256()
    for column in self.table[:6]:  # Until `time`.
      found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()

  def rows(
    self, steps: np.ndarray, sizes: np.ndarray, plan: BatchPlan
  ) -> dict[str, np.ndarray]:
    """What the rounds are given at some steps, by the fields of `Arrival`.

    Args:
      steps: [n] int; of those after the last one nobody comes.
      sizes: [M], examples of each client.
      plan: of the local steps.

    Returns:
      `clients` [n, K] int32, M for nobody, and those fields that differ between
      clients; on an asynchronous schedule also `write_slot` [n] int32.
    """
    table, within = self.table, np.minimum(steps, len(self.table.time) - 1)
    is_nobody = self.is_free[within] | (steps != within)[:, None]
    clients = np.where(is_nobody, self.num_clients, table.clients[within])
    found = {"clients": clients.astype(np.int32)}
    if self.has_empty_places:
      found["is_taken"] = table.taken[within]
    if self.is_partial:
      known = np.append(sizes, 0)[clients]
      found["steps"] = _done(table.share[within], plan.num_steps(known))
    if self.is_stale:
      taken = table.taken[within]
      versions = np.where(taken, table.versions[within], within[:, None])
      staleness = within[:, None] - versions
      found |= {
        "staleness": staleness.astype(np.int32),
        "draw": table.draws[within].astype(np.int32),
        "slot": self.slots[versions],
        "is_last": self.is_last[within],
        "write_slot": self.slots[within],
      }
    return found


def _done(share, num_steps):
  """Local steps done, int32, whole ones; a share is a number of float32."""
  done = np.floor((share.astype(np.float64) + 1e-6) * num_steps)
  return np.minimum(done, num_steps).astype(np.int32)


def _assigned(last_use: np.ndarray) -> np.ndarray:
  """[T] int32, slots of versions, given the last step that uses each."""
  slots, free, number = np.zeros(len(last_use), np.int32), [], 0
  by_end, ended = np.argsort(last_use, kind="stable"), 0
  for version in range(len(last_use)):
    while last_use[by_end[ended]] < version:
      heapq.heappush(free, slots[by_end[ended]])
      ended += 1
    if free:
      slots[version] = heapq.heappop(free)
    else:
      slots[version], number = number, number + 1
  return slots
