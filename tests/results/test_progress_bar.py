"""The bar of `progress=True`."""

import sys
import types
import warnings

import numpy as np

from fedjax_opt import Report
from fedjax_opt.results.progress import with_progress


def test_a_notebook_without_ipywidgets_has_a_bar_of_text_and_no_warning(
  monkeypatch, capsys
):
  import tqdm.notebook

  shell = types.SimpleNamespace(config={"IPKernelApp": {}})
  ipython = types.SimpleNamespace(get_ipython=lambda: shell)
  monkeypatch.setitem(sys.modules, "IPython", ipython)
  monkeypatch.setattr(tqdm.notebook, "IProgress", None)
  for name in ("tqdm.auto", "tqdm.autonotebook"):  # Imported anew.
    monkeypatch.delitem(sys.modules, name, raising=False)
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    with with_progress(4, None) as show:
      show(Report(2, {"test_accuracy": np.array([0.5, np.nan])}, 0.0, 0.0))
  shown = capsys.readouterr().err
  assert "2/4" in shown
  assert "test_accuracy=0.5" in shown


def test_the_callback_is_called_and_may_end_the_run():
  with with_progress(4, lambda report: report.round == 2) as show:
    assert show(Report(2, {}, 0.0, 0.0)) is True
