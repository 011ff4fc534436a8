"""Histories: how they grow, and what of a diverged point counts."""

import copy

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt.results import metric_names
from fedjax_opt.results.history import History
from fedjax_opt.results.metric_names import direction
from tests.helpers import refusals
from tests.helpers.histories import of_values

NAN = float("nan")


def test_append_grows_every_metric():
  history = History()
  history.append(10, {"train_loss": [2.0, 3.0], "test_accuracy": [0.1, 0.2]})
  history.append(20, {"test_accuracy": [0.3, 0.4], "train_loss": [1.0, 2.0]})
  assert history.rounds == [10, 20]
  assert history.num_points == 2
  assert list(history.metrics) == ["train_loss", "test_accuracy"]
  np.testing.assert_array_equal(
    history.metrics["test_accuracy"], [[0.1, 0.3], [0.2, 0.4]]
  )
  assert history.final(1) == {"train_loss": 2.0, "test_accuracy": 0.4}


def test_many_rounds_are_appended():
  record = History()
  for n in range(1000):
    record.append(n, {"train_loss": [n, -n], "test_loss": [2 * n, 0]})
  assert record.rounds == list(range(1000))
  rounds = np.arange(1000.0)
  np.testing.assert_array_equal(record.metrics["train_loss"], [rounds, -rounds])
  np.testing.assert_array_equal(record.values("test_loss")[0], 2 * rounds)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_grow_by_themselves(copied):
  history = History()
  history.append(0, {"train_loss": jnp.float32(1)})  # Of one point a scalar.
  array = history.metrics["train_loss"]
  other_history = copied(history)
  history.append(1, {"train_loss": 2.0})
  other_history.append(1, {"train_loss": 3.0})
  assert history.metrics["train_loss"].tolist() == [[1, 2]]
  assert other_history.metrics["train_loss"].tolist() == [[1, 3]]
  assert (history.rounds, other_history.rounds) == ([0, 1], [0, 1])
  assert array.tolist() == [[1]]
  # One that was replaced is what counts.
  history.metrics["train_loss"] = np.array([[7.0, 8.0]])
  history.append(2, {"train_loss": 9.0})
  assert history.metrics["train_loss"].tolist() == [[7, 8, 9]]


@pytest.mark.parametrize("points", [1, -1, np.int64(1), [1], slice(1, None)])
def test_the_history_of_some_points(points):
  history = of_values(train_loss=[[1.0, 2.0], [3.0, 4.0]])
  taken = history.take(points, slice(1, None))
  assert taken.rounds == history.rounds[1:]
  assert taken.metrics["train_loss"].tolist() == [[4.0]]


def test_no_result_from_the_first_broken_loss_on():
  history = of_values(
    train_loss=[[1.0, np.inf, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]],
    test_loss=[[1.0, 1.0, 1.0], [1.0, 1.0, NAN], [1.0, 1.0, 1.0]],
    validation_loss=[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [NAN, 1.0, 1.0]],
    test_accuracy=[[0.5, 0.9, 0.9], [0.2, 0.3, 0.4], [0.1, 0.1, 0.1]],
  )
  assert [history.diverged_round(i) for i in range(3)] == [20, 30, 10]
  assert [history.status(i) for i in range(3)] == ["diverged"] * 3
  np.testing.assert_array_equal(
    history.values("test_accuracy"),
    [[0.5, NAN, NAN], [0.2, 0.3, NAN], [NAN, NAN, NAN]],
  )
  assert set(history.final(0).values()) == {None}
  assert history.best(0, "test_accuracy") == (0.5, 10)
  assert history.best(1, "test_accuracy") == (0.3, 20)
  assert history.best(2, "test_accuracy") is None


def test_best_follows_the_direction_and_only_losses_diverge():
  history = of_values(
    train_loss=[[3.0, 1.0, 2.0]], rank=[[3.0, 1.0, 2.0]], f1=[[NAN, 0.2, 0.1]]
  )
  assert history.status(0) == "ok"
  assert history.best(0, "train_loss") == (1.0, 20)
  assert history.best(0, "f1") == (0.2, 20)
  assert history.best(0, "rank") is None


@pytest.mark.parametrize(
  ("name", "way"),
  [
    ("test_accuracy_worst_decile", "max"),
    ("test_f1", "max"),
    ("regularized_validation_loss", "min"),
    ("test_perplexity", "min"),
    ("test_logloss", "min"),
    ("test_accuracy_gap", "min"),
    ("recovery_error", "min"),
    ("optimality_gap", "min"),
    ("test_inaccuracy", None),
    ("rank", None),
  ],
)
def test_the_end_of_a_metric_has_a_direction(name, way):
  assert direction(name) == way


@pytest.mark.parametrize(
  ("name", "on_validation", "examples"),
  [
    ("test_loss", "validation_loss", "test"),
    ("validation_loss", "validation_loss", "validation"),
    ("client_validation_f1", "client_validation_f1", "validation"),
    ("regularized_test_loss", "regularized_validation_loss", "test"),
    ("latest_loss", "validation_latest_loss", None),
    ("train_loss", "validation_loss", "train"),
    ("f1", "validation_f1", None),
  ],
)
def test_the_beginning_of_a_metric_has_its_examples(
  name, on_validation, examples
):
  assert metric_names.on_validation(name) == on_validation
  assert metric_names.split_of(name) == examples


def test_repr_is_one_line_of_sizes_and_names():
  h = of_values(train_loss=[[1.0, 0.5]] * 3, test_accuracy=[[0.1, NAN]] * 3)
  assert repr(h) == (
    "History(evaluated rounds: 2, the last is 20; points: 3; "
    "metrics: train_loss, test_accuracy)"
  )
  empty = History()
  assert repr(empty) == "History(evaluated rounds: 0; points: 0; metrics: none)"
  assert (empty.num_points, empty.final(0), empty.status(0)) == (0, {}, "ok")


def append(*args):
  """Goes on after round 10, and leaves what was there if that is refused."""
  history = of_values(train_loss=[[1.0], [2.0]])
  try:
    history.append(*args)
  finally:
    assert history.rounds == [10]


test_is_refused = refusals.of_table("history.txt", append)
