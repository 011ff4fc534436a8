"""A bar that shows how far a run, or a study, has come."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedjax_opt.checks import values as checks
from fedjax_opt.results.result import Report


def bar(total: int, unit: str) -> Any:
  """A bar of tqdm, a context manager; its `update(n)` moves it on.

  Args:
    total: the number at its end.
    unit: name of what is counted, in the plural.

  Raises:
    ValueError: if tqdm is not installed.
  """
  with warnings.catch_warnings():
    # In a notebook without ipywidgets the bar is text: no reason to warn.
    warnings.simplefilter("ignore")
    module = checks.imported("tqdm.auto", "progress=True", "tqdm")
  return module.tqdm(total=total, unit=f" {unit}", dynamic_ncols=True)


@contextlib.contextmanager
def with_progress(
  rounds: int, on_evaluation: Callable[[Report], Any] | None
) -> Iterator[Callable[[Report], Any]]:
  """A callback that moves a bar, and calls another one.

  Args:
    rounds: R.
    on_evaluation: the other callback, or None.

  Raises:
    ValueError: if tqdm is not installed.
  """
  with bar(rounds, "rounds") as shown:

    def show(report: Report) -> Any:
      shown.update(report.round - shown.n)
      means = {}
      for name in ("train_loss", "test_loss", "test_accuracy"):
        values = np.asarray(report.metrics.get(name, []))
        values = values[np.isfinite(values)]
        if values.size:
          means[name] = f"{values.mean():.4g}"
      shown.set_postfix(means)
      return None if on_evaluation is None else on_evaluation(report)

    yield show
