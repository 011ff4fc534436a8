"""How classes and metrics are spread over the clients."""

import numpy as np
import pytest

from fedjax_opt import metrics
from fedjax_opt.study import plots


@pytest.mark.parametrize("classes", [2, 10, 15, 100])
def test_stacks_every_count(classes):
  counts = np.random.default_rng(0).integers(0, 9, (12, classes))
  title = plots.partition_title("dirichlet", 0.1)
  figure = plots.label_histogram(counts, None, title=title)
  axes = figure.axes[0]
  assert axes.get_title() == "Dirichlet, α = 0.1"
  boxes = np.array(
    [
      [path.get_extents().bounds for path in row.get_paths()]
      for row in axes.collections
    ]
  )  # [clients, classes, (left, bottom, width, height)]
  np.testing.assert_allclose(boxes[:, :, 2], counts)
  np.testing.assert_allclose(boxes[:, :, 0], np.cumsum(counts, 1) - counts)
  np.testing.assert_allclose(boxes[:, 0, 1] + boxes[:, 0, 3] / 2, range(12))
  assert bool(figure.legends) == (classes <= 20)


def test_says_when_clients_are_left_out():
  counts = np.ones((150, 2), int)
  figure = plots.label_histogram(counts, None)
  axes = figure.axes[0]
  assert axes.get_title() == "first 100 of 150 clients"
  assert len(axes.collections) == 100


def test_title_without_alpha():
  assert plots.partition_title("iid") == "IID"


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
