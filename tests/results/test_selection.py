"""Selection: settings of several seeds, criteria, the best point."""

import numpy as np
import pytest

from fedjax_opt.results import selection
from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion
from tests.refusals import refusal
from tests.results.histories import of_values

NAN = float("nan")


def test_groups_what_differs_in_seed_only():
  points = [
    {"client_lr": lr, "seed": seed} for seed in (0, 1) for lr in (0.1, 0.5)
  ]
  assert selection.group_by_seed(points) == [
    ({"client_lr": 0.1}, [0, 2]),
    ({"client_lr": 0.5}, [1, 3]),
  ]


def test_varying_ignores_what_is_the_same():
  points = [{"a": 1, "b": 2.0, "seed": 0}, {"a": 1, "b": 3.0, "seed": 0}]
  assert selection.varying(points) == ["b"]


@pytest.mark.parametrize(
  ("value", "text"),
  [(2.0, "2"), (0.1, "0.1"), (1e-5, "1e-05"), (10**7, "10000000"), ("a", "a")],
)
def test_format_value(value, text):
  assert selection.format_value(value) == text


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
  ],
)
def test_scores(rule, n, scores):
  found = Criterion(rule=rule, n=n).scores(of_values(**ACCURACY))
  np.testing.assert_allclose(found, scores)


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


def test_none_before_the_first_evaluation():
  assert selection.select(History(), THREE, Criterion()) is None


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"direction": "up"}, "direction='up': must be one of max, min"),
    ({"rule": "first"}, "rule='first': must be one of last, best, mean_"),
    ({"n": 0}, "n=0: must be at least 1"),
  ],
)
def test_what_is_no_criterion(arguments, message):
  assert refusal(Criterion, **arguments).startswith(message)


def test_a_criterion_is_readable():
  criterion = Criterion("train_loss", "min", "mean_last_n", 5)
  assert str(criterion) == "lowest train_loss (mean of last 5)"
