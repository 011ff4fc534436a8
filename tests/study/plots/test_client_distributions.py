"""How a metric is spread over clients: shares, histograms, the worst 10 %."""

import numpy as np
import pytest

from fedjax_opt import metrics
from fedjax_opt.study import plots


def of_clients(seed: int) -> np.ndarray:
  values = np.random.default_rng(seed).random(35)
  values[3] = np.nan
  return values


def test_shares_of_clients_and_the_worst_ones():
  values = {"a": of_clients(0), "b": of_clients(1)}
  figure = plots.client_distribution(
    values, None, metric="client_test_accuracy"
  )
  axes = figure.axes[0]
  assert axes.get_xlabel() == "Client test accuracy (%)"
  line, mark = axes.lines[:2]
  ascending = np.sort(100 * values["a"])[:34]
  np.testing.assert_allclose(line.get_xdata()[1:-1], ascending)
  shares = 100 * np.arange(35) / 34
  np.testing.assert_allclose(line.get_ydata()[:-1], shares)
  sizes = np.isfinite(values["a"])
  worst = metrics.worst_decile(np.nan_to_num(values["a"]), sizes)
  np.testing.assert_allclose(mark.get_xdata(), 100 * worst, rtol=1e-5)
  texts = [text.get_text() for text in figure.legends[0].get_texts()]
  assert texts == ["a", "b", "mean of the worst 10 %"]


def test_of_a_loss_the_largest_are_the_worst():
  values = {"a": np.arange(20.0), "b": np.arange(20.0)}
  figure = plots.client_distribution(values, None, metric="client_test_loss")
  mark = figure.axes[0].lines[1]
  assert mark.get_xdata() == [18.5]
  assert mark.get_marker() == "v"


def test_one_method_has_a_histogram():
  values, sizes = of_clients(0), np.arange(35)
  figure = plots.client_distribution(
    {"a": values}, None, metric="client_test_accuracy", sizes=sizes
  )
  axes = figure.axes[0]
  # One client has no value, another one no examples.
  assert sum(bar.get_height() for bar in axes.patches) == 33
  mean = 100 * np.nanmean(values[1:])
  np.testing.assert_allclose(axes.lines[0].get_xdata(), mean)
  assert axes.get_ylabel() == "Clients"


def test_clients_that_are_all_the_same(tmp_path):
  for methods in ("a", "ab"):
    plots.client_distribution(
      dict.fromkeys(methods, np.ones(3)),
      tmp_path / "a.png",
      metric="client_test_accuracy",
    )


@pytest.mark.parametrize(
  ("values", "sizes", "message"),
  [
    ([[1.0]], None, r"values\['a'\]: shape is \(1, 1\); must be \[clients\]"),
    ([np.nan], None, r"values\['a'\]: no client has a value"),
    ([1.0], [0], r"values\['a'\]: no client has a value"),
    ([1.0], [1, 2], r"sizes: shape is \(2,\); must be \(1,\), as values\['a'"),
  ],
)
def test_refuses(values, sizes, message):
  with pytest.raises(ValueError, match=message):
    plots.client_distribution(
      {"a": values}, None, metric="client_test_loss", sizes=sizes
    )
