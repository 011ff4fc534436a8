"""Schedules, against a loop that looks at one client at a time."""

import numpy as np
import pytest

from fedjax_opt import schedules, systems
from fedjax_opt.schedules import sending
from tests.checks import given

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


def same(one, other):
  for name in one._fields[:9]:
    np.testing.assert_array_equal(
      getattr(one, name), getattr(other, name), err_msg=name
    )
  for a, b in zip(one.lost, other.lost, strict=True):
    np.testing.assert_array_equal(a, b)


def plain_loop(system, steps, concurrency, buffer, max_staleness=None):
  """(client, start version, staleness, start, end) of each that is used."""
  who, how = (
    np.random.default_rng(seed).random(5000)
    for seed in np.random.SeedSequence(system.seed).spawn(2)
  )
  idle, away, used, sent = list(range(12)), [], [], 0
  version, now = 0, 0.0
  while True:
    while len(away) < concurrency:
      place = int(who[sent] * len(idle))
      client = idle[place]
      idle[place] = idle[-1]
      del idle[-1]
      seconds = system.seconds_per_step[client]
      if system.redrawn:
        kind = system.redrawn[system.groups[client]]
        seconds = kind.quantile(how[sent : sent + 1])[0]
      away.append((client, version, now, now + seconds))
      sent += 1
    now = min(end for *_, end in away)
    for one in [one for one in away if one[3] == now]:
      away.remove(one)
      idle.append(one[0])
      staleness = version - one[1]
      if max_staleness is not None and staleness > max_staleness:
        continue
      used.append((one[0], one[1], staleness, one[2], now))
      version += len(used) % buffer == 0
      if version == steps:
        return used


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize(
  ("concurrency", "buffer", "most"),
  [(1, 1, None), (6, 1, None), (6, 4, None), (5, 5, None), (12, 3, 2)],
)
def test_buffered_is_the_plain_loop(name, concurrency, buffer, most):
  system = SYSTEMS[name]
  table = schedules.buffered(system.durations(), 60, concurrency, buffer, most)
  columns = (
    table.clients, table.versions, table.staleness, table.starts, table.ends
  )  # fmt: skip
  found = np.stack([column.ravel() for column in columns], 1)
  used = plain_loop(system, 60, concurrency, buffer, most)
  np.testing.assert_array_equal(found, used)
  np.testing.assert_array_equal(table.time, table.ends[:, -1])


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("most", [None, 1])
def test_events_that_are_written_give_the_same_timetable(name, most, tmp_path):
  table = schedules.buffered(SYSTEMS[name].durations(), 50, 8, 3, most)
  schedules.write_events(table, tmp_path / "events.csv")
  same(schedules.replay(tmp_path / "events.csv", 3), table)
  assert bool(len(table.lost.clients)) == (most == 1)


def test_equal_durations_and_as_many_away_as_arrive_are_synchronous_rounds():
  durations = SYSTEMS["constant"].durations(steps=3)
  same(
    schedules.buffered(durations, 40, 5, 5),
    schedules.synchronous(durations, 40, 5),
  )


def test_blocks_of_random_numbers_do_not_matter(monkeypatch):
  durations = SYSTEMS["redrawn"].durations()
  whole = schedules.buffered(durations, 50, 6, 2)
  monkeypatch.setattr(sending, "_BLOCK", 7)
  same(schedules.buffered(durations, 50, 6, 2), whole)


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


def test_who_is_late_sends_its_whole_steps():
  # Ten steps and two seconds of transfer by second 12: 10, 5 and 0 steps.
  durations = of_seconds(1, 2, 11, steps=10)
  durations = durations._replace(transfer=np.full(3, 2.0))
  table = schedules.synchronous(durations, 4, 3, deadline=12.0, partial=True)
  expected = np.array([1, 0.5, 1], np.float32)[table.clients]
  np.testing.assert_array_equal(table.share, expected)
  np.testing.assert_array_equal(table.taken, table.clients != 2)
  assert (table.ends <= table.time[:, None]).all()


DURATIONS = SYSTEMS["constant"].durations()


@pytest.mark.parametrize(
  ("call", "line"),
  [
    (
      lambda: schedules.buffered(DURATIONS, 2, 13),
      "concurrency=13: must be at most the number of clients, 12",
    ),
    (
      lambda: schedules.buffered(DURATIONS, 2, 3, 0),
      "buffer=0: must be at least 1",
    ),
    (
      lambda: schedules.synchronous(DURATIONS, 2, 10, over_selection=3),
      "cohort_size + over_selection=13: must be at most the number of clients, "
      "12",
    ),
    (
      lambda: schedules.synchronous(DURATIONS, 2, 10, partial=True),
      "partial=True: needs a deadline",
    ),
    (
      lambda: schedules.synchronous(DURATIONS, 2, 10, deadline=0.0),
      "deadline=0: must be in (0, inf)",
    ),
  ],
)
def test_is_refused(call, line):
  given.check(call, ValueError, line)


@pytest.mark.parametrize(
  ("text", "line"),
  [
    ("client,start\n0,1\n", "has no column end; must have client, start, end"),
    (
      "client,start,end\n0.5,0,1\n",
      "client: must be whole numbers from 0 to 2147483647",
    ),
    ("client,start,end\n0,1,1\n", "an end is not after its start"),
    (
      "client,start,end\n0,0,2\n0,1,3\n",
      "a client is sent out while it is away",
    ),
    (
      "client,start,end,taken\n0,0,2,yes\n",
      "taken: must be True or False",
    ),
    (
      "client,start,end\n0,0,2\n",
      "has 1 arrivals; must have at least buffer=2",
    ),
  ],
)
def test_a_wrong_trace_is_refused(text, line, tmp_path):
  path = tmp_path / "trace.csv"
  path.write_text(text)
  given.check(lambda: schedules.replay(path, 2), ValueError, f"{path}: {line}")
