"""What the pictures of a study share: labels, panels, captions."""

from __future__ import annotations

import functools
import pathlib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks import values as checks
from fedjax_opt.study import plots, words
from fedjax_opt.study import seed_statistics as statistics
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.plots.metric_axis import MetricAxis
from fedjax_opt.study.verdicts import JudgedStudy
from fedjax_opt.study.words import condition_label

# Characters of a method's name in a legend.
_MAX_LABEL = 36


class Picture(NamedTuple):
  """A picture of a study.

  Attributes:
    name: of its files, without the ending.
    title: the question that it answers.
    caption: what exactly is drawn.
    draw: writes it into files; without any, returns the figure.
  """

  name: str
  title: str
  caption: str
  draw: Callable[[Sequence[pathlib.Path] | None], Any]


class Drawn(NamedTuple):
  """A study as it is drawn.

  Attributes:
    study: which.
    labels: method -> its name in a picture.
    looks: name in a picture -> colour, line and marker.
  """

  study: JudgedStudy
  labels: Mapping[str, str]
  looks: Mapping[str, Any]

  def panel_title(self, condition: Mapping[str, Any]) -> str:
    """The label of a condition as the title of a panel, as wide as it."""
    width = 50 if len(self.study.conditions) in (1, 2, 4) else 33
    lines = textwrap.wrap(condition_label(condition), width)
    return in_picture("\n".join(lines))

  def panels(
    self,
    of_cell: Callable[[Cell], Any],
    cells: Sequence[Cell] | None = None,
  ) -> dict[str, dict[str, Any]]:
    """condition -> method -> what `of_cell` gives, where it is not None.

    Args:
      of_cell: of one cell.
      cells: which; all if None.
    """
    wanted = list(map(id, self.study.cells if cells is None else cells))
    panels: dict[str, dict[str, Any]] = {}
    for condition in self.study.conditions:
      for method, cell in self.study.under(condition).items():
        drawn = of_cell(cell) if id(cell) in wanted else None
        if drawn is not None:
          panel = panels.setdefault(self.panel_title(condition), {})
          panel[self.labels[method]] = drawn
    return panels

  def picture(
    self,
    name: str,
    title: str,
    caption: Sequence[str],
    plot: Callable[..., Any],
    panels: Mapping[str, Any],
    **options: Any,
  ) -> Picture:
    """A picture of panels.

    Args:
      name: as of `Picture`.
      title: as of `Picture`.
      caption: its sentences; those that are '' do not apply.
      plot: a function of `plots`.
      panels: condition -> method -> what it draws.
      **options: of the plot.
    """
    draw = functools.partial(plot, panels, **options)
    return Picture(name, title, " ".join(filter(None, caption)), draw)

  @property
  def seeds(self) -> tuple[str, str]:
    """Of how many seeds of the report means are, see `seeds_text`."""
    numbers = [verdict.num_seeds for verdict in self.study.verdicts]
    return seeds_text(numbers, "of the report")


def in_picture(label: str) -> str:
  """A label that matplotlib shows as it is."""
  text = label.replace("$", r"\$")
  return f" {text}" if text.startswith("_") else text


def legend_labels(labels: Mapping[str, str]) -> dict[str, str]:
  """method -> its name in a legend: short, and another one for each."""
  half = _MAX_LABEL // 2
  short = [
    x if len(x) <= _MAX_LABEL else f"{x[:half]}…{x[-half:]}"
    for x in labels.values()
  ]
  return dict(zip(labels, words.unique(map(in_picture, short)), strict=True))


def seeds_text(numbers: Iterable[int], whose: str) -> tuple[str, str]:
  """Of how many seeds means are: for a legend, and for a caption."""
  found = set(numbers) - {0}
  if found <= {1}:
    return "one seed", f"one seed {whose}, so there is no interval"
  text = f"{words.span(found)} seeds"
  return (
    f"mean and 95 % interval over {text}",
    f"the mean over {text} {whose} with its 95 % interval",
  )


def are_numbers(values: Iterable[Any]) -> bool:
  """Whether all values have a place on an axis of numbers."""
  return all(checks.is_real(value) and np.isfinite(value) for value in values)


# Parts of captions.


def panels_text(panels: Mapping[str, Any]) -> str:
  """Says what the panels are, if there are several."""
  return ", a panel for each condition" if len(panels) > 1 else ""


def cross_text(values: Sequence[float]) -> str:
  """Says what a cross is, if a value diverged."""
  if np.isfinite(values).all():
    return ""
  return (
    "A cross marks where a seed diverged; the mean of the others would be too "
    "good."
  )


def error_text(axis: MetricAxis, what: str = "are") -> str:
  """Says so if an axis has the error in place of the accuracy.

  Args:
    axis: of the metric.
    what: the verb for what is drawn: values 'are', curves 'end' above 90 %.
  """
  if not axis.is_error:
    return ""
  return (
    f"All {what} above 90 %, so the axis shows the error, which is 100 % "
    "minus the accuracy."
  )


def curve(x: np.ndarray, of_seeds: np.ndarray) -> plots.Curve:
  """The mean over seeds with its 95 % interval, of [seeds, E]."""
  interval = statistics.mean_interval(of_seeds)
  return plots.Curve(x, *map(np.atleast_1d, interval))
