"""Schedules against a loop over clients, timetables by hand, and their use."""

import numpy as np
import pytest

from fedjax_opt import plots, schedules, systems
from fedjax_opt.schedules import sending
from fedjax_opt.schedules import timetable as module
from tests.helpers import refusals

SYSTEMS = {
  "constant": systems.sample(12, systems.constant(1.0)),
  "lognormal": systems.sample(12, systems.lognormal(1.0, 1.0), seed=3),
  "redrawn": systems.sample(
    12,
    [systems.uniform(1, 2), systems.uniform(50, 80)],
    redraw=True,
    seed=1,
  ),
  "ties": systems.sample(12, systems.zipf(1.0, 3), redraw=True, seed=2),
}


def same(table, expected):
  for name in table._fields[:9]:
    np.testing.assert_array_equal(
      getattr(table, name), getattr(expected, name), err_msg=name
    )
  for rows, expected_rows in zip(table.lost, expected.lost, strict=True):
    np.testing.assert_array_equal(rows, expected_rows)


def plain_loop(system, steps, concurrency, buffer, max_staleness=None):
  """(client, start version, staleness, start, end) of each that is used."""
  draws, speeds = (
    np.random.default_rng(seed).random(5000)
    for seed in np.random.SeedSequence(system.seed).spawn(2)
  )
  idle, flying, updates, num_sent = list(range(12)), [], [], 0
  version, now = 0, 0.0
  while True:
    while len(flying) < concurrency:
      index = int(draws[num_sent] * len(idle))
      client = idle[index]
      idle[index] = idle[-1]
      del idle[-1]
      seconds = system.seconds_per_step[client]
      if system.redrawn:
        kind = system.redrawn[system.groups[client]]
        seconds = kind.quantile(speeds[num_sent : num_sent + 1])[0]
      flying.append((client, version, now, now + seconds))
      num_sent += 1
    now = min(end for *_, end in flying)
    for event in [event for event in flying if event[3] == now]:
      flying.remove(event)
      idle.append(event[0])
      staleness = version - event[1]
      if max_staleness is not None and staleness > max_staleness:
        continue
      updates.append((event[0], event[1], staleness, event[2], now))
      version += len(updates) % buffer == 0
      if version == steps:
        return updates


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize(
  ("concurrency", "buffer", "limit"),
  [(1, 1, None), (6, 1, None), (6, 4, None), (5, 5, None), (12, 3, 2)],
)
def test_buffered_is_the_plain_loop(name, concurrency, buffer, limit):
  system = SYSTEMS[name]
  table = schedules.buffered(system.durations(), 60, concurrency, buffer, limit)
  columns = (
    table.clients, table.versions, table.staleness, table.starts, table.ends
  )  # fmt: skip
  actual = np.stack([column.ravel() for column in columns], 1)
  expected = plain_loop(system, 60, concurrency, buffer, limit)
  np.testing.assert_array_equal(actual, expected)
  np.testing.assert_array_equal(table.time, table.ends[:, -1])


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("limit", [None, 1])
def test_events_that_are_written_give_the_same_timetable(name, limit, tmp_path):
  table = schedules.buffered(SYSTEMS[name].durations(), 50, 8, 3, limit)
  schedules.write_events(table, tmp_path / "events.csv")
  same(schedules.replay(tmp_path / "events.csv", 3), table)
  assert bool(len(table.lost.clients)) == (limit == 1)


def test_equal_durations_and_as_many_away_as_arrive_are_synchronous_rounds():
  durations = SYSTEMS["constant"].durations(steps=3)
  same(
    schedules.buffered(durations, 40, 5, 5),
    schedules.synchronous(durations, 40, 5),
  )


def test_blocks_of_random_numbers_do_not_matter(monkeypatch):
  durations = SYSTEMS["redrawn"].durations()
  table = schedules.buffered(durations, 50, 6, 2)
  monkeypatch.setattr(sending, "_BLOCK_SIZE", 7)
  same(schedules.buffered(durations, 50, 6, 2), table)


def of_seconds(*seconds, **work):
  system = systems.sample(len(seconds), systems.constant(1.0))
  system = system._replace(seconds_per_step=np.array(seconds, float))
  return system.durations(**work)


def test_rounds_wait_for_the_last():
  table = schedules.synchronous(of_seconds(1, 3, 2), 2, 3, server_seconds=0.5)
  np.testing.assert_array_equal(table.time, [3.5, 7])
  np.testing.assert_array_equal(
    np.sort(table.ends, 1), [[1, 2, 3], [4.5, 5.5, 6.5]]
  )
  assert table.taken.all()
  np.testing.assert_array_equal(np.sort(table.clients, 1), [[0, 1, 2]] * 2)


def test_over_selection_takes_the_first():
  table = schedules.synchronous(of_seconds(1, 9, 2, 5), 3, 2, over_selection=2)
  for clients, taken in zip(table.clients, table.taken, strict=True):
    assert set(clients[taken]) == {0, 2}
  np.testing.assert_array_equal(table.time, [2, 4, 6])


def test_who_is_late_is_dropped():
  table = schedules.synchronous(of_seconds(1, 9, 2), 2, 3, deadline=2.0)
  np.testing.assert_array_equal(table.taken, table.clients != 1)
  np.testing.assert_array_equal(table.time, [2, 4])
  nobody = schedules.synchronous(of_seconds(3, 4), 2, 2, deadline=1.0)
  assert not nobody.taken.any()
  np.testing.assert_array_equal(nobody.time, [1, 2])


@pytest.mark.parametrize(("per_step", "half"), [(1, 0.5), (2, 0.4)])
def test_who_is_late_sends_its_whole_steps(per_step, half):
  # Ten gradients and two seconds of transfer by second 12: 10, 5 and 0 of them.
  durations = of_seconds(1, 2, 11, steps=10, per_step=per_step)
  durations = durations._replace(transfer=np.full(3, 2.0))
  table = schedules.synchronous(durations, 4, 3, deadline=12.0, partial=True)
  expected = np.array([1, half, 1], np.float32)[table.clients]
  np.testing.assert_array_equal(table.share, expected)
  np.testing.assert_array_equal(table.taken, table.clients != 2)
  assert (table.ends <= table.time[:, None]).all()


DURATIONS = SYSTEMS["constant"].durations()


def trace(text):
  replay = lambda file: schedules.replay(file, 2)
  return refusals.of_file(replay, "trace.csv", text)


# What became of the clients' time.


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
  use = schedules.usage(TABLE, 5)
  np.testing.assert_array_equal(use.updates, [2, 1, 0, 1, 0])
  assert use[:7] == (10.0, 5, 4, 1, 0, 0.25, 1)
  assert use.waiting == (3 + 0 + 4 + 0) / 4
  assert use.at_work == (1 + 4 + 6 + 5 + 6) / 10
  assert use.used_time == 16 / 22


def test_what_is_too_stale_is_lost():
  durations = systems.sample(30, systems.lognormal(1.0, 2.0)).durations()
  table = schedules.buffered(durations, 50, 10, 2, max_staleness=4)
  use = schedules.usage(table, 30)
  assert use.stale == len(table.lost.clients) > 0
  assert (use.used, use.late, use.sent) == (100, 0, 100 + use.stale)
  assert use.max_staleness <= 4
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
  for group in (-1, 5):
    with pytest.raises(ValueError, match=rf"groups: has {group}; must be in"):
      plots.timetable(TABLE, np.array([0, 0, 1, 1, group]), None)


# Timetables that are written by hand.


CLIENTS = [[0, 1], [2, 0], [0, -1]]
VERSIONS = [[0, 0], [0, 0], [1, 0]]


def test_defaults_are_those_of_synchronous_rounds():
  table = schedules.by_hand([[3, 1], [2, 0]])
  np.testing.assert_array_equal(table.versions, [[0, 0], [1, 1]])
  np.testing.assert_array_equal(table.starts, [[0, 0], [1, 1]])
  np.testing.assert_array_equal(table.ends, [[1, 1], [2, 2]])
  np.testing.assert_array_equal(table.time, [1, 2])
  assert table.taken.all()
  assert (table.share == 1).all()
  assert not table.staleness.any()
  assert not table.draws.any()
  assert not len(table.lost.clients)


def test_a_free_place_is_nobody():
  table = schedules.by_hand(CLIENTS, VERSIONS)
  np.testing.assert_array_equal(table.staleness, [[0, 0], [1, 1], [1, 0]])
  np.testing.assert_array_equal(
    table.taken, [[True, True], [True, True], [True, False]]
  )
  events = table.events()
  np.testing.assert_array_equal(events.clients, [0, 1, 2, 0, 0])
  np.testing.assert_array_equal(events.staleness, [0, 0, 1, 1, 1])
  assert events.taken.all()


def test_draws_name_each_sending_once():
  generator = np.random.default_rng(0)
  clients = generator.integers(-1, 4, (50, 6))
  versions = generator.integers(0, 3, (50, 6))
  draws = module.draws_of(clients, versions)
  is_used = clients >= 0
  names = np.stack([clients[is_used], versions[is_used], draws[is_used]], 1)
  assert len(np.unique(names, axis=0)) == is_used.sum()
  for name in np.unique(names[:, :2], axis=0):
    of_pair = names[(names[:, :2] == name).all(1), 2]
    np.testing.assert_array_equal(of_pair, np.arange(len(of_pair)))


def test_events_are_in_the_order_of_their_ends():
  ends = [[0.5, 0.25], [2, 0.75]]
  table = schedules.by_hand(
    [[0, 1], [2, 3]], [[0, 0], [0, 0]], taken=[[True, True], [True, False]],
    ends=ends,
  )  # fmt: skip
  events = table.events()
  np.testing.assert_array_equal(events.clients, [1, 0, 3, 2])
  np.testing.assert_array_equal(events.steps, [0, 0, 1, 1])
  np.testing.assert_array_equal(events.taken, [True, True, False, True])


def test_one_that_nobody_waits_for_may_end_late():
  table = schedules.by_hand([[0, 1]], taken=[[True, False]], ends=[[1.0, 9.0]])
  assert table.time[0] == 1


def make(bad):
  schedules.by_hand(**{"clients": CLIENTS} | bad)


def check(num_clients):
  module.check_clients(schedules.by_hand(CLIENTS), num_clients)


test_is_refused = refusals.of_table(
  "schedules.txt", schedules, trace, make, check, DURATIONS=DURATIONS
)


def test_clients_of_the_population_are_accepted():
  check(3)


def test_the_steps_within_a_time_budget():
  durations = systems.sample(20, systems.lognormal(1.0, 1.0)).durations()
  table = schedules.buffered(durations, 30, 8, 2, max_staleness=3)
  number = table.lost.steps[-1]  # Of the step after the last loss.
  seconds = np.nextafter(table.time[number], 0)
  table_cut = schedules.until(table, seconds)
  assert table_cut.lost.steps.max() < number == len(table_cut.time) > 5
  same(schedules.buffered(durations, 30, 8, 2, 3, seconds=seconds), table_cut)
  with pytest.raises(ValueError, match=r"^seconds=0.001: the first server"):
    schedules.until(table, 0.001)
