"""Pictures with a panel for each metric, as `fedjax_opt.plots` has not."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.stored.records import Record
from fedjax_opt import plots
from fedjax_opt.results.names import capitalized, metric_name
from fedjax_opt.study.plots import panels
from fedjax_opt.study.plots.lines import draw_curves
from fedjax_opt.study.plots.metric_axis import MetricAxis, metric_axis
from fedjax_opt.study.report.drawing import curve


def interval_words(records: Sequence[Record]) -> str:
  """What lines are, and the bands or bars around them."""
  if all(len(record.points) == 1 for record in records):
    return "one seed"
  return "mean and 95 % interval over seeds"


def curve_of(record: Record, metric: str) -> plots.Curve:
  """A metric over the rounds, with its 95 % interval over the seeds."""
  rounds = np.asarray(record.history.rounds, float)
  return curve(metric, rounds, record.history.values(metric))


def draw_metrics(
  rows: Mapping[str, Mapping[str, Record]],
  metrics: Sequence[str],
  methods: Sequence[str],
) -> Any:
  """Draws learning curves: a panel for each metric, a row for each condition.

  Args:
    rows: condition -> method -> its record, whose points are seeds; conditions
      without methods are left out.
    metrics: of the panels of a row; metrics that no record has are left out.
    methods: all methods that may occur; they decide the looks.
  """
  rows = {title: row for title, row in rows.items() if row}
  records = [record for row in rows.values() for record in row.values()]
  measured = {name for record in records for name in record.history.metrics}
  metrics = [metric for metric in metrics if metric in measured]
  styles = plots.method_styles(methods)
  scale = (0.85, 0.8)
  with plots.figure(len(metrics), len(rows), scale) as (figure, axes):
    entries, left_out = {}, []
    for row_axes, (title, row) in zip(axes, rows.items(), strict=True):
      for panel, metric in zip(row_axes, metrics, strict=True):
        entries |= _draw_panel(panel, row, metric, styles)
        left_out += [f"{lost}, {title}" for lost in _left_out(row, metric)]
        panel.set(title=title, ylabel=metric_name(metric))
    for panel in axes[-1]:
      panel.set_xlabel("Communication round")
    width = 2.8 * scale[0] * len(metrics)
    legend_title = capitalized(interval_words(records))
    if left_out:
      runs = "; ".join(dict.fromkeys(left_out))
      legend_title += f"\ndiverged and left out: {runs}"
    panels.add_legend(figure, entries, width, legend_title)
    return figure


def _draw_panel(
  axes, row: Mapping[str, Record], metric: str, styles
) -> dict[str, Any]:
  """Draws one panel; returns the entries of its legend."""
  curves = {
    method: _curve_of_runs_that_end(record, metric)
    for method, record in row.items()
    if metric in record.history.metrics
  }
  curves = {
    method: line
    for method, line in curves.items()
    if np.isfinite(line.mean).any()
  }
  axes.xaxis.get_major_locator().set_params(integer=True)  # Rounds.
  if metric == "rank":
    axes.yaxis.get_major_locator().set_params(integer=True)
  if not curves:
    return {}
  axis = metric_axis(metric, list(curves.values()))
  axis = _without_start(axis, curves) if "loss" in metric else axis
  return draw_curves(axes, curves, styles, axis)


def _curve_of_runs_that_end(record: Record, metric: str) -> plots.Curve:
  """The curve of the seeds that did not diverge; of all, if all did."""
  ends = np.flatnonzero(record.ends(metric))
  return curve_of(record.take(ends) if ends.size else record, metric)


def _left_out(row: Mapping[str, Record], metric: str) -> list[str]:
  """The runs that diverged, of methods of which others did not."""
  ends = {
    method: record.ends(metric)
    for method, record in row.items()
    if metric in record.history.metrics
  }
  return [
    f"{sum(~of_runs)} of {len(of_runs)} of {method}"
    for method, of_runs in ends.items()
    if of_runs.any() and not of_runs.all()
  ]


# A loss before training that takes this share of an axis stays outside.
_WORTH_CUTTING = 0.4


def _without_start(
  axis: MetricAxis, curves: Mapping[str, plots.Curve]
) -> MetricAxis:
  """The axis of a loss without its value before training, if that is far."""
  if axis.limits is None or axis.is_log:
    return axis
  low, high = axis.limits
  later = [line.mean[1:] for line in curves.values()]
  highest = np.nanmax(np.concatenate([*later, [-np.inf]]))
  top = highest + 0.05 * (highest - low)
  is_worth = low < top < high - _WORTH_CUTTING * (high - low)
  return axis._replace(limits=(low, float(top))) if is_worth else axis
