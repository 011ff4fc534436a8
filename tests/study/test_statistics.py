"""Statistics over seeds and tasks, against rliable; of tuning and spending."""

import itertools
import json
import pathlib

import numpy as np
import pytest

import fedjax_opt as fo
from fedjax_opt.results.history import History
from fedjax_opt.study import bootstrap
from tests.helpers.histories import of_values

NAN = float("nan")
INF = float("inf")
statistics = fo.statistics
# What rliable 1.2.0 computed, with the resamples that it drew.
RLIABLE = json.loads(
  (pathlib.Path(__file__).parent / "rliable.json").read_text()
)


# Resamples.


def test_resamples_follow_the_seed_and_those_of_tasks_are_drawn_apart():
  draw = lambda seed: statistics.resamples(400, 5, seed, num_tasks=2)
  indices = draw(3)
  assert statistics.resamples(400, 5, 3).shape == (400, 5)
  assert indices.shape == (400, 5, 2)
  assert set(indices.ravel()) == set(range(5))
  np.testing.assert_array_equal(indices, draw(3))
  assert (indices != draw(4)).any()
  assert (indices[..., 0] != indices[..., 1]).any()


def test_the_seed_decides_an_interval():
  values = np.random.default_rng(0).normal(size=(5, 2))
  for function in (statistics.mean_interval, statistics.interquartile_mean):
    first, again, other = (
      function(values, num_resamples=50, seed=seed) for seed in (7, 7, 8)
    )
    np.testing.assert_array_equal(first, again)
    assert (np.array(first.low) != other.low).any()


@pytest.fixture
def draw_these(monkeypatch):
  """Lets intervals be made of given resamples, one for each set of runs."""

  def draw_these(*resamples):
    arrays = map(np.array, resamples)
    monkeypatch.setattr(bootstrap, "resamples", lambda *_, **__: next(arrays))

  bootstrap._kept_counts.cache_clear()
  yield draw_these
  bootstrap._kept_counts.cache_clear()


# Against rliable.


@pytest.mark.parametrize("case", RLIABLE, ids=lambda case: case["name"])
def test_percentile_intervals_are_those_of_rliable(case, draw_these):
  draws, scores = [case["indices"]], [case["scores"]]
  if case["name"] == "probability_of_improvement":
    draws, scores = zip(*case["indices"], strict=True), case["scores"]
  elif case["name"] == "mean_interval":
    scores = [np.array(scores[0])[:, 0]]
  draw_these(*draws)
  if "thresholds" in case:
    scores.append(case["thresholds"])
  interval = getattr(statistics, case["name"])(
    *scores, confidence=0.9, method="percentile"
  )
  for name in ("estimate", "low", "high"):
    np.testing.assert_allclose(
      np.atleast_1d(getattr(interval, name)), case[name], rtol=0, atol=1e-13
    )


# Intervals of means.


@pytest.mark.parametrize(
  ("num_seeds", "paired", "how", "low", "high"),
  [
    (2, False, {}, 0.93, 0.97),
    (3, True, {}, 0.93, 0.97),
    (4, False, {}, 0.93, 0.97),
    (5, True, {}, 0.93, 0.97),
    (10, False, {}, 0.93, 0.97),
    (20, True, {}, 0.93, 0.97),
    (5, False, {"confidence": 0.5}, 0.45, 0.55),
    (5, False, {"confidence": 0.8}, 0.76, 0.84),
    (5, False, {"confidence": 0.99}, 0.98, 1.0),
    # Plain percentiles are too narrow for few seeds.
    (5, False, {"method": "percentile"}, 0.8, 0.87),
  ],
)
def test_intervals_of_means_cover_as_said(num_seeds, paired, how, low, high):
  rng = np.random.default_rng(num_seeds)
  values = 3 + rng.normal(size=(num_seeds, 2000))
  if paired:
    # What the seed does to both methods is ten times their difference.
    of_seed = 10 * rng.normal(size=values.shape)
    a, b = values + of_seed, of_seed
    interval = statistics.paired_difference(a, b, num_resamples=2000, **how)
  else:
    interval = statistics.mean_interval(values, num_resamples=2000, **how)
  covered = (interval.low <= 3) & (interval.high >= 3)
  assert low <= covered.mean() <= high


def test_the_width_is_students_and_leans_to_the_spread_out_side():
  values = [0.0, 0.0, 0.1, 2.0]
  mean, low, high = statistics.mean_interval(values)
  # t = 3.182 for 3 degrees of freedom.
  width = 2 * 3.1824463 * np.std(values, ddof=1) / 2
  assert high - low == pytest.approx(width, rel=1e-7)
  assert high - mean > 1.3 * (mean - low) > 0


def test_equal_values_have_an_interval_without_width():
  for method in ("student", "percentile"):
    interval = statistics.mean_interval([0.1] * 3, method=method)
    assert interval == pytest.approx((0.1, 0.1, 0.1), abs=1e-15)


def test_small_confidence_of_two_seeds_keeps_the_mean_inside():
  # Both percentiles are the mean itself: they say nothing of the sides.
  mean, low, high = statistics.mean_interval([0.0, 1.0], 0.1)
  assert mean - low == pytest.approx(high - mean)
  assert high > low


def test_the_mean_is_inside_where_both_percentiles_are_on_one_side(draw_these):
  # All miss the large value.
  draw_these(np.array([[0, 1, 2, 0], [0, 1, 2, 2]])[..., None])
  mean, low, high = statistics.mean_interval([0.0, 0.01, 0.02, 10.0])
  assert low < mean == high


def test_one_seed_has_no_interval():
  values = [[0.5, 0.6]]
  interval = statistics.mean_interval(values)
  np.testing.assert_array_equal(interval.estimate, [0.5, 0.6])
  assert np.isnan([interval.low, interval.high]).all()
  for function in (
    lambda: statistics.interquartile_mean(values),
    lambda: statistics.probability_of_improvement(values, values),
    lambda: statistics.performance_profile(values, [0.55]),
  ):
    interval = function()
    assert np.isfinite(interval.estimate).all()
    assert np.isnan(interval.low).all()
    assert np.isnan(interval.high).all()


def test_curves_are_many_means():
  values = np.random.default_rng(0).normal(size=(4, 3, 2))
  intervals = statistics.mean_interval(values)
  assert intervals.low.shape == (3, 2)
  alone = statistics.mean_interval(values[:, 2, 1])
  assert isinstance(alone.low, float)
  np.testing.assert_allclose([x[2, 1] for x in intervals], alone, rtol=1e-12)


def test_a_block_of_columns_at_a_time_changes_nothing(monkeypatch):
  values = np.random.default_rng(0).normal(size=(4, 11))
  at_once = statistics.mean_interval(values, num_resamples=500)
  monkeypatch.setattr(bootstrap, "_MEANS_AT_ONCE", 2000)
  in_blocks = statistics.mean_interval(values, num_resamples=500)
  np.testing.assert_allclose(in_blocks, at_once, rtol=1e-12)


@pytest.mark.parametrize("broken", [NAN, INF, -INF])
def test_a_diverged_seed_has_no_mean(broken):
  values = np.array([[0.5, 0.5], [0.6, broken], [0.7, 0.7]])
  for interval in (
    statistics.mean_interval(values),
    statistics.paired_difference(values, values),
  ):
    assert np.isfinite([x[0] for x in interval]).all()
    assert np.isnan([x[1] for x in interval]).all()
  assert np.isnan(statistics.interquartile_mean(values)).all()


# Many tasks.


def test_student_widens_the_percentile_interval():
  scores = np.random.default_rng(0).normal(size=(5, 4))
  plain = statistics.interquartile_mean(scores, method="percentile")
  wide = statistics.interquartile_mean(scores)
  # t of 4 * (5 - 1) degrees of freedom.
  factor = np.sqrt(5 / 4) * 2.1199053 / 1.9599640
  assert wide.estimate == plain.estimate
  for end, narrow in ((wide.low, plain.low), (wide.high, plain.high)):
    expected = factor * (narrow - plain.estimate)
    assert end - wide.estimate == pytest.approx(expected, rel=1e-6)


def test_improvement_counts_pairs_and_half_of_ties():
  a = [[0.9, 0.5], [0.7, 0.5]]
  b = [[0.8, 0.5], [0.6, 0.4], [0.7, 0.4]]
  # Task 1: 3 + 1.5 of 6; task 2: 4 + 2 / 2 of 6.
  of_max = statistics.probability_of_improvement(a, b)
  assert of_max.estimate == pytest.approx((4.5 / 6 + 5 / 6) / 2)
  of_min = statistics.probability_of_improvement(a, b, direction="min")
  assert of_min.estimate == pytest.approx(1 - of_max.estimate)
  assert 0 <= of_max.low < of_max.estimate < of_max.high <= 1


@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize("broken", [NAN, INF, -INF])
def test_diverged_runs_lose_and_tie_with_one_another(direction, broken):
  interval = statistics.probability_of_improvement(
    [1.0, broken], [2.0, NAN], direction=direction
  )
  first = 1.0 if direction == "min" else 0.0
  # The pairs: (1, 2), (1, NaN), (broken, 2), (broken, NaN).
  assert interval.estimate == (first + 1 + 0 + 0.5) / 4


def test_profile_counts_runs_strictly_better():
  scores = [[0.5, 0.9], [0.7, NAN]]
  above = statistics.performance_profile(scores, [0.4, 0.5, 0.8, 1.0])
  np.testing.assert_array_equal(above.estimate, [0.75, 0.5, 0.25, 0])
  below = statistics.performance_profile(
    scores, [0.4, 0.5, 0.8, 1.0], direction="min"
  )
  np.testing.assert_array_equal(below.estimate, [0, 0, 0.5, 0.75])
  assert (above.low <= above.estimate).all()
  assert (above.high >= above.estimate).all()
  assert min(above.low) >= 0
  assert max(above.high) <= 1


# Tuning curves by enumeration, and the cost to reach a target.


@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize("replace", [True, False])
def test_expected_best_is_the_mean_over_all_draws(direction, replace):
  validation = np.array([0.7, 0.2, 0.7, 0.5, 0.1])
  report = np.array([0.6, 0.3, 0.8, 0.45, 0.2])
  best = max if direction == "max" else min
  for finals in (None, report):
    expected = []
    for n in range(1, 6):
      draws = (
        itertools.product(range(5), repeat=n)
        if replace
        else itertools.permutations(range(5), n)
      )
      # Of equal values the first that was drawn is chosen.
      indices = [best(draw, key=validation.__getitem__) for draw in draws]
      values = validation if finals is None else finals
      expected.append(np.mean(values[indices]))
    curve = statistics.expected_best(
      validation, finals, direction=direction, replace=replace
    )
    np.testing.assert_allclose(curve, expected, rtol=0, atol=1e-13)


def test_expected_best_of_a_diverged_setting():
  assert np.isnan(statistics.expected_best([0.5, NAN])).all()
  assert np.isnan(statistics.expected_best([0.5, 0.4], [0.5, NAN])).all()
  np.testing.assert_allclose(
    statistics.expected_best([0.5, INF], [0.7, NAN], if_diverged=0.1),
    [0.4, 0.25 * 0.1 + 0.75 * 0.7],
  )


def test_expected_best_of_many_settings_is_finite_and_grows():
  curve = statistics.expected_best(np.random.default_rng(0).random(2000))
  assert np.isfinite(curve).all()
  assert (np.diff(curve) > 0).all()


# Cost.


def costs() -> History:
  """Three points at rounds 10, 20, 30; the last diverges at 30."""
  spent = np.array([[10.0, 20.0, 30.0]] * 3) * np.array([[1], [2], [3]])
  return of_values(
    train_loss=[[1.0, 0.5, 0.4], [1.0, 0.9, 0.8], [1.0, 0.3, NAN]],
    test_accuracy=[[0.1, 0.6, 0.5], [0.2, 0.3, 0.4], [0.1, 0.4, 0.9]],
    rank=[[3.0, 2.0, 1.0]] * 3,
    bytes_down=100 * spent,
    bytes_up=spent,
    gradient_evaluations=5 * spent,
  )


@pytest.mark.parametrize(
  ("metric", "target", "how", "expected"),
  [
    ("test_accuracy", 0.4, {}, [20, 30, 20]),
    ("test_accuracy", 0.5, {}, [20, NAN, NAN]),
    ("train_loss", 0.5, {}, [20, NAN, 20]),
    ("train_loss", 1.0, {}, [10, 10, 10]),
    ("rank", 2.0, {"direction": "min"}, [20, 20, 20]),
    ("test_accuracy", 0.5, {"cost": "bytes"}, [2020, NAN, NAN]),
    ("train_loss", 0.5, {"cost": "gradient_evaluations"}, [100, NAN, 300]),
  ],
)
def test_the_cost_of_what_is_good_enough_first(metric, target, how, expected):
  spending = statistics.to_target(costs(), metric, target, **how)
  np.testing.assert_array_equal(spending, expected)


def test_to_target_before_the_first_evaluation():
  history = History([], {"test_accuracy": np.zeros((2, 0))})
  assert np.isnan(statistics.to_target(history, "test_accuracy", 0.5)).all()
