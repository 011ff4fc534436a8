"""Pictures of artefacts that `fedjax_opt.plots` does not have."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.artefacts.record import Record
from fedjax_opt import plots
from fedjax_opt.results.names import metric_name
from fedjax_opt.study.plots import frame, panels
from fedjax_opt.study.plots.lines import draw_curves
from fedjax_opt.study.plots.metric_axis import metric_axis
from fedjax_opt.study.report.drawing import curve

LINE = "optimum"  # What a horizontal line is called in the legend.


class Row(NamedTuple):
  """A row of panels.

  Attributes:
    methods: name -> its record; its points are seeds.
    lines: metric -> height of a horizontal line, such as the optimum's.
  """

  methods: Mapping[str, Record]
  lines: Mapping[str, float]


def curve_of(record: Record, metric: str) -> plots.Curve:
  """A metric over the rounds, with its 95 % interval over the seeds."""
  rounds = np.asarray(record.history.rounds, float)
  return curve(metric, rounds, record.history.values(metric))


def draw_metrics(
  rows: Mapping[str, Row],
  metrics: Sequence[str],
  methods: Sequence[str],
  path: pathlib.Path,
) -> None:
  """Draws learning curves: a panel for each metric, a row for each condition.

  Args:
    rows: condition -> what is drawn; conditions without methods are left out.
    metrics: of the panels of a row; those that no record has are left out.
    methods: all that may be there; they decide the looks.
    path: of the file.
  """
  rows = {title: row for title, row in rows.items() if row.methods}
  records = [each for row in rows.values() for each in row.methods.values()]
  measured = {name for record in records for name in record.history.metrics}
  metrics = [metric for metric in metrics if metric in measured]
  styles = plots.method_styles(methods)
  scale = (0.85, 0.8)
  with plots.figure(len(metrics), len(rows), scale) as (figure, axes):
    entries = {}
    for of_row, (title, row) in zip(axes, rows.items(), strict=True):
      for panel, metric in zip(of_row, metrics, strict=True):
        entries |= _draw_panel(panel, row, metric, styles)
      of_row[0].set_ylabel(title)
    for panel, metric in zip(axes[0], metrics, strict=True):
      panel.set_title(metric_name(metric))
    for panel in axes[-1]:
      panel.set_xlabel("Communication round")
    order = sorted(entries, key=lambda entry: entry not in methods)
    shown = {entry: entries[entry] for entry in order}
    width = 2.8 * scale[0] * len(metrics)
    panels.add_below(figure, shown, width, "Mean and 95 % interval over seeds")
    frame.finish(figure, path)


def _draw_panel(axes, row: Row, metric: str, styles) -> dict:
  """Draws one panel; returns the entries of its legend."""
  curves = {
    method: curve_of(record, metric)
    for method, record in row.methods.items()
    if metric in record.history.metrics
  }
  curves = {
    method: line
    for method, line in curves.items()
    if np.isfinite(line.mean).any()
  }
  entries = {}
  if curves:
    axis = metric_axis(metric, list(curves.values()))
    entries = draw_curves(axes, curves, styles, axis)
  if metric == "rank":
    axes.yaxis.get_major_locator().set_params(integer=True)
  if metric in row.lines:
    height = row.lines[metric]
    look = {"color": "black", "linestyle": ":", "linewidth": 1.0, "zorder": 2}
    entries[LINE] = axes.axhline(height, **look)
    low, high = axes.get_ylim()
    if axes.get_yscale() == "linear":  # With some room beside the line.
      room = 0.04 * (max(high, height) - min(low, height))
      low, high = min(low, height - room), max(high, height + room)
    axes.set_ylim(min(low, height), max(high, height))
  return entries
