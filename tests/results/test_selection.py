"""Selection: settings of several seeds, criteria, the best point."""

import dataclasses

import numpy as np
import pytest

from fedjax_opt.results import selection
from fedjax_opt.results.history import History
from tests.results.histories import of_values

NAN = float("nan")


class TestSettings:
  def test_groups_what_differs_in_seed_only(self):
    points = [
      {"client_lr": lr, "seed": seed} for seed in (0, 1) for lr in (0.1, 0.5)
    ]
    assert selection.group_by_seed(points) == [
      ({"client_lr": 0.1}, [0, 2]),
      ({"client_lr": 0.5}, [1, 3]),
    ]

  def test_varying_ignores_what_is_the_same(self):
    points = [{"a": 1, "b": 2.0, "seed": 0}, {"a": 1, "b": 3.0, "seed": 0}]
    assert selection.varying(points) == ["b"]

  @pytest.mark.parametrize(
    ("value", "text"),
    [
      (2.0, "2"),
      (0.1, "0.1"),
      (1e-5, "1e-05"),
      (10**7, "10000000"),
      ("a", "a"),
    ],
  )
  def test_format_value(self, value, text):
    assert selection.format_value(value) == text


class TestCriterion:
  accuracy = of_values(
    train_loss=np.ones((3, 3)),
    test_accuracy=[[0.1, 0.9, 0.5], [0.6, 0.6, 0.6], [0.2, 0.5, 0.7]],
  )
  points = tuple({"client_lr": lr} for lr in (0.1, 0.2, 0.3))

  @pytest.mark.parametrize(
    ("rule", "n", "scores", "selected"),
    [
      ("last", 1, [0.5, 0.6, 0.7], 2),
      ("best", 1, [0.9, 0.6, 0.7], 0),
      ("mean_last_n", 2, [0.7, 0.6, 0.6], 0),
      ("mean_last_n", 9, [0.5, 0.6, 1.4 / 3], 1),
    ],
  )
  def test_rules(self, rule, n, scores, selected):
    criterion = selection.Criterion("test_accuracy", "max", rule, n)
    np.testing.assert_allclose(criterion.scores(self.accuracy), scores)
    assert selection.select(self.accuracy, self.points, criterion) == selected

  def test_min_takes_the_lowest(self):
    criterion = selection.Criterion("train_loss", "min", "best")
    h = of_values(train_loss=[[1.0, 3.0], [2.0, 0.5], [NAN, 0.1]])
    assert selection.select(h, self.points, criterion) == 1

  @pytest.mark.parametrize("rule", ["last", "best", "mean_last_n"])
  def test_ties_go_to_the_first(self, rule):
    h = of_values(test_accuracy=np.full((3, 2), 0.5))
    criterion = selection.Criterion(rule=rule)
    assert selection.select(h, self.points, criterion) == 0

  @pytest.mark.parametrize("rule", ["last", "best", "mean_last_n"])
  def test_never_a_diverged_point(self, rule):
    h = of_values(
      train_loss=[[1.0, NAN], [1.0, 1.0], [np.inf, 1.0]],
      test_accuracy=[[0.9, 0.9], [0.1, 0.1], [0.9, 0.9]],
    )
    criterion = selection.Criterion(rule=rule)
    assert selection.select(h, self.points, criterion) == 1
    h.metrics["train_loss"][1, 0] = NAN
    assert selection.select(h, self.points, criterion) is None

  def test_none_before_the_first_evaluation(self):
    empty = History()
    assert selection.select(empty, self.points, selection.Criterion()) is None

  def test_settings_compete_by_their_mean_over_seeds(self):
    points = [{"lr": lr, "seed": s} for lr in (0.1, 0.5) for s in (0, 1)]
    # The best single point is number 3, the best setting is the first.
    h = of_values(test_accuracy=[[0.7], [0.8], [0.1], [0.9]])
    assert selection.select(h, points, selection.Criterion()) == 0

  def test_a_setting_with_fewer_diverged_seeds_comes_first(self):
    points = [{"lr": lr, "seed": s} for lr in (0.1, 0.5) for s in (0, 1)]
    h = of_values(
      train_loss=[[NAN], [1.0], [1.0], [1.0]],
      test_accuracy=[[0.1], [0.9], [0.3], [0.3]],
    )
    assert selection.select(h, points, selection.Criterion()) == 2
    # With as many on both sides, the first seed that is ok is named.
    h.metrics["train_loss"][3] = NAN
    assert selection.select(h, points, selection.Criterion()) == 1

  @pytest.mark.parametrize(
    ("arguments", "message"),
    [
      ({"direction": "up"}, "direction='up': must be one of max, min"),
      ({"rule": "first"}, "rule='first': must be one of last, best, mean_"),
      ({"n": 0}, "n=0: must be at least 1"),
    ],
  )
  def test_refuses(self, arguments, message):
    with pytest.raises(ValueError, match=message):
      selection.Criterion(**arguments)

  def test_is_immutable_and_readable(self):
    criterion = selection.Criterion("train_loss", "min", "mean_last_n", 5)
    assert str(criterion) == "lowest train_loss (mean of last 5)"
    with pytest.raises(dataclasses.FrozenInstanceError):
      criterion.n = 2
