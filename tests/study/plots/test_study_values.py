"""Final values against a condition: places, intervals, and which end."""

import numpy as np
import pytest

from fedjax_opt.study import plots


def interval(*mean):
  mean = np.array(mean)
  return mean, mean - 0.02, mean + 0.01


def draw(values, x_name, x_values):
  about = {"metric": "test_accuracy", "x_name": x_name, "x_values": x_values}
  figure = plots.study_values(values, None, **about)
  return figure, figure.axes[0]


def test_more_heterogeneous_is_to_the_right():
  values = {"a": interval(0.6, 0.8, 0.85), "b": interval(0.5, 0.7, 0.8)}
  _, axes = draw(values, "alpha", [0.01, 0.1, 1.0])
  assert axes.get_xlabel() == "α (clients differ more →)"
  names = [tick.get_text() for tick in axes.get_xticklabels()]
  ticks = dict(zip(names, axes.get_xticks(), strict=True))
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
  np.testing.assert_allclose(bars[2][:, 1], [58, 61])


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


def test_diverged_methods_have_a_cross(texts_of):
  figure, axes = draw({"a": interval(0.6, np.nan)}, "alpha", [1.0, 0.1])
  cross = axes.lines[-1]
  assert cross.get_marker() == "x"
  # At the lower end of the axis.
  shown = cross.get_transform().transform(cross.get_xydata())
  at = axes.transAxes.inverted().transform(shown)
  assert at[0, 1] == pytest.approx(0)
  assert texts_of(figure) == ["a", "diverged"]


@pytest.mark.parametrize("mean", [0.5, np.nan])
def test_one_value_and_nothing_at_all(tmp_path, mean):
  figure, _ = draw({"a": interval(mean)}, "alpha", [1.0])
  figure.savefig(tmp_path / "a.png")


@pytest.mark.parametrize(
  ("mean", "up", "scale", "lowest", "highest"),
  [
    ([0.971, 0.97], [0.01, 0.029], "linear", (-1, 0.1), (5, 6)),
    # On a log axis those that end at no error are cut.
    ([0.93, 0.99], 0.01, "log", (0.2, 0.3), (9, 15)),
  ],
)
def test_intervals_of_errors_are_within_the_axis(
  mean, up, scale, lowest, highest
):
  mean = np.array(mean)
  _, axes = draw({"a": (mean, mean - 0.02, mean + up)}, "delta", [0.1, 1.0])
  assert axes.get_ylabel() == "Test error (%)"
  np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 - 100 * mean)
  low, high = axes.get_ylim()
  assert axes.get_yscale() == scale
  assert lowest[0] < low < lowest[1]
  assert highest[0] < high < highest[1]
