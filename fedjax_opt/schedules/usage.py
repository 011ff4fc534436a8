"""What became of the clients' time on a timetable: on the host, in NumPy."""

from typing import NamedTuple

import numpy as np

from fedjax_opt.checks.fields import Count, checked
from fedjax_opt.checks.values import checked_array
from fedjax_opt.schedules.timetable import Timetable, check_clients


class Usage(NamedTuple):
  """What became of the clients that were sent out and have finished.

  Attributes:
    seconds: simulated, of all server steps.
    sent: how many were sent out.
    used: how many of them a server step used.
    late: how many arrived and were not used, because they were late or the
      server did not wait for them.
    stale: how many were lost because they were too stale.
    mean_staleness: server steps between start and use of an update, on average.
    max_staleness: the largest number of such server steps.
    waiting: seconds for which an update that is used waits for its server step,
      on average.
    at_work: clients that were away at any time, on average.
    used_time: share of the clients' seconds that went into updates that were
      used.
    updates: [M] int, updates of each client that were used.
  """

  seconds: float
  sent: int
  used: int
  late: int
  stale: int
  mean_staleness: float
  max_staleness: int
  waiting: float
  at_work: float
  used_time: float
  updates: np.ndarray


@checked()
def usage(table: Timetable, num_clients: Count) -> Usage:
  """What became of the clients' time.

  Args:
    table: of any schedule.
    num_clients: M.

  Returns:
    The record.

  Raises:
    ValueError: if a client of the timetable is not in the population.
  """
  check_clients(table, num_clients)
  events = table.events()
  is_taken = events.taken
  time_away = events.ends - events.starts
  staleness = events.staleness[is_taken]
  seconds = float(table.time[-1])
  step_times = table.time[events.steps[is_taken]]
  mean = lambda values: float(values.mean()) if values.size else 0.0
  return Usage(
    seconds,
    sent=len(is_taken),
    used=int(is_taken.sum()),
    late=int((~is_taken).sum()) - len(table.lost.clients),
    stale=len(table.lost.clients),
    mean_staleness=mean(staleness),
    max_staleness=int(staleness.max(initial=0)),
    waiting=mean(step_times - events.ends[is_taken]),
    at_work=float(time_away.sum() / seconds),
    used_time=float(time_away[is_taken].sum() / max(time_away.sum(), 1e-300)),
    updates=np.bincount(events.clients[is_taken], minlength=num_clients),
  )


@checked()
def speed_groups(seconds: np.ndarray, number: Count = 4) -> np.ndarray:
  """Divides clients by their speed into groups of one size, the fastest first.

  Args:
    seconds: [M], how long each is away, see `Durations.typical`.
    number: groups; at most the number of clients.

  Returns:
    [M] int32, from 0.
  """
  seconds = checked_array("seconds", seconds, "[M]", interval="(0, inf)")
  order = np.argsort(seconds, kind="stable")
  groups = np.empty(len(order), np.int32)
  number = min(number, len(order))
  groups[order] = np.arange(len(order)) * number // len(order)
  return groups
