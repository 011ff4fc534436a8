"""Distributions of speed, against those of SciPy, and tables of devices."""

import pathlib

import numpy as np
import pytest
from scipy import stats

from fedjax_opt import systems
from tests.checks import given

SHARES = np.linspace(0.001, 0.999, 201)
EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "devices.csv"


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
  other = systems.sample(100, kinds, seed=1)
  assert (other.groups != system.groups).any()
  again = systems.sample(100, kinds, seed=0)
  np.testing.assert_array_equal(again.groups, system.groups)


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
  own = systems.from_csv(EXAMPLE)
  assert len(own.seconds_per_step) == 200
  drawn = systems.from_csv(EXAMPLE, 1000, seed=2)
  assert set(drawn.seconds_per_step) <= set(own.seconds_per_step)
  pairs = set(zip(own.seconds_per_step, own.bytes_up, strict=True))
  assert set(zip(drawn.seconds_per_step, drawn.bytes_up, strict=True)) <= pairs


@pytest.mark.parametrize(
  ("text", "line"),
  [
    (
      "seconds_per_step,bytes_down\n1,1\n",
      "has no column bytes_up; must have seconds_per_step, bytes_down, "
      "bytes_up",
    ),
    (
      "seconds_per_step,bytes_down,bytes_up\n1,1,1\n1,0,1\n",
      "line 3: bytes_down=0: must be a positive number",
    ),
    (
      "seconds_per_step,bytes_down,bytes_up\n",
      "has no lines; must have one for each device",
    ),
  ],
)
def test_a_wrong_table_is_refused(text, line, tmp_path):
  path = tmp_path / "devices.csv"
  path.write_text(text)
  given.check(lambda: systems.from_csv(path), ValueError, f"{path}: {line}")


@pytest.mark.parametrize(
  ("call", "line"),
  [
    (lambda: systems.uniform(2, 1), "high=1: must be at least low=2"),
    (lambda: systems.constant(0.0), "value=0: must be in (0, inf)"),
    (
      lambda: systems.sample(2, []),
      "seconds_per_step=[]: must be distributions",
    ),
    (
      lambda: systems.sample(2, systems.constant(1.0)).durations(0),
      "steps=0: must be in [1, inf)",
    ),
  ],
)
def test_is_refused(call, line):
  given.check(call, ValueError, line)
