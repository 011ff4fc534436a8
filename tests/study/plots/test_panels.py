"""How methods look, and the axis of their metric."""

import numpy as np
import pytest

from fedjax_opt.study import plots
from fedjax_opt.study.plots import panels
from fedjax_opt.study.plots.metric_axis import Curve, as_curve, metric_axis


def test_every_method_looks_different_and_the_same_everywhere():
  labels = [f"method {i}" for i in range(21)]
  styles = plots.method_styles(labels)
  assert list(styles) == labels
  lines = {(style.color, style.linestyle) for style in styles.values()}
  assert len(lines) == 21
  many = plots.method_styles(map(str, range(77)))
  assert len(set(many.values())) == 77
  assert len({style.color for style in list(styles.values())[:7]}) == 7


def test_labels_that_are_identifiers_get_their_names():
  assert panels.shown_name("fed_avg") == "FedAvg"
  assert panels.shown_name("fed_avg 0.1") == "fed_avg 0.1"


def test_a_curve_of_seeds_is_their_mean_and_range():
  values = [[1.0, 2.0, 3.0], [3.0, 2.0, np.nan]]
  ends = [1, 2, np.nan], [3, 2, np.nan]
  curve = as_curve("curves", ([1, 2, 3], values))
  np.testing.assert_array_equal(curve, [[1, 2, 3], [2, 2, np.nan], *ends])
  alone = as_curve("curves", ([1, 2], [1.0, 2.0]))
  assert np.isnan([alone.low, alone.high]).all()


def curve_of(*values):
  return as_curve("curve", (range(len(values)), values))


@pytest.mark.parametrize(
  ("metric", "is_better_high"),
  [
    ("f1", True),
    ("recall", True),
    ("test_accuracy", True),
    ("test_loss", False),
    ("recovery_error", False),
  ],
)
@pytest.mark.parametrize("curves", [[], [[0.1, 0.8], [0.1, 0.7]]])
def test_where_bad_values_are(metric, is_better_high, curves):
  axis = metric_axis(metric, [curve_of(*each) for each in curves])
  assert axis.is_better_high == is_better_high
  if curves:
    low, high = axis.limits
    assert axis.worse_end == (low if is_better_high else high)


ACCURACY, ERROR = "Test accuracy (%)", "Test error (%)"


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
  ("ends", "label", "is_log", "low", "high"),
  [
    ((0.97, 0.99), ERROR, True, (0, 1), (90, 100)),
    ((0.99, 1.0), ERROR, False, (-5, 0), (90, 100.5)),
    # What is 100 % alone has no error.
    ((), ACCURACY, False, (90, 100), (100, 100.5)),
    # The range is that of the good curves; without a better half it is whole.
    ((0.85, 0.86, 0.87, 0.2), ACCURACY, False, (50, 85), (87, 92)),
    ((0.85, 0.2), ACCURACY, False, (0, 20), (85, 92)),
  ],
)
def test_ranges_of_accuracies(ends, label, is_log, low, high, whole, rises):
  curves = [curve_of(*values) for values in rises(*ends)] or [curve_of(1.0)]
  axis = metric_axis("test_accuracy", curves, whole)
  assert (axis.label, axis.is_log) == (label, is_log)
  assert whole or low[0] < axis.limits[0] < low[1]
  assert high[0] < axis.limits[1] <= high[1]
  shown = [axis.units(curve.mean) for curve in curves]
  is_inside = axis.limits[0] <= np.min(shown) <= np.max(shown) <= axis.limits[1]
  assert is_inside or not whole


def test_intervals_of_losses_are_within_a_log_axis():
  values = np.array([[0.001, 0.0009, 0.0011], [1.0, 0.0, 5.0]])[:, :, None]
  curves = [Curve(np.zeros(1), *each) for each in values]
  axis = metric_axis("test_loss", curves, whole=True)
  low, high = axis.limits
  assert axis.is_log
  assert 0 < low < 0.0009
  assert high > 5
