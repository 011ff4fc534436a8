"""Learning curves: lines, bands, crosses and legends."""

import numpy as np
import pytest

from fedjax_opt.results.history import History
from fedjax_opt.study import plots
from tests.results.histories import random

TWO = [{"client_lr": lr} for lr in (0.1, 0.5)]
MANY = [{"client_lr": 1.0 * i} for i in range(30)]


def test_labels_scales_and_lines(texts_of):
  h = random(2)
  figure = plots.curves(h, TWO, None, title="digits")
  loss, accuracy = figure.axes
  assert loss.get_ylabel() == "Training loss"
  assert accuracy.get_ylabel() == "Test accuracy (%)"
  assert loss.get_xlabel() == "Communication round"
  assert (loss.get_yscale(), accuracy.get_yscale()) == ("log", "linear")
  assert texts_of(figure) == ["0.1", "0.5"]
  line = accuracy.lines[1]
  np.testing.assert_array_equal(line.get_xdata(), h.rounds)
  shown = 100 * h.metrics["test_accuracy"][1]
  np.testing.assert_allclose(line.get_ydata(), shown)


@pytest.mark.parametrize(
  ("x_axis", "label", "places"),
  [
    ("gradient_evaluations", "Gradient evaluations of a client", 50),
    ("bytes", "Exchanged with a client (MB)", 3),
  ],
)
def test_against_what_was_spent(x_axis, label, places):
  h = random(2, diverged=[(1, 4)])
  rounds = np.asarray(h.rounds, float)
  spent = {"gradient_evaluations": 50, "bytes_down": 1e6, "bytes_up": 2e6}
  for name, of_round in spent.items():
    h.metrics[name] = np.stack([of_round * rounds, 2 * of_round * rounds])
  axes = plots.curves(h, TWO, None, x_axis=x_axis).axes[1]
  one, two, cross = axes.lines
  assert axes.get_xlabel() == label
  np.testing.assert_allclose(one.get_xdata(), places * rounds)
  np.testing.assert_allclose(two.get_xdata(), 2 * places * rounds)
  # The second one ends, with a cross, where it diverges.
  assert np.isfinite(one.get_ydata()).all()
  np.testing.assert_array_equal(np.isfinite(two.get_ydata()), np.arange(8) < 4)
  assert (cross.get_marker(), *cross.get_xdata()) == (
    "x",
    2 * places * rounds[3],
  )


def test_test_loss_where_there_is_no_accuracy():
  h = random(1)
  del h.metrics["test_accuracy"]
  labels = [axes.get_ylabel() for axes in plots.curves(h, [{}], None).axes]
  assert labels == ["Training loss", "Test loss"]


def test_seeds_become_a_mean_and_a_band(texts_of):
  points = [{"gamma": g, "seed": s} for g in (1.0, 2.0) for s in (0, 1, 2)]
  h = random(6, diverged=[(4, 3)])
  figure = plots.curves(h, points, None)
  accuracy = figure.axes[1]
  assert len(accuracy.collections) == 2
  mean = 100 * h.metrics["test_accuracy"][:3].mean(0)
  np.testing.assert_allclose(accuracy.lines[0].get_ydata(), mean)
  title = figure.legends[0].get_title().get_text()
  assert title == "γ (mean and range over 3 seeds)"
  assert texts_of(figure) == ["1", "2 (1 of 3 seeds diverged)"]


@pytest.mark.parametrize("column", [0, 1, 4])
def test_what_explodes_does_not_flatten_the_others(tmp_path, column, texts_of):
  h = random(3, diverged=[(0, 0), (2, column)])
  h.metrics["train_loss"][2, : column + 1] = 1e30
  points = [{"a": 1, "mu": 0.1}, {"a": 2, "mu": 0.1}, {"a": 2, "mu": 1.0}]
  figure = plots.curves(h, points, None)
  assert figure.axes[0].get_ylim()[1] < 10
  # Also one that never had a value is named.
  names = ["1, 0.1 (diverged)", "2, 0.1", "2, 1 (diverged)"]
  assert texts_of(figure) == names
  assert figure.legends[0].get_title().get_text() == "a, μ"
  lost = random(2, diverged=[(0, column), (1, column)])
  plots.curves(lost, TWO, tmp_path / "all.png")


@pytest.mark.parametrize("title", [None, "digits, FedAvg"])
def test_of_many_settings_the_best_are_named(title, texts_of):
  h = random(30, diverged=[(7, 3)])
  figure = plots.curves(h, MANY, None, title=title)
  ends = h.values("test_accuracy")[:, -1]
  best = np.argsort(np.where(np.isnan(ends), 1, -ends))[:6]
  rest = ["24 other settings (1 diverged): 10–90 %", "25–75 %"]
  assert texts_of(figure) == [*map(str, best), *rest]
  loss = figure.axes[0]
  assert len(loss.lines) == 6
  others = np.delete(h.values("train_loss"), best, axis=0)
  quantiles = (0.1, 0.9), (0.25, 0.75)
  for band, shares in zip(loss.collections, quantiles, strict=True):
    low, high = np.nanquantile(others, shares, axis=0)
    ends = np.unique(band.get_paths()[0].vertices[:, 1])
    np.testing.assert_allclose(ends, np.unique([low, high]))


def test_a_few_other_settings_are_thin_lines(texts_of):
  figure = plots.curves(random(13), MANY[:13], None)
  assert texts_of(figure)[-1] == "7 other settings"
  assert len(figure.axes[0].lines) == 13
  assert not figure.axes[0].collections


def test_a_curve_that_leaves_the_axis_is_marked(rises, texts_of):
  values = rises(0.85, 0.86, 0.87, 0.2)
  h = History(range(10), {"test_accuracy": values})
  figure = plots.curves(h, [{"a": i} for i in range(4)], None)
  (axes,) = figure.axes
  assert texts_of(figure) == ["0", "1", "2", "3", "outside the axis"]
  (mark,) = (line for line in axes.lines if line.get_marker() == "v")
  np.testing.assert_allclose(mark.get_xydata(), [[9, axes.get_ylim()[0]]])
  assert [text.get_text() for text in axes.texts] == ["20"]


def test_five_panels_of_one_round():
  names = ["train_loss", "test_loss", "test_accuracy"]
  h = random(1, num_rounds=1)
  figure = plots.curves(h, [{}], None, panels=[*names, *names[:2]])
  assert len(figure.axes) == 5
  assert figure.get_size_inches()[0] <= 6.8
  assert figure.axes[0].lines[0].get_marker() == "o"
