"""Who is sent out and who arrives when, made on the host before the rounds."""

from fedjax_opt.registry import Choice, File, Hyperparameter, register
from fedjax_opt.schedules.buffered import buffered, replay, write_events
from fedjax_opt.schedules.synchronous import synchronous
from fedjax_opt.schedules.timetable import (
  Events,
  Timetable,
  by_hand,
  until,
)
from fedjax_opt.schedules.usage import Usage, speed_groups, usage

__all__ = [
  "Events",
  "Timetable",
  "Usage",
  "buffered",
  "by_hand",
  "replay",
  "speed_groups",
  "synchronous",
  "until",
  "usage",
  "write_events",
]

_BUFFER = Hyperparameter(
  "buffer",
  10,
  "arrivals after which the server takes a step",
  "[1, inf)",
  is_static=True,
)
# Those that begin with `durations, server_steps` follow from a system.
SCHEDULES: dict[str, Choice] = {
  "synchronous": Choice(
    synchronous,
    "rounds that wait: for all of a cohort, for the first, or until a deadline",
    (
      Hyperparameter(
        "over_selection",
        0,
        "clients that are sent out beside cohort_size, whose first arrivals "
        "are taken",
        "[0, inf)",
        is_static=True,
      ),
      Hyperparameter(
        "deadline",
        None,
        "seconds after which a round waits for nobody",
        "(0, inf)",
      ),
      Hyperparameter(
        "partial",
        False,
        "take what late clients have done by the deadline, instead of nothing",
        flag="partial_work",
      ),
      Hyperparameter(
        "server_seconds", 0.0, "seconds of the server in a round", "[0, inf)"
      ),
    ),
  ),
  "buffered": Choice(
    buffered,
    "a server step after every few arrivals; who arrives is replaced at once",
    (
      Hyperparameter(
        "concurrency",
        20,
        "clients that are away at any time",
        "[1, inf)",
        is_static=True,
      ),
      _BUFFER,
      Hyperparameter(
        "max_staleness",
        None,
        "server steps after which an update is lost",
        "[0, inf)",
        is_static=True,
      ),
    ),
  ),
  "replay": Choice(
    replay,
    "a trace of clients: who was sent out, and when each arrived",
    (
      File(
        "path",
        "CSV file with the columns client, start and end, in seconds",
        flag="events_file",
      ),
      _BUFFER,
    ),
  ),
}
register(SCHEDULES)
