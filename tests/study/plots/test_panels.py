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


def test_no_error_at_all_is_on_the_axis():
  curves = [curve_of(0.91, 1.0), curve_of(0.91, 0.95)]
  for whole in (True, False):
    axis = metric_axis("test_accuracy", curves, whole=whole)
    low, high = axis.limits
    assert not axis.is_log
    assert low <= axis.units(1.0) < axis.units(0.91) <= high


def test_intervals_of_losses_are_within_a_log_axis():
  values = np.array([[0.001, 0.0009, 0.0011], [1.0, 0.0, 5.0]])[:, :, None]
  curves = [Curve(np.zeros(1), *each) for each in values]
  axis = metric_axis("test_loss", curves, whole=True)
  low, high = axis.limits
  assert axis.is_log
  assert 0 < low < 0.0009
  assert high > 5
