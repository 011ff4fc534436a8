"""The timetable that a schedule makes, and a run follows."""

from typing import NamedTuple

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import PositiveFloat
from fedjax_opt.checks.values import brief, check_shape


class Events(NamedTuple):
  """Clients that were sent out, an entry for each time; arrays of NumPy.

  Attributes:
    clients: [E] int32, who was sent out.
    versions: [E] int32, the server step whose model each started from.
    steps: [E] int32, the server step at which each arrived.
    starts: [E] float64, seconds at which each was sent out.
    ends: [E] float64, seconds at which each arrived, or was given up.
    taken: [E] bool, whether that server step used what it sent.
  """

  clients: np.ndarray
  versions: np.ndarray
  steps: np.ndarray
  starts: np.ndarray
  ends: np.ndarray
  taken: np.ndarray

  @property
  def staleness(self) -> np.ndarray:
    """[E] int32, server steps between start and arrival."""
    return self.steps - self.versions


class Timetable(NamedTuple):
  """Which clients arrive at each server step, and the models they started from.

  All columns are arrays of NumPy. T server steps have A places each. Version v
  is the model before server step v, so version 0 is the initial model. An
  update that started from version v and is used by step t has staleness t - v.
  Nothing here depends on weights: a whole run has one timetable, and its parts
  are cut out of it.

  Attributes:
    clients: [T, A] int32, who arrives; -1 at a free place.
    versions: [T, A] int32, the version that each started from, from 0 to the
      number of the step; that number at a free place.
    draws: [T, A] int32, how often that client had been sent out from that
      version before: 0 the first time. So version, client and draw identify one
      sending and its randomness.
    taken: [T, A] bool, whether the step uses the update: not at a free place,
      and not if the client is late or the server does not wait for it.
    share: [T, A] float32, share of its local steps that a client has done, in
      (0, 1].
    time: [T] float64, simulated seconds at which the step is done.
    starts: [T, A] float64, seconds at which each was sent out.
    ends: [T, A] float64, seconds at which each arrived, or was given up; later
      than `time` if the server did not wait.
    lost: updates that arrived during these steps and were too stale to be used.
  """

  clients: np.ndarray
  versions: np.ndarray
  draws: np.ndarray
  taken: np.ndarray
  share: np.ndarray
  time: np.ndarray
  starts: np.ndarray
  ends: np.ndarray
  lost: Events

  @property
  def steps(self) -> np.ndarray:
    """[T] int32, the numbers of the server steps."""
    return np.arange(len(self.time), dtype=np.int32)

  @property
  def staleness(self) -> np.ndarray:
    """[T, A] int32, versions made since each started; 0 at a free place."""
    return self.steps[:, None] - self.versions

  def first_steps(self, number: int) -> "Timetable":
    """So many of its first steps; all if it has fewer."""
    rows = {n: c[:number] for n, c in self._asdict().items() if n != "lost"}
    is_within = self.lost.steps < number
    lost = Events(*(column[is_within] for column in self.lost))
    return Timetable(**rows, lost=lost)

  def events(self) -> Events:
    """All clients that were sent out and finished, in the order of the ends."""
    is_client = self.clients >= 0
    steps = np.broadcast_to(self.steps[:, None], is_client.shape)
    placed_events = Events(
      *(column[is_client] for column in (self.clients, self.versions, steps)),
      *(column[is_client] for column in (self.starts, self.ends, self.taken)),
    )
    pairs = zip(placed_events, self.lost, strict=True)
    events = Events(*map(np.concatenate, pairs))
    # Of one instant those that are lost precede those that complete the step.
    order = np.lexsort([events.taken, events.steps, events.ends])
    return Events(*(column[order] for column in events))


@fields.checked()
def until(table: Timetable, seconds: PositiveFloat) -> Timetable:
  """The steps of a timetable that are done within a time budget.

  If each seed has its own timetable, each then ends at its own step.

  Args:
    table: of any schedule.
    seconds: the budget, simulated.

  Returns:
    The first steps.

  Raises:
    ValueError: if no step is done by then.
  """
  steps = int(np.searchsorted(table.time, seconds, side="right"))
  if not steps:
    raise ValueError(
      f"seconds={seconds:g}: the first server step is done at "
      f"{table.time[0]:.4g} s; must be at least that"
    )
  return table.first_steps(steps)


NO_EVENTS = Events(
  *(np.zeros(0, np.int32) for _ in range(3)),
  *(np.zeros(0) for _ in range(2)),
  np.zeros(0, bool),
)


@fields.checked(
  clients=fields.array("[T, A]", of_integers=True, interval="[-1, inf)"),
  versions=fields.array("[T, A]", of_integers=True, interval="[0, inf)"),
  time=fields.array("[T]", interval="[0, inf)"),
  starts=fields.array("[T, A]", interval="[0, inf)"),
  ends=fields.array("[T, A]", interval="(0, inf)"),
  share=fields.array("[T, A]", interval="(0, 1]"),
)
def by_hand(
  clients: np.ndarray,
  versions: np.ndarray | None = None,
  *,
  taken: np.ndarray | None = None,
  share: np.ndarray | None = None,
  time: np.ndarray | None = None,
  starts: np.ndarray | None = None,
  ends: np.ndarray | None = None,
) -> Timetable:
  """A timetable that is written by hand, checked.

  Args:
    clients: [T, A] int, who arrives at each step; -1 at a free place.
    versions: [T, A] int, the version that each started from, see `Timetable`.
      Default: the newest, as in synchronous rounds.
    taken: [T, A] bool, whether the step uses it. Default: all that arrive.
    share: [T, A], of the local steps done, in (0, 1]. Default: 1.
    time: [T], seconds at which each step is done. Default: 1, 2, ...
    starts: [T, A], seconds at which each was sent out. Default: when its
      version was made.
    ends: [T, A], seconds at which each arrived. Default: when the step is done.

  Returns:
    The timetable, from step 0.

  Raises:
    ValueError: if nobody arrives, shapes differ, a version is not there yet, a
      client starts before its version is made or ends before it starts, or time
      runs back.
    TypeError: if an argument is no array of such numbers.
  """
  clients = np.asarray(clients, np.int32)
  shape, steps = clients.shape, np.arange(len(clients), dtype=np.int32)[:, None]
  is_free = clients < 0
  if is_free.all():
    raise ValueError("clients: nobody arrives; must have at least one client")
  arrays = {"versions": versions, "taken": taken, "share": share}
  for name, value in (arrays | {"starts": starts, "ends": ends}).items():
    if value is not None:
      check_shape(name, np.asarray(value), shape, "as clients")
  time = np.asarray(range(1, len(clients) + 1) if time is None else time)
  check_shape("time", time, shape[:1], "one for each row of clients")
  time = time.astype(np.float64)
  versions = steps if versions is None else np.asarray(versions, np.int32)
  versions = np.where(is_free, steps, versions)
  if (versions > steps).any():
    t, k = np.argwhere(versions > steps)[0]
    raise ValueError(
      f"versions[{t}, {k}]={versions[t, k]}: must be at most {t}, the newest "
      "that step has"
    )
  taken = ~is_free if taken is None else _of_switches(taken) & ~is_free
  share = np.broadcast_to(1.0 if share is None else share, shape)
  made_at = np.concatenate([[0.0], time])[versions]  # [T, A], of each version.
  starts = made_at if starts is None else np.asarray(starts, np.float64)
  ends = time[:, None] if ends is None else np.asarray(ends, np.float64)
  table = Timetable(
    clients, versions, draws_of(clients, versions), taken,
    share.astype(np.float32), time, np.where(is_free, made_at, starts),
    np.where(is_free, time[:, None], ends), NO_EVENTS,
  )  # fmt: skip
  _check_order(table, made_at)
  return table


def _of_switches(taken):
  """[T, A] bool, as it was given."""
  if np.asarray(taken).dtype != bool:
    raise TypeError(f"taken={brief(taken)}: must be an array of bool")
  return np.asarray(taken)


def _check_order(table, made_at):
  """Checks that nothing of a timetable happens before what it needs."""
  is_client = table.clients >= 0
  violations = {
    "starts": (
      is_client & (table.starts < made_at),
      "not be before its version is made",
    ),
    "ends": (is_client & (table.ends <= table.starts), "be after its start"),
    "time": (
      (table.taken & (table.ends > table.time[:, None])),
      "not be before an end that the step uses",
    ),
  }
  if (np.diff(table.time) < 0).any():
    raise ValueError("time: runs back; must not decrease")
  for name, (places, rule) in violations.items():
    if places.any():
      t, k = np.argwhere(places)[0]
      value = table.time[t] if name == "time" else getattr(table, name)[t, k]
      index = f"{t}" if name == "time" else f"{t}, {k}"
      raise ValueError(f"{name}[{index}]={value:g}: must {rule}")


def draws_of(clients: np.ndarray, versions: np.ndarray) -> np.ndarray:
  """How often each client had been sent out from the same version before.

  Args:
    clients: [T, A] int; -1 at a free place.
    versions: [T, A] int.

  Returns:
    [T, A] int32; of those that arrive earlier in the same sending, by rows.
  """
  flat = np.stack([versions.ravel(), clients.ravel()])
  order = np.lexsort(flat[::-1])
  is_same = np.ones(flat.shape[1], bool)
  is_same[1:] = (flat[:, order][:, 1:] == flat[:, order][:, :-1]).all(0)
  places = np.arange(len(is_same))
  starts = np.maximum.accumulate(np.where(is_same, 0, places))
  draws = np.empty(len(is_same), np.int32)
  draws[order] = places - starts
  draws[flat[1] < 0] = 0
  return draws.reshape(clients.shape)


def check_clients(table: Timetable, num_clients: int) -> None:
  """Raises ValueError if a client of a timetable is not in the population.

  Args:
    table: of any schedule.
    num_clients: M.
  """
  if table.clients.size and table.clients.max() >= num_clients:
    raise ValueError(
      f"schedule: has client {table.clients.max()}; must be below the number "
      f"of clients, {num_clients}"
    )
