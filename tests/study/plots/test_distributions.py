"""How classes and metrics are spread over the clients."""

import numpy as np
import pytest

from fedjax_opt import metrics
from fedjax_opt.study import plots
from fedjax_opt.study.plots import distributions

ACCURACY = {"metric": "client_test_accuracy"}


@pytest.mark.parametrize("classes", [2, 15, 100])
def test_stacks_every_count(classes):
  counts = np.random.default_rng(0).integers(0, 9, (12, classes))
  title = plots.partition_title("dirichlet", 0.1)
  figure = plots.label_histogram(counts, None, title=title)
  axes = figure.axes[0]
  assert axes.get_title() == "Dirichlet, α = 0.1"
  paths = [row.get_paths() for row in axes.collections]
  # [clients, classes, (left, bottom, width, height)]
  boxes = np.array([[p.get_extents().bounds for p in row] for row in paths])
  np.testing.assert_allclose(boxes[:, :, 2], counts)
  np.testing.assert_allclose(boxes[:, :, 0], np.cumsum(counts, 1) - counts)
  np.testing.assert_allclose(boxes[:, 0, 1] + boxes[:, 0, 3] / 2, range(12))
  assert bool(figure.legends) == (classes <= 20)
  assert len(figure.axes) == 1 + (classes > 20)


def test_says_when_clients_are_left_out():
  (axes,) = plots.label_histogram(np.ones((150, 2), int), None).axes
  assert axes.get_title() == "first 100 of 150 clients"
  assert len(axes.collections) == 100
  assert plots.partition_title("iid") == "IID"


@pytest.mark.parametrize("classes", [1, 2, 25])
def test_a_panel_of_labels_for_each_condition(classes):
  counts = np.random.default_rng(0).integers(1, 9, (120, classes))
  panels = {"α = 1": counts, "α = 0.1": 2 * counts[:5]}
  figure = distributions.client_labels(panels, None)
  assert [axes.get_title() for axes in figure.axes] == list(panels)
  assert [len(axes.collections) for axes in figure.axes] == [100, 5]
  ends = [axes.get_xlim()[1] for axes in figure.axes]
  assert ends == [counts[:100].sum(1).max(), 2 * counts[:5].sum(1).max()]
  colors = {tuple(row.get_facecolor()[0]) for row in figure.axes[0].collections}
  assert len(colors) == 1  # Each client begins with the first label.
  assert figure.axes[0].collections[0].get_facecolor().shape[0] == classes


@pytest.fixture
def values():
  """method -> its clients, of which one has no value."""
  a, b = np.random.default_rng(0).random((2, 35))
  a[3] = b[5] = np.nan
  return {"a": a, "b": b}


def test_shares_of_clients_and_the_worst_ones(values, texts_of):
  figure = plots.client_distribution(values, None, **ACCURACY)
  (axes,) = figure.axes
  assert axes.get_xlabel() == "Client test accuracy (%)"
  line, mark = axes.lines[:2]
  ascending = np.sort(100 * values["a"])[:34]
  np.testing.assert_allclose(line.get_xdata()[1:-1], ascending)
  shares = 100 * np.arange(35) / 34
  np.testing.assert_allclose(line.get_ydata()[:-1], shares)
  sizes = np.isfinite(values["a"])
  worst = metrics.worst_decile(np.nan_to_num(values["a"]), sizes)
  np.testing.assert_allclose(mark.get_xdata(), 100 * worst, rtol=1e-5)
  assert texts_of(figure) == ["a", "b", "mean of the worst 10 %"]


def test_of_a_loss_the_largest_are_the_worst():
  losses = dict.fromkeys("ab", np.arange(20.0))
  figure = plots.client_distribution(losses, None, metric="client_test_loss")
  mark = figure.axes[0].lines[1]
  assert (*mark.get_xdata(), mark.get_marker()) == (18.5, "v")


def test_one_method_has_a_histogram(values):
  one = {"a": values["a"]}
  (axes,) = plots.client_distribution(
    one, None, sizes=np.arange(35), **ACCURACY
  ).axes
  # One client has no value, another one no examples.
  assert sum(bar.get_height() for bar in axes.patches) == 33
  mean = 100 * np.nanmean(values["a"][1:])
  np.testing.assert_allclose(axes.lines[0].get_xdata(), mean)
  assert axes.get_ylabel() == "Clients"


@pytest.mark.parametrize("methods", ["a", "ab"])
def test_clients_that_are_all_the_same(tmp_path, methods):
  same = dict.fromkeys(methods, np.ones(3))
  plots.client_distribution(same, tmp_path / "a.png", **ACCURACY)
