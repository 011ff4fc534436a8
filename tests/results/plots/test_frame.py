"""Figures without matplotlib, and without pyplot."""

import importlib.util
import subprocess
import sys

import pytest

from fedjax_opt.results import plots
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
