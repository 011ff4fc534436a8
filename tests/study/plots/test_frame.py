"""Figures without matplotlib, and without pyplot."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedjax_opt.study import plots
from tests.results.histories import random


def test_without_matplotlib_one_line_says_what_to_install(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ImportError, match=r"pip install 'fedjax_opt\[run\]'"):
    plots.curves(random(1), [{}], tmp_path / "a.png")


def test_import_and_drawing_leave_pyplot_alone(tmp_path):
  program = (
    "import sys; import fedjax_opt; from fedjax_opt import plots;"
    "assert 'matplotlib' not in sys.modules;"
    f"plots.label_histogram([[1, 2]], {str(tmp_path / 'a.png')!r});"
    "assert 'matplotlib.pyplot' not in sys.modules"
  )
  subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
  ("limits", "error", "line"),
  [
    ((0, 1), ValueError, "limits=(0, 1): must be positive and finite, the low"),
    ((-1.0, 1), ValueError, "limits=(-1.0, 1): must be positive and finite"),
    ((10, 1), ValueError, "limits=(10, 1): must be positive and finite, the l"),
    ((1, 1), ValueError, "limits=(1, 1): must be positive and finite, the low"),
    ((1, np.nan), ValueError, "limits=(1, nan): must be positive and finite"),
    ((1, np.inf), ValueError, "limits=(1, inf): must be positive and finite"),
    ((1,), TypeError, "limits=(1,): must be a pair of numbers or None"),
    (3, TypeError, "limits=3: must be a pair of numbers or None"),
    (("a", 1), TypeError, "limits=('a', 1): must be a pair of numbers or Non"),
  ],
)
def test_limits_of_a_logarithmic_axis_are_checked(limits, error, line):
  axes = Figure().subplots()
  with pytest.raises(error) as raised:
    plots.log_scale(axes.yaxis, limits)
  assert str(raised.value).startswith(line)
  assert axes.get_yscale() == "linear"  # Nothing was changed.


@pytest.mark.parametrize(
  ("limits", "labels"),
  [
    ((0.04, 0.31), [0.05, 0.07, 0.1, 0.15, 0.2, 0.3]),
    ((2.5, 6.5), [3, 4, 5, 6]),
    ((0.8, 90), [1, 2, 5, 10, 20, 50]),
  ],
)
def test_numbers_between_powers_of_ten(limits, labels):
  with plots.figure(1, 1) as (figure, ((axes,),)):
    plots.log_scale(axes.yaxis, limits)
    axes.set_ylim(limits)
    figure.canvas.draw()
    texts = [text.get_text() for text in axes.get_yticklabels()]
    ticks = axes.get_yticks()
  shown = [
    float(text)
    for text, at in zip(texts, ticks, strict=True)
    if text and limits[0] <= at <= limits[1]
  ]
  assert shown == labels


def test_limits_of_a_logarithmic_axis_may_be_of_numpy():
  axes = Figure().subplots()
  plots.log_scale(axes.yaxis, np.array([0.5, 5], np.float32))
  assert axes.get_yscale() == "log"
