"""Server steps after every few arrivals, without waiting for the others."""

import heapq
import os

import numpy as np

from fedjax_opt.checks.fields import Count, checked
from fedjax_opt.checks.values import MAX_INT32
from fedjax_opt.files import csv_files
from fedjax_opt.schedules.sending import Sender, check_comes
from fedjax_opt.schedules.timetable import Events, Timetable, draws_of
from fedjax_opt.systems import Durations


@checked(seconds="(0, inf]")
def buffered(
  durations: Durations,
  server_steps: Count,
  concurrency: Count,
  buffer: Count = 1,
  max_staleness: int | None = None,
  *,
  seconds: float = np.inf,
) -> Timetable:
  """A step after every few arrivals; a client that arrives is replaced at once.

  At each instant, arrivals come first, in the order in which the clients were
  sent out, with the server steps that they complete. Then other clients take
  their places. These are drawn uniformly from the idle and available clients,
  and start from the newest version. If there are none, a place stays empty
  until there is one. With `buffer=1` the schedule is fully asynchronous.

  Args:
    durations: of the clients, see `fedjax_opt.systems.System.durations`.
    server_steps: T.
    concurrency: clients that are away at any time; at most M.
    buffer: arrivals after which the server takes a step; A.
    max_staleness: largest staleness of an update that is used, in server steps;
      older ones are lost: they take no place, and are in `Timetable.lost`.
      Default: no limit.
    seconds: after which no more step is made, so that clients need not be
      available for longer; the first step is always made.

  Returns:
    The timetable, [T, A]; with fewer rows if `seconds` end it.

  Raises:
    ValueError: if an argument is out of range, or nobody is available any more.
    TypeError: if it is no whole number.

  References:
    Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation",
    AISTATS 2022, Algorithm 1.
  """
  num_clients = len(durations.steps)
  if concurrency > num_clients:
    raise ValueError(
      f"concurrency={concurrency}: must be at most the number of clients, "
      f"{num_clients}"
    )
  sender, queue, num_sent = Sender(durations), [], 0
  sendings = {}  # Client -> version and draw of its last sending.
  arrivals, lost, times, now, version = [], [], [], 0.0, 0
  while version < server_steps:
    wakes = np.inf
    for _ in range(concurrency - len(queue)):
      sending = sender.send(now)
      if sending is None:
        wakes = sender.wakes(now)
        break
      client, speed = sending
      last_version, draw = sendings.get(client, (-1, 0))
      sendings[client] = version, (draw + 1 if last_version == version else 0)
      end = now + sender.duration(client, speed)
      heapq.heappush(queue, (end, num_sent, client, *sendings[client], now))
      num_sent += 1
    now = min(queue[0][0] if queue else np.inf, wakes)
    if times and now > seconds:
      arrivals = arrivals[: len(times) * buffer]
      break
    check_comes(now)
    while queue and queue[0][0] == now and version < server_steps:
      arrival = heapq.heappop(queue)
      sender.back(arrival[2])
      if max_staleness is not None and version - arrival[3] > max_staleness:
        lost.append((arrival[2], arrival[3], version, arrival[5], now))
        continue
      arrivals.append(arrival)
      if len(arrivals) % buffer == 0:
        times.append(now)
        version += 1
  # Without what was lost after the last step.
  return _table(arrivals, lost, times, buffer).first_steps(version)


def _table(arrivals, lost, times, buffer):
  """The timetable of what arrived, in its order."""
  columns = np.array(arrivals, np.float64).T.reshape(6, len(times), buffer)
  ends, _, clients, versions, draws, starts = columns
  as_int = lambda column: column.astype(np.int32)
  lost_columns = np.array(lost, np.float64).reshape(-1, 5).T
  return Timetable(
    as_int(clients), as_int(versions), as_int(draws), np.ones(ends.shape, bool),
    np.ones(ends.shape, np.float32), np.array(times), starts, ends,
    Events(*map(as_int, lost_columns[:3]), *lost_columns[3:],
           np.zeros(len(lost), bool)),
  )  # fmt: skip


# Names in files -> fields of `Events`.
_COLUMNS = {
  "client": "clients",
  "version": "versions",
  "step": "steps",
  "staleness": "staleness",
  "start": "starts",
  "end": "ends",
  "taken": "taken",
}


@checked()
def write_events(table: Timetable, path: str | os.PathLike) -> None:
  """Writes the events as a CSV file, in the order of their ends.

  Args:
    table: of any schedule.
    path: of the file, with the columns client, version, step, staleness, start,
      end (in seconds) and taken.
  """
  import pandas  # A run that writes no table does without.

  events = table.events()
  frame = {name: getattr(events, field) for name, field in _COLUMNS.items()}
  pandas.DataFrame(frame).to_csv(path, index=False)


@checked()
def replay(path: str | os.PathLike, buffer: Count = 1) -> Timetable:
  """The timetable of buffered server steps that a trace of clients gives.

  The file that `write_events` makes of `buffered` gives the same timetable
  again.

  Args:
    path: of a CSV file with the columns client, start and end, the last two in
      seconds, and a line for each time that a client was sent out. Lines with
      the same end are in the order in which the clients were sent out. There
      may be a column taken: where it is False, the update was lost, such as one
      that was too stale.
    buffer: arrivals after which the server takes a step; A. Arrivals that are
      left over at the end are dropped.

  Returns:
    The timetable, [T, A].

  Raises:
    ValueError: if the file cannot be read, lacks a column or has fewer than A
      lines, or a client ends before it starts or is sent out while it is away.
  """
  frame, _ = csv_files.read(path, list(_TRACE))
  _check_trace(path, frame)
  frame = frame.sort_values("end", kind="stable")
  taken = np.ones(len(frame), bool)
  if "taken" in frame:
    taken = frame["taken"].to_numpy(bool)
  clients = frame["client"].to_numpy(np.int32)
  starts, ends = (frame[name].to_numpy(np.float64) for name in ("start", "end"))
  steps = (np.cumsum(taken) - taken) // buffer  # Complete before each arrival.
  number = int(taken.sum()) // buffer
  if not number:
    raise ValueError(
      f"{path}: has {taken.sum()} arrivals; must have at least buffer={buffer}"
    )
  places = np.flatnonzero(taken)[: number * buffer]
  time = ends[places].reshape(number, buffer)[:, -1]
  # What starts at the instant of a step starts from what the step made.
  versions = np.searchsorted(time, starts, side="right").astype(np.int32)
  cut = lambda column: column[places].reshape(number, buffer)
  is_lost = ~taken & (steps < number)
  fields = clients, versions, steps.astype(np.int32), starts, ends, taken
  return Timetable(
    cut(clients), cut(versions), draws_of(cut(clients), cut(versions)),
    np.ones((number, buffer), bool), np.ones((number, buffer), np.float32),
    time, cut(starts), cut(ends), Events(*(field[is_lost] for field in fields)),
  )  # fmt: skip


# Columns of a trace, and what is in them.
_TRACE = {
  "client": ("iu", "whole numbers"),
  "start": ("iuf", "seconds"),
  "end": ("iuf", "seconds"),
}


def _check_trace(path, frame):
  """Checks that a trace can have happened."""
  if frame.empty:
    raise ValueError(f"{path}: has no arrivals")
  for name, (kind, words) in _TRACE.items():
    column = frame[name].to_numpy()
    if (
      column.dtype.kind not in kind
      or not ((column >= 0) & (column <= MAX_INT32)).all()
    ):
      raise ValueError(f"{path}: {name}: must be {words} from 0 to {MAX_INT32}")
  if "taken" in frame and frame["taken"].dtype != bool:
    raise ValueError(f"{path}: taken: must be True or False")
  if (frame["end"] <= frame["start"]).any():
    raise ValueError(f"{path}: an end is not after its start")
  frame = frame.sort_values(["client", "start"])
  clients, starts, ends = (frame[name].to_numpy() for name in _TRACE)
  if ((clients[1:] == clients[:-1]) & (starts[1:] < ends[:-1])).any():
    raise ValueError(f"{path}: a client is sent out while it is away")
