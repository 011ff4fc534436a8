"""Who is sent out and who arrives when, made on the host before the rounds."""

from fedjax_opt.schedules.timetable import Events, Timetable, by_hand

__all__ = ["Events", "Timetable", "by_hand"]
