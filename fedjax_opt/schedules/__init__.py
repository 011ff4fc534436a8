"""Who is sent out and who arrives when, made on the host before the rounds."""

from fedjax_opt.schedules.buffered import buffered, replay, write_events
from fedjax_opt.schedules.synchronous import synchronous
from fedjax_opt.schedules.timetable import Events, Timetable, by_hand

__all__ = [
  "Events",
  "Timetable",
  "buffered",
  "by_hand",
  "replay",
  "synchronous",
  "write_events",
]
