"""Timetables in the form that rounds take: the input of each server step.

All of it is NumPy on the host. The versions that clients in flight still use
are kept in slots, which are assigned like registers: a version takes the lowest
free slot when it is sent first, and gives it back after the last step that uses
it. So there are as many slots as versions are ever in use at once.
"""

import dataclasses
import functools
import hashlib
import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.checks import errors
from fedjax_opt.checks.values import brief
from fedjax_opt.schedules.timetable import Timetable, check_clients

# The columns of a timetable that the numbers of a run depend on, in the order
# of their digest.
_OF_THE_RUN = ("clients", "versions", "draws", "taken", "share", "time")


def check_is_schedule(schedule: Any) -> None:
  """Checks that a schedule is whole timetables, or a function to one.

  Raises:
    TypeError: if it is neither.
    ValueError: if one has no steps.
  """
  if isinstance(schedule, Mapping):
    for seed, table in schedule.items():
      _check_is_timetable(f"schedule[{seed!r}]", table)
  elif not callable(schedule):
    _check_is_timetable("schedule", schedule)


def timetables_of(
  schedule: Any, seeds: Sequence[int], works: Callable[[], Sequence[Any]]
) -> list[Timetable]:
  """The timetable of each seed, or one for all.

  Args:
    schedule: a value that `check_is_schedule` accepts.
    seeds: the runs' seeds.
    works: `() -> [work]`, the argument of a function, for each seed.

  Raises:
    TypeError: if a function gives no timetable.
    ValueError: if a function fails, or a seed has no timetable.
  """
  if isinstance(schedule, Mapping):
    for seed in seeds:
      if seed not in schedule:
        raise ValueError(
          f"schedule: has no timetable of seed {seed}; must have one for each "
          "seed"
        )
    return [schedule[seed] for seed in seeds]
  if not callable(schedule):
    return [schedule]
  tables = []
  for work in works():
    name = "(work) -> Timetable"
    tables.append(errors.call_user("schedule", name, schedule, work))
    _check_is_timetable("schedule: returned", tables[-1])
  return tables


def _check_is_timetable(name, value):
  if not isinstance(value, Timetable):
    raise TypeError(
      f"{name}={brief(value)}: must be a Timetable, such as "
      "schedules.by_hand(clients, versions), or a function to one"
    )
  if not len(value.time):
    raise ValueError(f"{name}: has no steps; must have at least one")


@dataclasses.dataclass(frozen=True, eq=False)
class Clock:
  """The timetables of a run, of server steps with A places.

  Attributes:
    timetables: one for each seed, or one for all. Where one ends before others,
      no client arrives after its last step.
    num_clients: M.
  """

  timetables: tuple[Timetable, ...]
  num_clients: int

  def __post_init__(self):
    for table in self.timetables:
      check_clients(table, self.num_clients)
    places = sorted({table.clients.shape[1] for table in self.timetables})
    if len(places) > 1:
      raise ValueError(
        f"schedule: has {places[0]} places in a step for one seed, {places[-1]}"
        " for another; must have the same number for all seeds"
      )

  @functools.cached_property
  def slots(self) -> list[np.ndarray]:
    """The slot of each version, [T] int32, for each timetable."""
    return [_slots(table) for table in self.timetables]

  @property
  def places(self) -> int:
    """A."""
    return self.timetables[0].clients.shape[1]

  @property
  def steps(self) -> int:
    """T, the server steps of the seed that has most of them."""
    return max(len(table.time) for table in self.timetables)

  @functools.cached_property
  def has_empty_places(self) -> bool:
    """Whether a step uses fewer messages than it has places."""
    is_short = any(len(table.time) < self.steps for table in self.timetables)
    is_taken = all(table.taken.all() for table in self.timetables)
    # The part that a client does may be less than one local step.
    return is_short or self.is_partial or not is_taken

  @functools.cached_property
  def expected_sizes(self) -> np.ndarray:
    """[tables], clients of a step, on average; all that arrive in it."""
    return np.array(
      [
        (table.clients >= 0).sum() / len(table.time)
        for table in self.timetables
      ]
    )

  @functools.cached_property
  def is_everyone(self) -> bool:
    """Whether each step takes each client once, from the newest version."""
    everyone = np.arange(self.num_clients)
    in_order = [np.sort(table.clients, axis=1) for table in self.timetables]
    is_all = self.places == self.num_clients and all(
      (clients == everyone).all() for clients in in_order
    )
    return bool(is_all and not self.has_empty_places and not self.is_stale)

  @functools.cached_property
  def is_stale(self) -> bool:
    """Whether any client starts from an older version, or comes twice."""
    are_old = (table.staleness[table.taken].any() for table in self.timetables)
    return any(are_old) or not all(
      _are_last(table.clients, table.taken).all() for table in self.timetables
    )

  @functools.cached_property
  def is_partial(self) -> bool:
    """Whether any client does only a part of its local steps."""
    return any((table.share < 1).any() for table in self.timetables)

  @property
  def num_slots(self) -> int:
    """The most versions that are in use at once."""
    return max(int(slots.max()) for slots in self.slots) + 1

  @functools.cached_property
  def digest(self) -> str:
    """A digest of all columns of the timetables that a run depends on."""
    hasher = hashlib.sha256()
    for table in self.timetables:
      for name in _OF_THE_RUN:
        column = np.ascontiguousarray(getattr(table, name))
        hasher.update(column.tobytes())
    return hasher.hexdigest()

  def done(self, steps: int) -> np.ndarray:
    """[tables], the steps that each table has of this many."""
    return np.array([min(steps, len(table.time)) for table in self.timetables])

  def time(self, steps: int) -> np.ndarray:
    """[tables], simulated seconds after this many steps."""
    times = [np.append(0.0, table.time) for table in self.timetables]
    return np.array([time[min(steps, len(time) - 1)] for time in times])

  def arrivals(
    self,
    steps: np.ndarray,
    sizes: np.ndarray,
    num_steps: Callable[[np.ndarray], np.ndarray],
  ) -> dict[str, np.ndarray]:
    """The input of the rounds at some steps, named as the fields of `Arrival`.

    Args:
      steps: [n] int; at steps after the last one no client arrives.
      sizes: [seeds, M], examples of each client.
      num_steps: function from sizes to local steps, see `BatchPlan`.

    Returns:
      `clients` [seeds, n, A] int32, M for an empty place; and the other fields
      that differ between clients. On an asynchronous schedule also `write_slot`
      [seeds, n] int32.
    """
    is_same = len(self.timetables) == 1
    per_seed = [
      self._arrivals_of_seed(0 if is_same else i, steps, seed_sizes, num_steps)
      for i, seed_sizes in enumerate(sizes)
    ]
    return {
      name: np.stack([row[name] for row in per_seed]) for name in per_seed[0]
    }

  def _arrivals_of_seed(self, i, steps, sizes, num_steps):
    """`arrivals` of one seed, by the timetable `i`."""
    table = self.timetables[i]
    within = np.minimum(steps, len(table.time) - 1)
    is_after = (steps != within)[:, None]
    is_nobody = (table.clients[within] < 0) | is_after
    clients = np.where(is_nobody, self.num_clients, table.clients[within])
    columns = {"clients": clients.astype(np.int32)}
    if self.has_empty_places:
      columns["is_taken"] = table.taken[within] & ~is_after
    if self.is_partial:
      client_sizes = np.append(sizes, 0)[clients]
      share = table.share[within]
      columns["steps"] = _whole_steps(share, num_steps(client_sizes))
      columns["is_taken"] &= (columns["steps"] > 0) | (share == 1)
    if self.is_stale:
      is_taken = table.taken[within]
      versions = np.where(is_taken, table.versions[within], within[:, None])
      staleness = within[:, None] - versions
      columns |= {
        "staleness": staleness.astype(np.int32),
        "draw": table.draws[within].astype(np.int32),
        "slot": self.slots[i][versions],
        # A message without a local step is not taken.
        "is_last": _are_last(
          table.clients[within], columns.get("is_taken", is_taken)
        ),
        "write_slot": self.slots[i][within],
      }
    return columns


def _are_last(clients: np.ndarray, is_taken: np.ndarray) -> np.ndarray:
  """[T, A] bool, whether no later place of the step takes this client."""
  clients = np.where(is_taken, clients, -1)
  order = np.argsort(clients, axis=1, kind="stable")
  in_order = np.take_along_axis(clients, order, 1)
  ends_here = np.ones(clients.shape, bool)
  ends_here[:, :-1] = (in_order[:, :-1] != in_order[:, 1:]) | (
    in_order[:, :-1] < 0
  )
  is_last = np.empty_like(ends_here)
  np.put_along_axis(is_last, order, ends_here, 1)
  return is_last


def _slots(table: Timetable) -> np.ndarray:
  """[T] int32, each version's slot; it is used at its own step at least."""
  last_use = np.arange(len(table.time))
  steps = np.broadcast_to(table.steps[:, None], table.taken.shape)[table.taken]
  np.maximum.at(last_use, table.versions[table.taken], steps)
  return _assign_slots(last_use)


def _whole_steps(share, num_steps):
  """Whole local steps done, int32. A `share` may be rounded as float32 is."""
  num_done = np.floor((share.astype(np.float64) + 1e-6) * num_steps)
  return np.minimum(num_done, num_steps).astype(np.int32)


def _assign_slots(last_use: np.ndarray) -> np.ndarray:
  """[T] int32, a slot for each version, given the last step that uses it."""
  slots, free_slots, num_slots = np.zeros(len(last_use), np.int32), [], 0
  by_end, num_ended = np.argsort(last_use, kind="stable"), 0
  for version in range(len(last_use)):
    while last_use[by_end[num_ended]] < version:
      heapq.heappush(free_slots, slots[by_end[num_ended]])
      num_ended += 1
    if free_slots:
      slots[version] = heapq.heappop(free_slots)
    else:
      slots[version], num_slots = num_slots, num_slots + 1
  return slots
