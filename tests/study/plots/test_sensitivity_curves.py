"""The final value over a hyperparameter: the chosen one, and diverged ones."""

import numpy as np
import pytest

from fedjax_opt.study import plots

RATES = [0.01, 0.1, 1.0, 10.0]
VALUES = np.array([[0.6, 0.8, 0.7, 0.5], [0.6, 0.84, 0.72, np.nan]])


def marks(figure, marker):
  return [x for x in figure.axes[0].lines if x.get_marker() == marker]


def test_chosen_and_diverged_values():
  figure = plots.sensitivity(
    {"a": (RATES, VALUES), "b": (RATES, VALUES - 0.1)},
    None,
    metric="validation_accuracy",
    x_name="client_lr",
    chosen={"a": 0.1},
  )
  axes = figure.axes[0]
  assert axes.get_xlabel() == "Client learning rate"
  assert axes.get_xscale() == "log"
  np.testing.assert_allclose(
    axes.lines[0].get_ydata(), 100 * VALUES.mean(axis=0)
  )
  rings = [x for x in marks(figure, "o") if x.get_markersize() == 9]
  assert len(rings) == 1
  np.testing.assert_allclose(rings[0].get_xydata(), [[0.1, 82]])
  # Two crosses at the same value, one above the other.
  crosses = [mark.get_xydata()[0].tolist() for mark in marks(figure, "x")]
  assert crosses == [[10.0, 0.0], [10.0, 0.06]]


def test_a_linear_axis_and_conditions():
  curves = {"a": ([0.0, 0.5, 0.9], VALUES[:, :3])}
  figure = plots.sensitivity(
    {"α = 1": curves, "α = 0.1": curves},
    None,
    metric="validation_loss",
    x_name="mu_s",
    chosen={"α = 0.1": {"a": 0.0}},
  )
  assert [axes.get_xscale() for axes in figure.axes] == ["linear"] * 2
  rings = [
    sum(line.get_markersize() == 9 for line in axes.lines)
    for axes in figure.axes
  ]
  assert rings == [0, 1]


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"chosen": {"a": 0.2}}, r"chosen\['a'\]=0.2: must be one of 0, 0.1"),
    ({"chosen": {"b": 0.1}}, "chosen: has 'b', which has no curve"),
    ({"chosen": {"c": {"a": 0.1}}}, r"chosen: conditions are \['c'\]"),
    ({"log_x": True}, "log_x=True: client_lr has 0; must be positive"),
  ],
)
def test_refuses(options, message):
  with pytest.raises(ValueError, match=message):
    plots.sensitivity(
      {"a": ([0.0, 0.1], [[1.0, 2.0]])},
      None,
      metric="train_loss",
      x_name="client_lr",
      **options,
    )
