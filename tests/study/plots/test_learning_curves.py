"""Learning curves: lines, bands, crosses and legends."""

import numpy as np
import pytest

from fedjax_opt.results.history import History
from fedjax_opt.study import plots
from tests.results.histories import random


def legend_texts(figure) -> list[str]:
  return [text.get_text() for text in figure.legends[0].get_texts()]


def test_labels_scales_and_lines():
  points = [{"client_lr": lr} for lr in (0.1, 0.5)]
  h = random(2)
  figure = plots.curves(h, points, None, title="digits")
  loss, accuracy = figure.axes
  assert loss.get_ylabel() == "Training loss"
  assert accuracy.get_ylabel() == "Test accuracy (%)"
  assert loss.get_xlabel() == "Communication round"
  assert loss.get_yscale() == "log"
  assert accuracy.get_yscale() == "linear"
  assert legend_texts(figure) == ["0.1", "0.5"]
  assert figure.legends[0].get_title().get_text() == "Client learning rate"
  line = accuracy.lines[1]
  np.testing.assert_array_equal(line.get_xdata(), h.rounds)
  np.testing.assert_allclose(
    line.get_ydata(), 100 * h.metrics["test_accuracy"][1]
  )


@pytest.mark.parametrize(
  ("x_axis", "label", "places"),
  [
    ("gradient_evaluations", "Gradient evaluations of a client", 50),
    ("bytes", "Exchanged with a client (MB)", 3),
  ],
)
def test_against_what_was_spent(x_axis, label, places):
  points = [{"client_lr": lr} for lr in (0.1, 0.5)]
  h = random(2, diverged=[(1, 4)])
  rounds = np.asarray(h.rounds, float)
  for name, of_round in (
    ("gradient_evaluations", 50), ("bytes_down", 1e6), ("bytes_up", 2e6)
  ):  # fmt: skip
    h.metrics[name] = np.stack([of_round * rounds, 2 * of_round * rounds])
  figure = plots.curves(h, points, None, x_axis=x_axis)
  one, two, cross = figure.axes[1].lines
  assert figure.axes[1].get_xlabel() == label
  np.testing.assert_allclose(one.get_xdata(), places * rounds)
  np.testing.assert_allclose(two.get_xdata(), 2 * places * rounds)
  assert cross.get_xdata() == [2 * places * rounds[3]]


def test_test_loss_where_there_is_no_accuracy():
  h = random(1)
  del h.metrics["test_accuracy"]
  figure = plots.curves(h, [{}], None)
  assert [axes.get_ylabel() for axes in figure.axes] == [
    "Training loss",
    "Test loss",
  ]


def test_seeds_become_a_mean_and_a_band():
  points = [{"gamma": g, "seed": s} for g in (1.0, 2.0) for s in (0, 1, 2)]
  h = random(6)
  figure = plots.curves(h, points, None)
  accuracy = figure.axes[1]
  assert len(accuracy.lines) == len(accuracy.collections) == 2
  np.testing.assert_allclose(
    accuracy.lines[0].get_ydata(),
    100 * h.metrics["test_accuracy"][:3].mean(0),
  )
  title = figure.legends[0].get_title().get_text()
  assert title == "γ (mean and range over 3 seeds)"


def test_a_diverged_line_ends_with_a_cross():
  points = [{"client_lr": lr} for lr in (0.1, 0.5)]
  h = random(2, diverged=[(1, 4)])
  figure = plots.curves(h, points, None)
  accuracy = figure.axes[1]
  ok, diverged, cross = accuracy.lines
  assert np.isfinite(ok.get_ydata()).all()
  np.testing.assert_array_equal(
    np.isfinite(diverged.get_ydata()), np.arange(8) < 4
  )
  assert cross.get_marker() == "x"
  assert cross.get_xdata() == [h.rounds[3]]
  assert legend_texts(figure) == ["0.1", "0.5 (diverged)"]


def test_an_exploding_point_does_not_flatten_the_others():
  h = random(2, diverged=[(1, 4)])
  h.metrics["train_loss"][1, 3] = 1e30
  figure = plots.curves(h, [{"a": 1}, {"a": 2}], None)
  assert figure.axes[0].get_ylim()[1] < 10


@pytest.mark.parametrize("column", [0, 1])
def test_every_point_may_diverge(tmp_path, column):
  h = random(2, diverged=[(0, column), (1, column)])
  plots.curves(h, [{"a": 1}, {"a": 2}], tmp_path / "a.png")


@pytest.mark.parametrize("title", [None, "digits, FedAvg"])
def test_of_many_settings_the_best_are_named(title):
  points = [{"client_lr": 1.0 * i} for i in range(30)]
  h = random(30, diverged=[(7, 3)])
  figure = plots.curves(h, points, None, title=title)
  texts = legend_texts(figure)
  ends = h.values("test_accuracy")[:, -1]
  best = np.argsort(np.where(np.isnan(ends), 1, -ends))[:6]
  assert texts == [
    *(str(i) for i in best),
    "24 other settings (1 diverged): 10–90 %",
    "25–75 %",
  ]
  loss = figure.axes[0]
  assert len(loss.lines) == 6
  others = np.delete(h.values("train_loss"), best, axis=0)
  for band, shares in zip(
    loss.collections, ((0.1, 0.9), (0.25, 0.75)), strict=True
  ):
    low, high = np.nanquantile(others, shares, axis=0)
    ends = np.unique(band.get_paths()[0].vertices[:, 1])
    np.testing.assert_allclose(ends, np.unique([low, high]))


def test_a_few_other_settings_are_thin_lines():
  points = [{"client_lr": 1.0 * i} for i in range(13)]
  figure = plots.curves(random(13), points, None)
  assert legend_texts(figure)[-1] == "7 other settings"
  assert len(figure.axes[0].lines) == 13
  assert not figure.axes[0].collections


def test_every_point_is_named_also_one_that_never_had_a_value():
  h = random(3, diverged=[(0, 0), (2, 4)])
  points = [{"a": 1, "mu": 0.1}, {"a": 2, "mu": 0.1}, {"a": 2, "mu": 1.0}]
  figure = plots.curves(h, points, None)
  texts = ["1, 0.1 (diverged)", "2, 0.1", "2, 1 (diverged)"]
  assert legend_texts(figure) == texts
  assert figure.legends[0].get_title().get_text() == "a, μ"


def high(ends) -> History:
  """Accuracies that rise from 10 % to these ends."""
  steps = 1 - np.exp(-np.arange(10))
  values = 0.1 + (np.array(ends)[:, None] - 0.1) * steps / steps[-1]
  loss = 1 - values
  return History(range(10), {"train_loss": loss, "test_accuracy": values})


def test_high_accuracies_are_errors_on_a_log_axis():
  h = high([0.97, 0.99])
  figure = plots.curves(h, [{"a": 1}, {"a": 2}], None)
  axes = figure.axes[1]
  assert axes.get_ylabel() == "Test error (%)"
  assert axes.get_yscale() == "log"
  np.testing.assert_allclose(
    axes.lines[0].get_ydata(), 100 - 100 * h.metrics["test_accuracy"][0]
  )
  low, top = axes.get_ylim()
  assert low < 1 < 90 < top <= 100


def test_accuracies_of_100_percent_leave_an_axis():
  figure = plots.curves(high([0.99, 1.0]), [{"a": 1}, {"a": 2}], None)
  assert figure.axes[1].get_ylabel() == "Test error (%)"
  h = high([1.0])
  h.metrics["test_accuracy"][:] = 1
  figure = plots.curves(h, [{}], None, panels=["test_accuracy"])
  assert figure.axes[0].get_ylabel() == "Test accuracy (%)"


def test_the_range_is_that_of_the_good_curves():
  points = [{"a": a} for a in range(4)]
  figure = plots.curves(high([0.85, 0.86, 0.87, 0.2]), points, None)
  axes = figure.axes[1]
  assert axes.get_ylabel() == "Test accuracy (%)"
  low, top = axes.get_ylim()
  assert 50 < low < 85
  assert 87 < top < 92
  texts = ["0", "1", "2", "3", "outside the axis"]
  assert legend_texts(figure) == texts
  (mark,) = (line for line in axes.lines if line.get_marker() == "v")
  np.testing.assert_allclose(mark.get_xydata(), [[9, low]])
  assert [text.get_text() for text in axes.texts] == ["20"]


def test_without_a_better_half_all_is_shown():
  figure = plots.curves(high([0.85, 0.2]), [{"a": 1}, {"a": 2}], None)
  low, top = figure.axes[1].get_ylim()
  assert low < 20 < 85 < top
  assert legend_texts(figure) == ["1", "2"]


def test_more_than_three_panels_get_a_second_row():
  names = ["train_loss", "test_loss", "test_accuracy"]
  figure = plots.curves(random(1), [{}], None, panels=[*names, *names[:2]])
  assert len(figure.axes) == 5
  assert figure.get_size_inches()[0] <= 6.8


def test_one_evaluated_round_is_visible():
  figure = plots.curves(random(1, num_rounds=1), [{}], None)
  assert figure.axes[0].lines[0].get_marker() == "o"
