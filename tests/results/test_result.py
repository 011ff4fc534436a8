"""What a notebook shows of a result."""

import numpy as np

from fedjax_opt import Result
from fedjax_opt.metrics import History


def result(history):
  rounds = history.rounds[-1] if history.rounds else 0
  return Result(None, None, None, history, {}, rounds, 0, 1.2, 3.4, {}, 0.0)


def test_a_table_has_the_last_values():
  metrics = {
    "train_loss": [[3.0, 1.5]],
    "test_accuracy": [[0.1, 0.75]],
    "train_accuracy_decile_1": [[0.2, 0.3]],
    "bytes_up": [[0, 12345]],
  }
  table = result(History([0, 5], metrics))._repr_html_()
  assert "<tr><td>train_loss</td><td>1.5</td></tr>" in table
  assert "<tr><td>test_accuracy</td><td>0.75</td></tr>" in table
  assert "decile" not in table
  assert "bytes" not in table
  assert "5 rounds" in table
  assert "diverged" not in table


def test_of_a_grid_it_has_the_spread_over_the_points_that_did_not_diverge():
  losses = [
    [2.0, 2.0, 1.0],
    [2.0, np.nan, 5.0],
    [2.0, 3.0, 4.0],
    [2.0, 4.0, 3.0],
  ]
  table = result(History([0, 5, 9], {"train_loss": losses}))._repr_html_()
  assert "<td>train_loss</td><td>1</td><td>3</td><td>4</td>" in table
  assert "1 of 4 points diverged" in table


def test_where_all_diverged_or_nothing_was_measured_it_says_so():
  table = result(History([0], {"train_loss": [[np.nan], [np.nan]]}))
  assert "<td>-</td><td>-</td><td>-</td>" in table._repr_html_()
  assert "<table>" not in result(History())._repr_html_()
