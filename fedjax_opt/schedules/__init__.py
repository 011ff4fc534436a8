"""Who is sent out and who arrives when, made on the host before the rounds."""

from fedjax_opt.registry import Entry, file_path, from_factory, register
from fedjax_opt.schedules.buffered import buffered as buffered
from fedjax_opt.schedules.buffered import replay as replay
from fedjax_opt.schedules.buffered import write_events as write_events
from fedjax_opt.schedules.synchronous import synchronous as synchronous
from fedjax_opt.schedules.timetable import Events as Events
from fedjax_opt.schedules.timetable import Timetable as Timetable
from fedjax_opt.schedules.timetable import by_hand as by_hand
from fedjax_opt.schedules.timetable import until as until
from fedjax_opt.schedules.usage import Usage as Usage
from fedjax_opt.schedules.usage import speed_groups as speed_groups
from fedjax_opt.schedules.usage import usage as usage

# Those that begin with `durations, server_steps` follow from a system.
SCHEDULES: dict[str, Entry] = {
  "synchronous": Entry(
    synchronous,
    "rounds that wait: for all of a cohort, for the first, or until a deadline",
    from_factory(
      synchronous,
      "over_selection",
      "deadline",
      "server_seconds",
      partial={"flag": "partial_work"},
    ),
  ),
  "buffered": Entry(
    buffered,
    "a server step after every few arrivals; a client that arrives is replaced "
    "at once",
    from_factory(buffered, "max_staleness", concurrency=20, buffer=10),
  ),
  "replay": Entry(
    replay,
    "a trace of clients: who was sent out, and when each arrived",
    (
      file_path(
        "CSV file with the columns client, start and end, in seconds",
        "events_file",
      ),
      *from_factory(replay, buffer=10),
    ),
  ),
}
register(SCHEDULES)
