"""What became of the clients' time."""

import numpy as np
import pytest

from fedjax_opt import plots, schedules, systems

# Client 2 arrives after the step that nobody waits for; a place is free.
TABLE = schedules.by_hand(
  [[0, 1, 2], [0, 3, -1]],
  [[0, 0, 0], [0, 1, 1]],
  taken=[[True, True, False], [True, True, False]],
  time=[4.0, 10.0],
  starts=[[0, 0, 0], [1, 4, 4]],
  ends=[[1, 4, 6], [6, 10, 10]],
)


def test_a_table_by_hand():
  found = schedules.usage(TABLE, 5)
  np.testing.assert_array_equal(found.updates, [2, 1, 0, 1, 0])
  assert found[:7] == (10.0, 5, 4, 1, 0, 0.25, 1)
  assert found.waiting == (3 + 0 + 4 + 0) / 4
  assert found.at_work == (1 + 4 + 6 + 5 + 6) / 10
  assert found.used_time == 16 / 22


def test_what_is_too_stale_is_lost():
  durations = systems.sample(30, systems.lognormal(1.0, 2.0)).durations()
  table = schedules.buffered(durations, 50, 10, 2, max_staleness=4)
  found = schedules.usage(table, 30)
  assert found.stale == len(table.lost.clients) > 0
  assert (found.used, found.late, found.sent) == (100, 0, 100 + found.stale)
  assert found.max_staleness <= 4
  first = schedules.usage(table.first_steps(20), 30)
  assert first.used == 40
  assert first.seconds == table.time[19]


def test_groups_by_speed():
  seconds = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
  np.testing.assert_array_equal(
    schedules.speed_groups(seconds, 2), [1, 0, 1, 0, 0]
  )
  np.testing.assert_array_equal(schedules.speed_groups(seconds[:2]), [1, 0])


def test_typical_seconds_are_means_of_what_is_drawn_each_time():
  kinds = [systems.uniform(1, 2), systems.uniform(50, 80)]
  system = systems.sample(10, kinds, redraw=True, of="round")
  durations = system.durations(7)
  expected = np.where(durations.groups == 0, 1.5, 65)
  np.testing.assert_allclose(durations.typical, expected, rtol=1e-6)
  once = systems.sample(10, systems.uniform(1, 2)).durations(3, 0, 0)
  np.testing.assert_array_equal(once.typical, 3 * once.seconds_per_step)


def test_the_picture_has_who_is_away():
  pytest.importorskip("matplotlib")
  figure = plots.timetable(TABLE, np.array([0, 0, 1, 1, 1]), None)
  left, right = figure.axes
  bars = [path for bar in left.collections for path in bar.get_paths()]
  widths = sorted(path.get_extents().width for path in bars)
  np.testing.assert_allclose(widths, [1, 4, 5, 6, 6])
  updates = [bar.get_height() for bar in right.patches[2:4]]
  np.testing.assert_allclose(updates, [75, 25])
