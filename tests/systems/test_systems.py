"""Speeds of clients, tables of devices, and when clients can be sent out."""

import math
import pathlib

import numpy as np
import pytest
from scipy import stats

from fedjax_opt import schedules, systems
from tests.helpers import refusals
from tests.helpers.commands import prepare

SHARES = np.linspace(0.001, 0.999, 201)
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "devices.csv"


@pytest.mark.parametrize(
  ("made", "expected"),
  [
    (systems.uniform(3.0, 5.0), stats.uniform(3, 2)),
    (systems.lognormal(2.0, 0.7), stats.lognorm(0.7, scale=2)),
    (systems.half_normal(3.0), stats.halfnorm(scale=3)),
    (systems.exponential(2.0), stats.expon(scale=2)),
    (systems.zipf(1.3, 50), stats.zipfian(1.3, 50)),
  ],
)
def test_quantiles_are_those_of_scipy(made, expected):
  np.testing.assert_allclose(
    made.quantile(SHARES), expected.ppf(SHARES), rtol=1e-9
  )
  assert (made.quantile(np.array([0.0, 1 - 2.0**-53])) > 0).all()
  assert np.isfinite(made.quantile(np.array([0.0, 1 - 2.0**-53]))).all()


def test_groups_are_of_equal_size_and_chosen_at_random():
  kinds = [systems.constant(value) for value in (1.0, 2.0, 3.0, 4.0)]
  system = systems.sample(100, kinds, seed=0)
  np.testing.assert_array_equal(np.bincount(system.groups), [25] * 4)
  np.testing.assert_array_equal(system.seconds_per_step, system.groups + 1)
  assert (np.diff(system.groups) < 0).any()
  other_seed = systems.sample(100, kinds, seed=1)
  assert (other_seed.groups != system.groups).any()
  repeated = systems.sample(100, kinds, seed=0)
  np.testing.assert_array_equal(repeated.groups, system.groups)


def test_bytes_take_time_and_steps_are_of_each_client():
  system = systems.sample(
    2,
    systems.constant(2.0),
    bytes_down=systems.constant(10.0),
    bytes_up=systems.constant(5.0),
  )
  durations = system.durations([1, 3], bytes_down=20, bytes_up=20)
  np.testing.assert_array_equal(durations.transfer, [6, 6])
  np.testing.assert_array_equal(durations.steps, [1, 3])
  free = systems.sample(2, systems.constant(2.0)).durations(1, 1e9, 1e9)
  np.testing.assert_array_equal(free.transfer, [0, 0])


def test_devices_of_a_table():
  system = systems.from_csv(EXAMPLE)
  assert len(system.seconds_per_step) == 200
  draws = systems.from_csv(EXAMPLE, 1000, seed=2)
  assert set(draws.seconds_per_step) <= set(system.seconds_per_step)
  pairs = set(zip(system.seconds_per_step, system.bytes_up, strict=True))
  assert set(zip(draws.seconds_per_step, draws.bytes_up, strict=True)) <= pairs


def devices(text):
  return refusals.of_file(systems.from_csv, "devices.csv", text)


def periods(text):
  read = lambda file: systems.periods(file, 3, repeat=10.0)
  return refusals.of_file(read, "on.csv", text)


test_is_refused = refusals.of_table("systems.txt", systems, devices, periods)


# When clients can be sent out.


M = 40


def share_on(availability, times):
  return np.mean(
    [
      [availability.is_on(c, float(time)) for time in times]
      for c in range(availability.num_clients)
    ],
    axis=1,
  )


def test_a_cycle_is_the_same_part_of_each_period():
  availability = systems.cyclic(M, period=10.0, share=0.3, seed=1)
  times = np.arange(0, 50, 0.1)
  np.testing.assert_allclose(share_on(availability, times), 0.3, atol=0.005)
  for client in range(M):
    is_on = [availability.is_on(client, float(time)) for time in times]
    assert is_on[:100] == is_on[100:200]
    time_on = availability.next_on(client, 3.0)
    assert availability.is_on(client, time_on)
    assert 3.0 <= time_on <= 10.0
    assert time_on == 3.0 or not availability.is_on(client, time_on - 1e-6)


def test_a_chain_is_on_for_its_share_whoever_is_asked_first():
  make = lambda: systems.markov(M, mean_on=3.0, mean_off=1.0, seed=2)
  chain = make()
  shares = share_on(chain, np.arange(0, 2000, 2.0))
  np.testing.assert_allclose(shares.mean(), 0.75, atol=0.02)
  chain_2 = make()
  for client in reversed(range(M)):
    for time in (900.0, 0.0, 77.0):
      assert chain_2.next_on(client, time) == chain.next_on(client, time)


def test_periods_of_a_table(tmp_path):
  path = tmp_path / "on.csv"
  path.write_text("client,start,end\n0,2,3\n0,5,7\n1,0,4\n")
  once = systems.periods(path, 3)
  nexts = [once.next_on(0, time) for time in (0.0, 2.5, 3.0, 6.9, 7.0)]
  assert nexts == [2.0, 2.5, 5.0, 6.9, math.inf]
  assert once.next_on(2, 0.0) == math.inf
  daily = systems.periods(path, 3, repeat=10.0)
  nexts = [daily.next_on(0, time) for time in (7.0, 22.5, 38.0)]
  assert nexts == [12.0, 22.5, 42.0]


KINDS = {
  "cyclic": systems.cyclic(M, period=30.0, share=0.2, seed=0),
  "markov": systems.markov(M, mean_on=5.0, mean_off=20.0, seed=0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["buffered", "synchronous"])
def test_only_those_that_are_there_are_sent_out(kind, name):
  available = KINDS[kind]
  system = systems.sample(M, systems.lognormal(2.0, 1.0)).when(available)
  durations = system.durations()
  table = {
    "buffered": lambda: schedules.buffered(durations, 60, 20, 4),
    "synchronous": lambda: schedules.synchronous(durations, 60, 8),
  }[name]()
  events = table.events()
  on = [
    available.is_on(client, start)
    for client, start in zip(
      events.clients.tolist(), events.starts.tolist(), strict=True
    )
  ]
  assert all(on)
  if name == "buffered":  # Fewer are there than may be away.
    assert schedules.usage(table, M).at_work < 15


def test_all_are_always_there():
  system = systems.sample(M, systems.lognormal(2.0, 1.0))
  always = systems.cyclic(M, share=1.0)
  tables = [
    schedules.buffered(variant.durations(), 60, 20, 4)
    for variant in (system, system.when(always))
  ]
  np.testing.assert_array_equal(tables[0].clients, tables[1].clients)


def test_nobody_comes_any_more(tmp_path):
  path = tmp_path / "on.csv"
  path.write_text("client,start,end\n0,2,3\n1,0,4\n")
  system = systems.sample(2, systems.constant(1.0))
  durations = system.when(systems.periods(path, 2)).durations()
  early = schedules.buffered(durations, 60, 1, 1, seconds=2.0)
  assert 0 < len(early.time) < 60
  with pytest.raises(ValueError, match="no client is ever available again"):
    schedules.buffered(durations, 60, 2)
  # In turn they are there, and together for a second.
  assert schedules.synchronous(durations, 1, 2).time.tolist() == [3]
  for rounds, number in ((60, 1), (2, 2)):
    message = f"durations: {number} clients are never available at once again"
    with pytest.raises(ValueError, match=message):
      schedules.synchronous(durations, rounds, number)


def test_a_round_begins_when_enough_are_there_together():
  available = systems.cyclic(M, period=30.0, share=0.2, seed=0)
  durations = systems.sample(M, systems.constant(1.0)).when(available)
  table = schedules.synchronous(durations.durations(), 20, 8)
  begins = table.events().starts.reshape(20, 8)[:, 0]
  count = lambda t: sum(available.is_on(c, t) for c in range(M))
  before = np.concatenate([[0], table.time[:-1]])
  for first, at in zip(before.tolist(), begins.tolist(), strict=True):
    assert count(at) >= 8
    waited = np.arange(first, at - 1e-3, 0.01).tolist()
    assert all(count(t) < 8 for t in waited)


def test_the_flags_of_availability():
  flags = (
    "--task=digits_logistic", "--num_clients=20", "--system=constant",
    "--cohort_size=4", "--rounds=20",
  )  # fmt: skip
  time = lambda *more: prepare(*flags, *more).timetables[0].time[-1]
  rare = ("--availability=cyclic", "--availability_share=0.05")
  assert time() < time(*rare, "--availability_period=20")
  assert time() < time("--availability=markov", "--availability_mean_off=1e3")
