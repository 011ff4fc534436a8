"""Timetables that are written by hand."""

import numpy as np
import pytest

from fedjax_opt import schedules, systems
from fedjax_opt.schedules import timetable as module
from tests.checks import given
from tests.checks.given import refused

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


def test_a_client_sent_out_twice_from_one_version_has_two_draws():
  table = schedules.by_hand(CLIENTS, VERSIONS)
  np.testing.assert_array_equal(table.draws, [[0, 0], [0, 1], [0, 0]])


def test_draws_name_each_sending_once():
  generator = np.random.default_rng(0)
  clients = generator.integers(-1, 4, (50, 6))
  versions = generator.integers(0, 3, (50, 6))
  draws = module.draws_of(clients, versions)
  who = clients >= 0
  names = np.stack([clients[who], versions[who], draws[who]], 1)
  assert len(np.unique(names, axis=0)) == who.sum()
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


CASES = refused(
  {
    (make, ValueError): {
      "clients: has -2; must be in [-1, inf)": {"clients": [[-2]]},
      "clients: is int64[2]; must be whole numbers of shape [T, K]": {
        "clients": [0, 1]
      },
      "versions: is int64[1, 2]; must be of shape [3, 2], as clients": {
        "versions": [[0, 0]]
      },
      "versions[1, 0]=2: must be at most 1, the newest that step has": {
        "versions": [[0, 0], [2, 0], [0, 0]]
      },
      "share: has 0.0; must be in (0, 1]": {"share": np.zeros((3, 2))},
      "time: is int64[2]; must be of shape [3], one for each row of clients": {
        "time": [1, 2]
      },
      "time: runs back; must not decrease": {"time": [1, 3, 2]},
      "starts[1, 0]=0.5: must not be before its version is made": {
        "starts": [[0, 0], [0.5, 1], [2, 2]]
      },
      "ends[1, 1]=1: must be after its start": {
        "ends": [[1, 1], [2, 1], [3, 3]]
      },
      "time[0]=1: must not be before an end that the step uses": {
        "ends": [[1.5, 1], [2, 2], [3, 3]]
      },
    },
    (make, TypeError): {
      "clients=[['a']]: must be whole numbers of shape [T, K]": {
        "clients": [["a"]]
      },
      "taken=[[1, 1], [1, 1], [1, 1]]: must be an array of bool": {
        "taken": np.ones((3, 2), int).tolist()
      },
    },
    (check, ValueError): {
      "schedule: has client 2; must be below the number of clients, 2": 2,
    },
  }
)


@pytest.mark.parametrize(("call", "kind", "line"), CASES)
def test_is_refused(call, kind, line):
  given.check(call, kind, line)


def test_clients_of_the_population_are_accepted():
  check(3)


def test_the_steps_within_a_time_budget():
  durations = systems.sample(20, systems.lognormal(1.0, 1.0)).durations()
  table = schedules.buffered(durations, 30, 8, 2, max_staleness=3)
  found = schedules.until(table, table.time[9])
  assert found.lost.steps.max() < 10 <= table.lost.steps.max()
  for name in ("clients", "versions", "taken", "time", "ends"):
    whole = getattr(table, name)
    np.testing.assert_array_equal(getattr(found, name), whole[:10])
  with pytest.raises(ValueError, match=r"^seconds=0.001: the first server"):
    schedules.until(table, 0.001)
