"""The table that closes a run."""

import numpy as np

from fedjax_opt.results import tables
from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion
from tests.results.histories import two_points

CRITERION = Criterion()
POINTS = ({"client_lr": 0.1, "seed": 0}, {"client_lr": 1.0, "seed": 0})


class TestTable:
  def test_one_row_for_each_point(self):
    assert tables.table(two_points(), POINTS, CRITERION) == (
      "after round 20:\n"
      "   client_lr  test_accuracy  best (round)  worst decile (train)"
      "  status\n"
      "*        0.1        66.67 %  66.67 % (20)               20.00 %"
      "  ok\n"
      "           1              -  25.00 % (10)                     -"
      "  diverged at 20\n"
      "* selected: highest test_accuracy (last)"
    )

  def test_mean_and_deviation_over_seeds(self):
    points = [{"gamma": g, "seed": s} for g in (1.0, 2.0) for s in (0, 1)]
    history = History(
      [5],
      {
        "train_loss": np.array([[1.0], [1.0], [1.0], [np.nan]]),
        "test_accuracy": np.array([[0.8], [0.9], [0.95], [0.1]]),
      },
    )
    text = tables.table(history, points, CRITERION)
    assert "*      1  85.00 ± 7.07 %" in text
    assert "ok (2 seeds)" in text
    assert "95.00 %" in text
    assert "1 of 2 diverged from 5" in text
    assert "sample standard deviation" in text

  def test_the_best_ten_of_many(self):
    points = [{"client_lr": i / 100} for i in range(21)]
    accuracy = np.arange(21.0)[:, None] / 100
    history = History([5], {"test_accuracy": accuracy})
    lines = tables.table(history, points, CRITERION).splitlines()
    assert lines[2].startswith("*        0.2        20.00 %")
    assert lines[-1].startswith("best 10 of 21 settings;")
    assert lines[-1].endswith("the other 11")
    assert len(lines) == 2 + 10 + 2

  def test_other_metrics_than_accuracy(self):
    history = History(
      [5],
      {"test_loss": np.array([[0.5], [0.25]]), "f1": np.array([[0.5], [1]])},
    )
    text = tables.table(history, POINTS, Criterion("test_loss", "min"))
    assert "*          1       0.25      0.25 (5)  ok" in text

  def test_the_criterion_is_shown_besides_accuracy(self):
    criterion = Criterion("train_loss", "min", "best")
    header = tables.table(two_points(), POINTS, criterion).splitlines()[1]
    assert "train_loss" in header

  def test_all_diverged(self):
    history = History([5], {"train_loss": np.full((2, 1), np.nan)})
    text = tables.table(history, POINTS, Criterion("train_loss", "min"))
    assert text.endswith("none selected: every point diverged")

  def test_before_the_first_evaluation(self):
    empty = History()
    assert tables.table(empty, POINTS, CRITERION) == "no round was evaluated"
