"""Tuning curves by enumeration, and the cost to reach a target."""

import itertools

import numpy as np
import pytest

import fedjax_opt as fo
from fedjax_opt.results.history import History
from tests.results.histories import of_values

NAN = float("nan")
INF = float("inf")
statistics = fo.statistics


@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize("replace", [True, False])
def test_expected_best_is_the_mean_over_all_draws(direction, replace):
  validation = np.array([0.7, 0.2, 0.7, 0.5, 0.1])
  report = np.array([0.6, 0.3, 0.8, 0.45, 0.2])
  best = max if direction == "max" else min
  for shown in (None, report):
    expected = []
    for n in range(1, 6):
      draws = (
        itertools.product(range(5), repeat=n)
        if replace
        else itertools.permutations(range(5), n)
      )
      # Of equal values the first that was drawn is chosen.
      chosen = [best(draw, key=validation.__getitem__) for draw in draws]
      values = validation if shown is None else shown
      expected.append(np.mean(values[chosen]))
    found = statistics.expected_best(
      validation, shown, direction=direction, replace=replace
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_expected_best_of_a_diverged_setting():
  assert np.isnan(statistics.expected_best([0.5, NAN])).all()
  assert np.isnan(statistics.expected_best([0.5, 0.4], [0.5, NAN])).all()
  np.testing.assert_allclose(
    statistics.expected_best([0.5, INF], [0.7, NAN], if_diverged=0.1),
    [0.4, 0.25 * 0.1 + 0.75 * 0.7],
  )


def test_expected_best_of_many_settings_is_finite_and_grows():
  found = statistics.expected_best(np.random.default_rng(0).random(2000))
  assert np.isfinite(found).all()
  assert (np.diff(found) > 0).all()


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


def test_to_target_is_the_first_round_that_is_good_enough():
  h = costs()
  to = statistics.to_target
  np.testing.assert_array_equal(to(h, "test_accuracy", 0.4), [20, 30, 20])
  np.testing.assert_array_equal(to(h, "test_accuracy", 0.5), [20, NAN, NAN])
  np.testing.assert_array_equal(to(h, "train_loss", 0.5), [20, NAN, 20])
  np.testing.assert_array_equal(to(h, "train_loss", 1.0), [10, 10, 10])
  np.testing.assert_array_equal(
    to(h, "rank", 2.0, direction="min"), [20, 20, 20]
  )


def test_to_target_in_bytes_and_gradient_evaluations():
  h = costs()
  np.testing.assert_array_equal(
    statistics.to_target(h, "test_accuracy", 0.5, "bytes"), [2020, NAN, NAN]
  )
  np.testing.assert_array_equal(
    statistics.to_target(h, "train_loss", 0.5, cost="gradient_evaluations"),
    [100, NAN, 300],
  )


def test_to_target_before_the_first_evaluation():
  h = History([], {"test_accuracy": np.zeros((2, 0))})
  assert np.isnan(statistics.to_target(h, "test_accuracy", 0.5)).all()
