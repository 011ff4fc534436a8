"""Selection of the best point."""

import numpy as np
import pytest

from fedjax_opt.results import selection
from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion
from tests.helpers.histories import of_values

NAN = float("nan")


THREE = tuple({"client_lr": lr} for lr in (0.1, 0.2, 0.3))
FOUR = tuple({"lr": lr, "seed": seed} for lr in (0.1, 0.5) for seed in (0, 1))
ACCURACY = {
  "train_loss": np.ones((3, 3)),
  "test_accuracy": [[0.1, 0.9, 0.5], [0.6, 0.6, 0.6], [0.2, 0.5, 0.7]],
}
LOSS = {"train_loss": [[1.0, 3.0], [2.0, 0.5], [NAN, 0.1]]}
DIVERGED = {
  "train_loss": [[1.0, NAN], [1.0, 1.0], [np.inf, 1.0]],
  "test_accuracy": [[0.9, 0.9], [0.1, 0.1], [0.9, 0.9]],
}
ALL_DIVERGED = DIVERGED | {"train_loss": np.full((3, 2), NAN)}
FEWER = {
  "train_loss": [[NAN], [1.0], [1.0], [1.0]],
  "test_accuracy": [[0.1], [0.9], [0.3], [0.3]],
}
AS_MANY = FEWER | {"train_loss": [[NAN], [1.0], [1.0], [NAN]]}
RULES = ("last", "best", "mean_last_n")


@pytest.mark.parametrize(
  ("rule", "n", "scores"),
  [
    ("last", 1, [0.5, 0.6, 0.7]),
    ("best", 1, [0.9, 0.6, 0.7]),
    ("mean_last_n", 2, [0.7, 0.6, 0.6]),
    ("mean_last_n", 9, [0.5, 0.6, 1.4 / 3]),
    ("worst_last_n", 2, [0.5, 0.6, 0.5]),
    ("worst_last_n", 9, [0.1, 0.6, 0.2]),
  ],
)
def test_scores(rule, n, scores):
  actual = Criterion(rule=rule, n=n).scores(of_values(**ACCURACY))
  np.testing.assert_allclose(actual, scores)


@pytest.mark.parametrize("rule", ["best", "mean_last_n", "worst_last_n"])
def test_the_model_before_the_first_round_is_no_choice(rule):
  scores = Criterion(rule=rule, n=9).scores
  trained = of_values(test_accuracy=[[0.5, 0.7], [0.6, 0.9]])
  untrained_first = of_values(test_accuracy=[[1.0, 0.5, 0.7], [1.0, 0.6, 0.9]])
  untrained_first.rounds[0] = 0
  np.testing.assert_array_equal(scores(untrained_first), scores(trained))
  untrained = History([0], {"test_accuracy": np.array([[0.1], [0.2]])})
  np.testing.assert_array_equal(scores(untrained), [0.1, 0.2])


@pytest.mark.parametrize(
  ("points", "values", "criterion", "selected"),
  [
    (THREE, ACCURACY, Criterion(), 2),
    (THREE, ACCURACY, Criterion(rule="best"), 0),
    (THREE, LOSS, Criterion("train_loss", "min", "best"), 1),
    # Equal ones: the first. Never a diverged point.
    *(
      (THREE, values, Criterion(rule=rule), expected)
      for rule in RULES
      for values, expected in (
        ({"test_accuracy": np.full((3, 2), 0.5)}, 0),
        (DIVERGED, 1),
        (ALL_DIVERGED, None),
      )
    ),
    # The best single point is number 3, the best setting is the first.
    (FOUR, {"test_accuracy": [[0.7], [0.8], [0.1], [0.9]]}, Criterion(), 0),
    # Fewer diverged seeds come first; of as many the first seed that is ok.
    (FOUR, FEWER, Criterion(), 2),
    (FOUR, AS_MANY, Criterion(), 1),
  ],
)
def test_the_selected_point(points, values, criterion, selected):
  assert selection.select(of_values(**values), points, criterion) == selected


def test_by_default_the_name_of_a_metric_says_its_direction():
  names = ("validation_loss", "test_accuracy", "mine")
  ways = [Criterion(name).direction for name in names]
  assert ways == ["min", "max", "max"]


def test_points_of_a_setting_are_in_the_order_of_the_seeds():
  """Whatever the order of a grid: settings are paired by place."""
  seeds_of = {0.1: (2, 0, 1), 0.5: (1, 2, 0)}
  points = [{"lr": lr, "seed": s} for lr in (0.5, 0.1) for s in seeds_of[lr]]
  first, second = selection.group_by_seed(points)
  assert (first.hyperparameters, first.points) == ({"lr": 0.5}, [2, 0, 1])
  assert (second.hyperparameters, second.points) == ({"lr": 0.1}, [4, 5, 3])
