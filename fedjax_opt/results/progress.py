"""A bar that shows how far a run, or a study, has come."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.checks import errors
from fedjax_opt.results.metric_names import direction
from fedjax_opt.results.result import Report

_SHOWN_METRICS = ("train_loss", "test_loss", "test_accuracy")


def bar(total: int, unit: str, **options: Any) -> Any:
  """A bar of tqdm, a context manager; its `update(n)` moves it on.

  Args:
    total: the number at its end.
    unit: name of what is counted, in the plural.
    **options: further options of tqdm.

  Raises:
    ImportError: if tqdm is not installed.
  """
  with warnings.catch_warnings():
    # In a notebook without ipywidgets the bar is text: no reason to warn.
    warnings.simplefilter("ignore")
    module = errors.imported("tqdm.auto", "progress=True", "tqdm")
  return module.tqdm(
    total=total, unit=f" {unit}", dynamic_ncols=True, **options
  )


@contextlib.contextmanager
def bar_of_rounds(
  rounds: int, metrics: Sequence[str] = _SHOWN_METRICS, **options: Any
) -> Iterator[Callable[[int, Mapping[str, np.ndarray]], None]]:
  """A bar of the rounds of a run, with its latest metrics.

  Until the first evaluation it says that the run is compiled. Rounds per second
  do not count that time.

  Args:
    rounds: R.
    metrics: names of those to show, of a grid the best finite value.
    **options: further options of tqdm.

  Yields:
    A function of the rounds done and the metrics after them, {name: [S]}, which
    moves the bar.

  Raises:
    ImportError: if tqdm is not installed.
  """
  with bar(rounds, "rounds", desc="compiling", **options) as progress_bar:

    def show(round: int, measured: Mapping[str, np.ndarray]) -> None:
      if progress_bar.desc:
        progress_bar.set_description(refresh=False)
        progress_bar.unpause()  # The clock of the rate begins here.
      best_values = {}
      for name in metrics:
        values = np.asarray(measured.get(name, []))
        values = values[np.isfinite(values)]
        if values.size:
          best_of = np.max if direction(name) == "max" else np.min
          best_values[name] = f"{best_of(values):.4g}"
      progress_bar.set_postfix(best_values, refresh=False)
      progress_bar.update(round - progress_bar.n)

    yield show


@contextlib.contextmanager
def with_progress(
  rounds: int, on_evaluation: Callable[[Report], Any] | None
) -> Iterator[Callable[[Report], Any]]:
  """A callback that moves a bar, and calls another one.

  Args:
    rounds: R.
    on_evaluation: the other callback, or None.

  Raises:
    ImportError: if tqdm is not installed.
  """
  with bar_of_rounds(rounds) as show_rounds:

    def show(report: Report) -> Any:
      show_rounds(report.round, report.metrics)
      return None if on_evaluation is None else on_evaluation(report)

    yield show
