"""What all figures share: style, axes, files, and what panels are made of."""

import os
import pathlib
import re
import sys
import types

import numpy as np
import pytest
from matplotlib.figure import Figure

import fedjax_opt
from fedjax_opt.study import plots
from fedjax_opt.study.plots import panels
from fedjax_opt.study.plots.metric_axis import Curve, as_curve, metric_axis

COUNTS = [[1, 2], [3, 4]]
ENDINGS = ("png", "pdf", "svg")


def test_matplotlib_is_imported_while_drawing_and_never_pyplot(monkeypatch):
  for file in pathlib.Path(fedjax_opt.__file__).parent.rglob("*.py"):
    assert not re.search("^(import|from) matplotlib", file.read_text(), re.M)
  monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
  assert plots.label_histogram(COUNTS, None)._repr_png_()


@pytest.mark.parametrize(
  ("limits", "labels"),
  [
    ((0.04, 0.31), [0.05, 0.07, 0.1, 0.15, 0.2, 0.3]),
    ((2.5, 6.5), [3, 4, 5, 6]),
    ((0.8, 90), [1, 2, 3, 5, 10, 20, 30, 50]),
  ],
)
def test_numbers_between_powers_of_ten(limits, labels):
  with plots.figure(1, 1) as (figure, ((axes,),)):
    plots.log_scale(axes.yaxis, limits)
    axes.set_ylim(limits)
    figure.canvas.draw()
    texts = [text.get_text() for text in axes.get_yticklabels()]
    ticks = axes.get_yticks()
  numbers = [
    float(text)
    for text, tick in zip(texts, ticks, strict=True)
    if text and limits[0] <= tick <= limits[1]
  ]
  assert numbers == labels


def test_limits_of_a_logarithmic_axis_may_be_of_numpy():
  axes = Figure().subplots()
  plots.log_scale(axes.yaxis, np.array([0.5, 5], np.float32))
  assert axes.get_yscale() == "log"


def test_several_files_of_one_drawing(tmp_path):
  paths = [tmp_path / f"a.{ending}" for ending in ENDINGS]
  assert plots.label_histogram(COUNTS, paths) is None
  _, pdf, svg = contents = [path.read_bytes() for path in paths]
  assert [data[:5] for data in contents] == [b"\x89PNG\r", b"%PDF-", b"<?xml"]
  assert sorted(os.listdir(tmp_path)) == ["a.pdf", "a.png", "a.svg"]
  # Fonts are in the PDF, as TrueType; the text of the SVG is text.
  assert b"/FontFile2" in pdf
  assert b"/Type3" not in pdf
  assert b">Examples</text>" in svg
  other_paths = [tmp_path / f"b.{ending}" for ending in ENDINGS]
  plots.label_histogram(COUNTS, other_paths)
  assert [path.read_bytes() for path in other_paths] == contents


def test_a_figure_has_its_style_also_when_it_is_saved_later(tmp_path):
  figure = plots.label_histogram(COUNTS, None)
  figure.savefig(tmp_path / "later.pdf")
  assert b"/Type3" not in (tmp_path / "later.pdf").read_bytes()


def test_a_notebook_shows_a_figure_at_its_size(monkeypatch):
  calls = []
  display = lambda data, **options: calls.append((data, options))
  ipython = types.SimpleNamespace(display=display)
  monkeypatch.setitem(sys.modules, "IPython.display", ipython)
  figure = plots.label_histogram(COUNTS, None, title="here")
  assert figure.axes[0].get_title() == "here"
  figure._ipython_display_()
  ((data, options),) = calls
  assert data["image/png"].startswith(b"\x89PNG")
  width, height = 100 * figure.get_size_inches()
  size = {"width": int(width), "height": int(height)}
  assert options == {"metadata": {"image/png": size}, "raw": True}


def test_what_fails_leaves_the_old_file(tmp_path, monkeypatch):
  path = tmp_path / "a.png"
  path.write_text("old")

  def fail(self, target, **options):
    pathlib.Path(target).write_text("half")
    raise OSError("the disk is full")

  monkeypatch.setattr(Figure, "savefig", fail)
  with pytest.raises(OSError, match="the disk is full"):
    plots.label_histogram(COUNTS, path)
  assert path.read_text() == "old"
  assert os.listdir(tmp_path) == ["a.png"]


# How methods look, and the axis of their metric.


def test_every_method_looks_different_and_the_same_everywhere():
  labels = [f"method {i}" for i in range(21)]
  styles = plots.method_styles(labels)
  assert list(styles) == labels
  lines = {(style.color, style.linestyle) for style in styles.values()}
  assert len(lines) == 21
  many_styles = plots.method_styles(map(str, range(77)))
  assert len(set(many_styles.values())) == 77
  assert len({style.color for style in list(styles.values())[:7]}) == 7
  one, other = ["Δ-SGD", "a", "fed_avg"], ["b", "DOMO", "FedAvg", "Δ-SGD"]
  one, other = map(plots.method_styles, (one, other))
  assert one["Δ-SGD"] == other["Δ-SGD"]
  assert one["fed_avg"] == other["FedAvg"]
  assert len({style.color for style in other.values()}) == 4


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
  axis = metric_axis(metric, [curve_of(*values) for values in curves])
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
  means = [axis.units(curve.mean) for curve in curves]
  is_inside = axis.limits[0] <= np.min(means) <= np.max(means) <= axis.limits[1]
  assert is_inside or not whole


def test_intervals_of_losses_are_within_a_log_axis():
  values = np.array([[0.001, 0.0009, 0.0011], [1.0, 0.0, 5.0]])[:, :, None]
  curves = [Curve(np.zeros(1), *row) for row in values]
  axis = metric_axis("test_loss", curves, shows_all=True)
  low, high = axis.limits
  assert axis.is_log
  assert 0 < low < 0.0009
  assert high > 5
