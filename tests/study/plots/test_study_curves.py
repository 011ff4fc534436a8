"""Pictures of a study whose lines have a metric over something."""

import numpy as np
import pytest

from fedjax_opt.study import plots

X = np.arange(10)


def rising(end: float) -> tuple[np.ndarray, np.ndarray]:
  """Accuracies of two seeds."""
  steps = (1 - np.exp(-X)) / (1 - np.exp(-9))
  return X, np.stack([end * steps, (end - 0.02) * steps])


def legend_texts(figure) -> list[str]:
  return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize(
  ("conditions", "shape"), [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (5, (2, 3))]
)
def test_a_panel_for_each_condition(conditions, shape):
  curves = {
    f"alpha {c}": {"fed_avg": rising(0.8), "my method": rising(0.7)}
    for c in range(conditions)
  }
  figure = plots.study_curves(
    curves, None, metric="test_accuracy", title="digits", interval="mean"
  )
  assert [axes.get_title() for axes in figure.axes] == list(curves)
  assert figure.axes[0].get_subplotspec().get_gridspec().get_geometry() == shape
  assert figure.get_size_inches()[0] <= 6.8
  assert len({axes.get_ylim() for axes in figure.axes}) == 1
  assert figure.axes[0].get_ylabel() == "Test accuracy (%)"
  assert legend_texts(figure) == ["FedAvg", "my method"]
  assert figure.legends[0].get_title().get_text() == "Mean"
  line = figure.axes[-1].lines[1]
  np.testing.assert_allclose(line.get_ydata(), 100 * rising(0.7)[1].mean(0))
  assert len(figure.axes[0].collections) == 2


def test_intervals_that_are_given():
  mean = np.linspace(2, 1, 10)
  curve = plots.Curve(X, mean, mean - 0.1, mean + 0.3)
  figure = plots.study_curves({"a": curve}, None, metric="train_loss")
  vertices = figure.axes[0].collections[0].get_paths()[0].vertices
  assert vertices[:, 1].max() == pytest.approx(2.3)
  assert vertices[:, 1].min() == pytest.approx(0.9)


def test_high_accuracies_are_errors_with_their_bands_in_order():
  figure = plots.study_curves(
    {"a": rising(0.99)}, None, metric="validation_accuracy"
  )
  axes = figure.axes[0]
  assert axes.get_ylabel() == "Validation error (%)"
  ends = 100 - 100 * rising(0.99)[1]
  np.testing.assert_allclose(axes.lines[0].get_ydata(), ends.mean(0))


def test_what_diverged_or_leaves_the_axis_is_marked():
  x, lost = rising(0.7)
  lost[1, 5:] = np.nan
  curves = {f"m{i}": rising(0.8 + 0.01 * i) for i in range(3)}
  curves |= {"lost": (x, lost), "low": rising(0.1)}
  figure = plots.study_curves(curves, None, metric="test_accuracy")
  texts = legend_texts(figure)
  assert texts == [*curves, "diverged", "outside the axis"]
  marks = {line.get_marker(): line for line in figure.axes[0].lines}
  assert marks["x"].get_xdata() == [4]
  assert marks["v"].get_ydata() == figure.axes[0].get_ylim()[0]
  assert [text.get_text() for text in figure.axes[0].texts] == ["9"]


def test_all_diverged_one_round_and_constant_values(tmp_path):
  nothing = (X, np.full((2, 10), np.nan))
  constant = (X, np.full((2, 10), 0.5))
  for i, curves in enumerate(
    ({"a": nothing}, {"a": ([3], [[0.5]])}, {"a": constant, "b": nothing})
  ):
    for metric in ("test_accuracy", "test_loss"):
      plots.study_curves(curves, tmp_path / f"{i}.png", metric=metric)


def test_more_methods_than_colours():
  curves = {f"m{i}": rising(0.8 + 0.005 * i) for i in range(12)}
  figure = plots.study_curves(curves, None, metric="test_accuracy")
  looks = {(x.get_color(), x.get_linestyle()) for x in figure.axes[0].lines}
  assert len(looks) == 12
  assert legend_texts(figure) == list(curves)


def test_styles_of_the_study_hold_for_a_part_of_it():
  styles = plots.method_styles(["a", "b", "c"])
  figure = plots.study_curves(
    {"c": rising(0.8)}, None, metric="test_accuracy", styles=styles
  )
  assert figure.axes[0].lines[0].get_color() == styles["c"].color


def test_tuning_curves_show_all_values():
  n = np.arange(1, 7)
  value = 0.9 - 0.6 * 0.5**n
  figure = plots.tuning_curves(
    {"a": (n, value), "b": (n, value - 0.2)},
    None,
    metric="validation_accuracy",
  )
  axes = figure.axes[0]
  assert axes.get_xlabel() == "Settings tried (expected best of them)"
  np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * value)
  assert axes.get_ylim()[0] < 100 * (value - 0.2).min()


def test_performance_profiles():
  at = np.linspace(0, 1, 5)
  figure = plots.performance_profiles(
    {"a": plots.Curve(at, 1 - at)}, None, metric="test_accuracy"
  )
  axes = figure.axes[0]
  np.testing.assert_allclose(axes.lines[0].get_xdata(), 100 * at)
  np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * (1 - at))
  assert axes.get_xlabel() == "Test accuracy (%)"
  assert axes.get_ylabel() == "Runs with more than this value (%)"


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
