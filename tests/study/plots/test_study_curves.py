"""Pictures of a study whose lines have a metric over something."""

import numpy as np
import pytest

from fedjax_opt.study import plots

X = np.arange(10)
ACCURACY = {"metric": "test_accuracy"}
RATES = [0.01, 0.1, 1.0, 10.0]
VALUES = np.array([[0.6, 0.8, 0.7, 0.5], [0.6, 0.84, 0.72, np.nan]])


def marks(axes, marker):
  return [line for line in axes.lines if line.get_marker() == marker]


@pytest.mark.parametrize(
  ("conditions", "shape"), [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (5, (2, 3))]
)
def test_a_panel_for_each_condition(conditions, shape, rises, texts_of):
  of_method = {"fed_avg": (X, rises(0.8, 0.78)), "mine": (X, rises(0.7, 0.68))}
  curves = {f"alpha {c}": of_method for c in range(conditions)}
  figure = plots.study_curves(
    curves, None, title="digits", interval="mean", **ACCURACY
  )
  first, last = figure.axes[0], figure.axes[-1]
  assert [axes.get_title() for axes in figure.axes] == list(curves)
  assert first.get_subplotspec().get_gridspec().get_geometry() == shape
  assert figure.get_size_inches()[0] <= 6.8
  assert len({axes.get_ylim() for axes in figure.axes}) == 1
  assert first.get_ylabel() == "Test accuracy (%)"
  assert texts_of(figure) == ["FedAvg", "mine"]
  assert figure.legends[0].get_title().get_text() == "Mean"
  mean = 100 * rises(0.7, 0.68).mean(0)
  np.testing.assert_allclose(last.lines[1].get_ydata(), mean)
  assert len(first.collections) == 2


def test_intervals_that_are_given():
  mean = np.linspace(2, 1, 10)
  curve = plots.Curve(X, mean, mean - 0.1, mean + 0.3)
  figure = plots.study_curves({"a": curve}, None, metric="train_loss")
  heights = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
  assert (heights.min(), heights.max()) == pytest.approx((0.9, 2.3))


def test_high_accuracies_are_errors_with_their_bands_in_order(rises):
  values = rises(0.99, 0.97)
  (axes,) = plots.study_curves({"a": (X, values)}, None, **ACCURACY).axes
  assert axes.get_ylabel() == "Test error (%)"
  errors = 100 - 100 * values
  np.testing.assert_allclose(axes.lines[0].get_ydata(), errors.mean(0))
  lowest = axes.collections[0].get_paths()[0].vertices[:, 1].min()
  assert lowest == pytest.approx(errors.min())


def test_what_diverged_or_leaves_the_axis_is_marked(rises, texts_of):
  lost = rises(0.7, 0.68)
  lost[1, 5:] = np.nan
  curves = {f"m{i}": (X, rises(0.8 + 0.01 * i)) for i in range(3)}
  curves |= {"lost": (X, lost), "low": (X, rises(0.12, 0.08))}
  figure = plots.study_curves(curves, None, **ACCURACY)
  (axes,) = figure.axes
  assert texts_of(figure) == [*curves, "diverged", "outside the axis"]
  assert marks(axes, "x")[0].get_xdata() == [4]
  assert marks(axes, "v")[0].get_ydata() == axes.get_ylim()[0]
  assert [text.get_text() for text in axes.texts] == ["10"]


@pytest.mark.parametrize("metric", ["test_accuracy", "test_loss"])
def test_all_diverged_one_round_and_constant_values(tmp_path, metric):
  nothing = (X, np.full((2, 10), np.nan))
  curves = {
    "nothing": {"a": nothing},
    "one": {"a": ([3], [[0.5]])},
    "constant": {"a": (X, np.full((2, 10), 0.5)), "b": nothing},
  }
  plots.study_curves(curves, tmp_path / "all.png", metric=metric)
  for name in curves:
    plots.study_curves(curves[name], None, metric=metric)


def test_looks_are_those_of_the_study(rises, texts_of):
  curves = {f"m{i}": (X, rises(0.8 + 0.005 * i)) for i in range(12)}
  figure = plots.study_curves(curves, None, **ACCURACY)
  lines = figure.axes[0].lines
  assert len({(x.get_color(), x.get_linestyle()) for x in lines}) == 12
  assert texts_of(figure) == list(curves)
  part, styles = {"m2": curves["m2"]}, plots.method_styles(curves)
  figure = plots.study_curves(part, None, styles=styles, **ACCURACY)
  assert figure.axes[0].lines[0].get_color() == styles["m2"].color


def test_tuning_curves_show_all_values():
  n = np.arange(1, 7)
  value = 0.9 - 0.6 * 0.5**n
  curves = {"a": (n, value), "b": (n, value - 0.2)}
  (axes,) = plots.tuning_curves(curves, None, **ACCURACY).axes
  assert axes.get_xlabel() == "Settings tried (expected best of them)"
  np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * value)
  assert axes.get_ylim()[0] < 100 * (value - 0.2).min()


def test_performance_profiles():
  at = np.linspace(0, 1, 5)
  profiles = {"a": plots.Curve(at, 1 - at)}
  (axes,) = plots.performance_profiles(profiles, None, **ACCURACY).axes
  line = axes.lines[0].get_xydata()
  np.testing.assert_allclose(line, 100 * np.stack([at, 1 - at], 1))
  assert axes.get_xlabel() == "Test accuracy (%)"
  assert axes.get_ylabel() == "Runs with more than this value (%)"


def test_chosen_and_diverged_values():
  (axes,) = plots.sensitivity(
    {"a": (RATES, VALUES), "b": (RATES, VALUES - 0.1)},
    None,
    x_name="client_lr",
    chosen={"a": 0.1},
    **ACCURACY,
  ).axes
  assert axes.get_xlabel() == "Client learning rate"
  assert axes.get_xscale() == "log"
  mean = 100 * VALUES.mean(axis=0)
  np.testing.assert_allclose(axes.lines[0].get_ydata(), mean)
  (ring,) = (x for x in marks(axes, "o") if x.get_markersize() == 9)
  np.testing.assert_allclose(ring.get_xydata(), [[0.1, 82]])
  # Two crosses at the same value, one above the other.
  crosses = [mark.get_xydata()[0].tolist() for mark in marks(axes, "x")]
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
  rings = [sum(x.get_markersize() == 9 for x in a.lines) for a in figure.axes]
  assert rings == [0, 1]
