"""Final values against a condition: places, intervals, and which end."""

import numpy as np
import pytest

from fedjax_opt.study import plots


def interval(*mean):
  mean = np.array(mean)
  return mean, mean - 0.02, mean + 0.01


def draw(values, x_name, x_values, **options):
  figure = plots.study_values(
    values,
    None,
    metric="test_accuracy",
    x_name=x_name,
    x_values=x_values,
    **options,
  )
  return figure, figure.axes[0]


def test_more_heterogeneous_is_to_the_right():
  values = {"a": interval(0.6, 0.8, 0.85), "b": interval(0.5, 0.7, 0.8)}
  _, axes = draw(values, "alpha", [0.01, 0.1, 1.0])
  assert axes.get_xlabel() == "α (clients differ more →)"
  ticks = dict(
    zip(
      [tick.get_text() for tick in axes.get_xticklabels()],
      axes.get_xticks(),
      strict=True,
    )
  )
  assert ticks["1"] < ticks["0.1"] < ticks["0.01"]
  # Evenly spaced, because the axis is logarithmic.
  assert ticks["0.1"] - ticks["1"] == pytest.approx(1)
  a, b = axes.lines
  np.testing.assert_allclose(a.get_ydata(), [85, 80, 60])
  np.testing.assert_allclose(b.get_ydata(), [80, 70, 50])
  # The methods are side by side around the value.
  middle = (a.get_xdata() + b.get_xdata()) / 2
  np.testing.assert_allclose(middle, sorted(ticks.values()), atol=1e-12)
  assert (a.get_xdata() < b.get_xdata()).all()
  bars = axes.collections[0].get_segments()
  np.testing.assert_allclose([bar[:, 1] for bar in bars][2], [58, 61])


@pytest.mark.parametrize(
  ("x_name", "x_values", "places"),
  [
    ("local_steps", [1, 4, 16], np.log10([1, 4, 16])),
    ("cohort_size", [10, 20, 50], [10, 20, 50]),
    ("cohort_size", [0.01, 0.011, 9], [0, 1, 2]),
    ("partition", ["iid", "dirichlet", "shards"], [0, 1, 2]),
    ("alpha", [float("inf"), 1.0, 0.1], [0, -1, -2]),
    ("zeta", [0.1, 0.2, 0.4], [0.1, 0.2, 0.4]),
  ],
)
def test_places(x_name, x_values, places):
  _, axes = draw({"a": interval(0.6, 0.7, 0.8)}, x_name, x_values)
  np.testing.assert_allclose(axes.get_xticks(), places)
  has_way = x_name in ("alpha", "zeta")
  assert ("differ more" in axes.get_xlabel()) == has_way


def test_diverged_methods_have_a_cross():
  figure, axes = draw({"a": interval(0.6, np.nan)}, "alpha", [1.0, 0.1])
  cross = axes.lines[-1]
  assert cross.get_marker() == "x"
  # At the lower end of the axis.
  at = axes.transAxes.inverted().transform(
    cross.get_transform().transform(cross.get_xydata())
  )
  assert at[0, 1] == pytest.approx(0)
  texts = [text.get_text() for text in figure.legends[0].get_texts()]
  assert texts == ["a", "diverged"]


def test_high_accuracies_one_value_and_nothing_at_all(tmp_path):
  _, axes = draw({"a": interval(0.95, 0.99)}, "alpha", [1.0, 0.1])
  assert axes.get_ylabel() == "Test error (%)"
  np.testing.assert_allclose(axes.lines[0].get_ydata(), [5, 1])
  for mean in (0.5, np.nan):
    figure, _ = draw({"a": interval(mean)}, "alpha", [1.0])
    figure.savefig(tmp_path / "a.png")


def test_intervals_of_errors_are_within_the_axis():
  mean = np.array([0.971, 0.97])
  value = (mean, mean - 0.02, mean + np.array([0.01, 0.029]))
  _, axes = draw({"a": value}, "delta", [0.1, 1.0])
  low, high = axes.get_ylim()
  assert axes.get_yscale() == "linear"
  assert low < 0.1 < 5 < high < 6
  # On a log axis those that end at no error are cut.
  mean = np.array([0.93, 0.99])
  _, axes = draw({"a": (mean, mean - 0.05, mean + 0.01)}, "delta", [0.1, 1.0])
  low, high = axes.get_ylim()
  assert axes.get_yscale() == "log"
  assert 0.2 < low < 0.3
  assert 12 <= high < 15
