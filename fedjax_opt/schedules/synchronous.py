"""Rounds that wait: for all, until a deadline, or for the first."""

import numpy as np

from fedjax_opt.checks.fields import (
  Count,
  NonNegativeFloat,
  PositiveFloat,
  checked,
)
from fedjax_opt.schedules.sending import Sender
from fedjax_opt.schedules.timetable import NO_EVENTS, Timetable
from fedjax_opt.systems import Durations


@checked(seconds="(0, inf]")
def synchronous(
  durations: Durations,
  server_steps: Count,
  cohort_size: Count,
  *,
  over_selection: int = 0,
  deadline: PositiveFloat | None = None,
  partial: bool = False,
  server_seconds: NonNegativeFloat = 0.0,
  seconds: float = np.inf,
) -> Timetable:
  """Rounds of a clock: all start together, and the server waits.

  Clients are drawn uniformly without replacement, `over_selection` more than
  `cohort_size`. The first `cohort_size` that arrive are taken. Late clients are
  given up at the end of the round. If clients are not always available, a round
  begins once enough clients are available at the same time.

  Args:
    durations: of the clients, see `fedjax_opt.systems.System.durations`.
    server_steps: T, the rounds.
    cohort_size: clients that the server waits for.
    over_selection: clients that are sent out in addition to cohort_size; only
      the first cohort_size arrivals are taken.
    deadline: seconds after which a round ends. A round in which nobody has
      arrived by then takes no update.
    partial: whether to take the work that late clients have done by the
      deadline; this is as many whole steps as fit, with their transfer. A
      client without a whole step is dropped. Clients that finish are taken
      before those that do not.
    server_seconds: seconds that the server needs in a round.
    seconds: after which no more round begins, so that clients need not be
      available for longer; the first round is always made.

  Returns:
    The timetable, [T, cohort_size + over_selection]; with fewer rows if
    `seconds` end it.

  Raises:
    ValueError: if an argument is out of range, there are fewer clients,
      `partial` has no deadline, or so many clients are never available at
      once any more.
    TypeError: if an argument is of a wrong type.

  References:
    Bonawitz et al., "Towards Federated Learning at Scale: System Design",
    MLSys 2019, section 2.2, of over-selection and deadlines.
  """
  num_sent, num_clients = cohort_size + over_selection, len(durations.steps)
  if num_sent > num_clients:
    raise ValueError(
      f"cohort_size + over_selection={num_sent}: must be at most the number of "
      f"clients, {num_clients}"
    )
  if partial and deadline is None:
    raise ValueError("partial=True: needs a deadline")
  sender, now, rows = Sender(durations), 0.0, []
  deadline = np.inf if deadline is None else deadline
  while len(rows) < server_steps and not (rows and now >= seconds):
    now, sendings = _sent(sender, now, num_sent)
    clients = np.array([client for client, _ in sendings], np.int32)
    times_away = np.array([sender.duration(*sending) for sending in sendings])
    share = (times_away <= deadline).astype(float)
    if partial:
      speeds = np.array([seconds for _, seconds in sendings])
      partial_share = _shares(durations, clients, speeds, deadline)
      share = np.where(times_away <= deadline, 1, partial_share)
    ends = np.where(share > 0, np.minimum(times_away, deadline), times_away)
    # Those that finish, then those with a part, in the order of sending.
    order = np.lexsort([share < 1, ends])
    has_work = share > 0
    is_taken = np.zeros(num_sent, bool)
    is_taken[order[has_work[order]][:cohort_size]] = True
    is_full = is_taken.sum() == cohort_size
    waited = ends[is_taken].max() if is_full else min(ends.max(), deadline)
    for place in order:
      sender.back(int(clients[place]))
    rows.append(
      (
        clients,
        is_taken,
        np.where(share > 0, share, 1),
        now,
        now + np.minimum(ends, waited),
        now + waited + server_seconds,
      )
    )
    now = rows[-1][-1]
  clients, is_taken, share, starts, ends, time = map(
    np.array, zip(*rows, strict=True)
  )
  steps = np.arange(len(rows), dtype=np.int32)[:, None]
  everywhere = lambda column: np.broadcast_to(column, clients.shape).copy()
  return Timetable(
    clients, everywhere(steps), np.zeros_like(clients), is_taken,
    share.astype(np.float32), time, everywhere(starts[:, None]), ends,
    NO_EVENTS,
  )  # fmt: skip


def _sent(sender, now, number):
  """When a round begins, and who is sent out: all of them at that time."""
  while True:
    sendings = []
    while len(sendings) < number and (sending := sender.send(now)):
      sendings.append(sending)
    if len(sendings) == number:
      return now, sendings
    for client, _ in sendings:
      sender.back(client)
    now = sender.when(number, now)


def _shares(durations, clients, seconds_per_step, deadline):
  """[C], shares of the work that is done by a deadline: whole local steps."""
  steps, transfer = durations.steps[clients], durations.transfer[clients]
  unit = durations.whole[clients]
  num_fit = np.floor((deadline - transfer) / (unit * seconds_per_step) + 1e-9)
  return np.clip(num_fit * unit, 0, steps) / steps
