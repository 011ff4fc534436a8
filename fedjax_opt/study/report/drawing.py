"""What the pictures of a study share: labels, panels, captions."""

import functools
import pathlib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.study import plots, words
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.plots.distributions import client_labels
from fedjax_opt.study.plots.metric_axis import panels_axis
from fedjax_opt.study.report import templates
from fedjax_opt.study.study_cells import StudyCells
from fedjax_opt.study.verdicts import mean_within_bounds
from fedjax_opt.study.words import condition_label

# The most characters of a method's name in a legend.
_MAX_LABEL = 36


_PLOTS = {
  "against": plots.study_values,
  "learning_curves": plots.study_curves,
  "performance_profile": plots.performance_profiles,
  "sensitivity": plots.sensitivity,
  "heat_maps": plots.heat_maps,
  "tuning_curves": plots.tuning_curves,
  "clients": plots.client_distribution,
  "client_labels": client_labels,
  "step_sizes": plots.step_sizes,
}
# Kinds of pictures in which methods have no styles of their own.
_PLAIN = ("heat_maps", "step_sizes", "client_labels")


class Picture(NamedTuple):
  """A picture of a study.

  Attributes:
    kind: says which plot draws it, and which part of the page shows it.
    name: the name of its files, without the ending.
    draw: function that writes it into files, or returns the figure if given
      None.
    title: the question that it answers.
    caption: what exactly is drawn.
  """

  kind: str
  name: str
  draw: Callable[[Sequence[pathlib.Path] | None], Any]
  title: str
  caption: str


class StudyPictures(NamedTuple):
  """A study as it is drawn.

  Attributes:
    study: the study.
    labels: method -> its name in a picture.
    styles: name in a picture -> colour, line and marker.
  """

  study: StudyCells
  labels: Mapping[str, str]
  styles: Mapping[str, Any]

  def panel_title(self, condition: Mapping[str, Any]) -> str:
    """The label of a condition as a panel's title, broken to its width."""
    width = 50 if len(self.study.conditions) in (1, 2, 4) else 33
    lines = textwrap.wrap(condition_label(condition), width)
    return in_picture("\n".join(lines))

  def panels(
    self, of_cell: Callable[[Cell], Any], cells: Iterable[Cell] | None = None
  ) -> dict[str, dict[str, Any]]:
    """condition -> method -> what `of_cell` gives, where it is not None.

    Args:
      of_cell: function from a cell to what is drawn of it, or None.
      cells: the cells; None for all, condition after condition.
    """
    panels: dict[str, dict[str, Any]] = {}
    for cell in self.cells if cells is None else cells:
      data = of_cell(cell)
      if data is not None:
        panel = panels.setdefault(self.panel_title(cell.condition), {})
        panel[self.labels[cell.method]] = data
    return panels

  @property
  def cells(self) -> list[Cell]:
    """All cells, condition after condition."""
    return [verdict.cell for verdict in self.study.verdicts]

  def picture(
    self,
    kind: str,
    panels: Mapping[str, Any],
    facts: Mapping[str, Any],
    name: str = "",
    **options: Any,
  ) -> Picture:
    """A picture of panels, with the styles of the methods and their seeds.

    Args:
      kind: see `Picture`; its words are in the template of captions.
      panels: condition -> method -> what is drawn.
      facts: further values that its caption states, beside panels and options.
      name: see `Picture`; the kind if "".
      **options: the plot's options.
    """
    if kind not in _PLAIN:
      options["styles"] = self.styles
    if "seeds" in facts:
      seeds = facts["seeds"]
      bands = f"mean and 95 % interval over {seeds}" if seeds else "one seed"
      options["interval"] = bands
    draw = functools.partial(_PLOTS[kind], panels, **options)
    texts = templates.caption(kind, {"panels": panels, **options, **facts})
    return Picture(kind, name or kind, draw, *texts)

  @property
  def num_seeds(self) -> list[int]:
    """The number of seeds of the report in each mean."""
    return [verdict.num_seeds for verdict in self.study.verdicts]


def about_curves(
  metric: str,
  panels: Mapping[str, Mapping[str, plots.Curve]],
  seeds: Iterable[int],
  by_value: bool = False,
) -> dict[str, Any]:
  """The facts that a caption states about curves that are means over seeds.

  Args:
    metric: identifier of what is drawn.
    panels: condition -> method -> curve.
    seeds: the number of seeds in each mean.
    by_value: as of `panels_axis`.
  """
  counts = set(seeds) - {0}
  curves = [curve for panel in panels.values() for curve in panel.values()]
  means = [curve.mean for curve in curves]
  axis = panels_axis(metric, panels, by_value=by_value)
  return {
    "axis": axis,
    "is_cut": axis.is_cut(curves),
    "has_lost": not all(np.isfinite(mean).all() for mean in means),
    "seeds": f"{words.span(counts)} seeds" if counts - {1} else "",
  }


def in_picture(label: str) -> str:
  """A label, escaped so that matplotlib shows it as it is."""
  text = label.replace("$", r"\$")
  return f" {text}" if text.startswith("_") else text


def legend_labels(labels: Mapping[str, str]) -> dict[str, str]:
  """method -> its name in a legend: short, and different for each method."""
  return dict(zip(labels, short_labels(labels.values()), strict=True))


def short_labels(labels: Iterable[str], longest: int = _MAX_LABEL) -> list[str]:
  """Labels in a picture: of about that many characters, all different."""
  half = longest // 2
  short = [
    label if len(label) <= longest else f"{label[:half]}…{label[-half:]}"
    for label in labels
  ]
  return words.unique(map(in_picture, short))


def curve(metric: str, x: np.ndarray, per_seed: np.ndarray) -> plots.Curve:
  """The mean over seeds with its 95 % interval, of [seeds, E]."""
  return plots.Curve(
    x, *map(np.atleast_1d, mean_within_bounds(metric, per_seed))
  )
