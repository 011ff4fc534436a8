"""Tables and pictures as TOML files declare them.

Both show the records that exist of `rows` and `columns`. The key of a record is
(row, column, *at). A table has:

  title, corner   a line above it; the head of its first column
  value           what is shown, see values.py, or a hyperparameter. Default:
                  the last test accuracy
  values          head -> value: a line for each column and row has all these,
                  as far as its run measured them
  at              the other parts of the keys
  paper_numbers   name of a table of `numbers`, shown beside ours
  deviation       whether standard deviations are shown too
  less            a row; what is shown are the differences to it
  bold            keys that are printed in bold

A picture has `name`, `alt` (the text for readers who cannot see it) and a
`kind`. If it has `columns` of its own, it shows only these:

  curves          learning curves, a panel for each column
  panels          learning curves: a row of panels for each column, in it a
                  panel for each of `metrics`
  values          `value` against the last part of the keys, at the places `x`,
                  a panel for each combination of the other parts. `x_name` says
                  what the last parts are. With `transposed` the keys are
                  reversed first
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.artefacts import declared_claims
from experiments.artefacts.artefact import Key, Picture, Records, Table
from experiments.artefacts.declared_claims import group
from experiments.artefacts.values import ACCURACY, NOT_RUN, value, with_interval
from experiments.studies.records import Record
from fedjax_opt import plots, statistics
from fedjax_opt.results.names import metric_name, sentence
from fedjax_opt.study.plots import panels
from fedjax_opt.study.plots.lines import draw_curves
from fedjax_opt.study.plots.metric_axis import metric_axis
from fedjax_opt.study.report.drawing import curve


def columns_of(about: Mapping[str, Any], records: Records) -> list[str]:
  """The columns that have records, in their declared order.

  If some are not declared, such as those of another size, the order is that of
  the keys.
  """
  rows = group(about, about["rows"])
  columns = dict.fromkeys(k[1] for k in records if k[0] in rows and len(k) > 1)
  named = [name for name in about.get("columns", ()) if name in columns]
  return named if len(named) == len(columns) else [*columns]


def table(
  about: Mapping[str, Any], records: Records, numbers: Mapping[Key, str]
) -> Table | None:
  """Each cell `(row, column)`: the paper's number, if any, and ours.

  Rows without either are left out.

  Args:
    about: the artefact, with the declaration of the table.
    records: the records.
    numbers: (row, column) -> the paper's number.
  """
  if "values" in about:
    return _values_table(about, records)
  at, titles = about.get("at", []), about.get("titles", {})
  rows = group(about, about["rows"])
  columns = [
    column
    for column in columns_of(about, records)
    if any((row, column, *at) in records for row in rows)
  ]
  in_paper = {column for row, column in numbers if row in rows}
  heads = [about.get("corner", "method")]
  for column in columns:
    title = titles.get(column, column)
    heads += [f"{title}, paper", "ours"] if column in in_paper else [title]
  lines = []
  for row in rows:
    cells = []
    for column in columns:
      if column in in_paper:
        cells.append(numbers.get((row, column), NOT_RUN))
      cells.append(_cell(about, records, (row, column, *at)))
    if set(cells) != {NOT_RUN}:
      lines.append([row, *cells])
  return Table(heads, lines, about.get("title", "")) if columns else None


def _values_table(about: Mapping[str, Any], records: Records) -> Table | None:
  """Several values of each cell: a line for each column and row."""
  titles, values = about.get("titles", {}), about["values"]
  lines = [
    [titles.get(column, column), row]
    + [
      _cell(about | {"value": words}, records, key)
      if _has(records[key], words)
      else NOT_RUN
      for words in values.values()
    ]
    for column in columns_of(about, records)
    for row in group(about, about["rows"])
    if (key := (row, column, *about.get("at", []))) in records
  ]
  heads = ["at", about.get("corner", "method"), *values]
  return Table(heads, lines, about.get("title", "")) if lines else None


def _has(record: Record, words: str) -> bool:
  """Whether a record has a value, or a hyperparameter."""
  metrics = record.history.metrics
  return words in record.points[0] or value(words).metric in metrics


def _cell(about: Mapping[str, Any], cells: Records, key: Key) -> str:
  if key not in cells:
    return NOT_RUN
  words = about.get("value", ACCURACY)
  if words in cells[key].points[0]:
    return f"{cells[key].points[0][words]:g}"
  if "less" in about:
    return declared_claims.lead(cells, key, (about["less"], *key[1:])).text(1)
  measure = value(words)
  has_sd = about.get("deviation", False)
  text = with_interval(measure.compute(cells[key]), measure.metric, has_sd)
  return f"**{text}**" if list(key[:2]) in about.get("bold", []) else text


def picture(about: Mapping[str, Any], records: Records) -> Picture | None:
  """The declared picture; None if there is nothing to draw."""
  if about.get("transposed"):
    records = {key[::-1]: record for key, record in records.items()}
  panels = _panels_of(about, records)
  draw = functools.partial(_DRAW[about["kind"]], about, panels)
  return Picture(about["name"], draw, about["alt"]) if panels else None


def _panels_of(about: Mapping[str, Any], records: Records) -> dict[str, dict]:
  """Title of a panel -> row -> its record, or for 'values' x -> record."""
  rows, titles = group(about, about["rows"]), about.get("titles", {})
  panels: dict[str, dict] = {}
  if about["kind"] != "values":
    for column in columns_of(about, records):
      panel = {r: records[r, column] for r in rows if (r, column) in records}
      panels[titles.get(column, column)] = panel
    return panels
  places = [x for x in about["x"] if any(key[-1] == x for key in records)]
  for row, *rest in dict.fromkeys(key[:-1] for key in records):
    of_row = {x: records.get((row, *rest, x)) for x in places}
    # A row is drawn if it has all places that any row has.
    if row in rows and places and None not in of_row.values():
      panels.setdefault(", ".join(rest), {})[row] = of_row
  return panels


def _draw_curves(about: Mapping[str, Any], panels: Mapping[str, Any]) -> Any:
  curves = {
    title: {row: curve_of(record, ACCURACY) for row, record in panel.items()}
    for title, panel in panels.items()
  }
  return plots.study_curves(
    curves,
    None,
    metric=ACCURACY,
    x_label="Communication round",
    interval=_interval([r for rows in panels.values() for r in rows.values()]),
    styles=plots.method_styles(group(about, about["rows"])),
  )


def _draw_values(about: Mapping[str, Any], panels: Mapping[str, Any]) -> Any:
  measure = value(about.get("value", ACCURACY))

  def line(records):  # mean, low and high, [X] each
    means = [statistics.mean_interval(measure.compute(r)) for r in records]
    return tuple(np.array(means, float).reshape(-1, 3).T)

  lines = {
    title: {row: line(of_row.values()) for row, of_row in panel.items()}
    for title, panel in panels.items()
  }
  places = next(iter(next(iter(panels.values())).values()))
  return plots.study_values(
    lines[""] if [*lines] == [""] else lines,
    None,
    metric=measure.metric,
    x_name=about["x_name"],
    x_values=[*map(_number, places)],
    interval=_interval(
      [
        record
        for panel in panels.values()
        for of_row in panel.values()
        for record in of_row.values()
      ]
    ),
    styles=plots.method_styles(group(about, about["rows"])),
  )


def _interval(records: Sequence[Record]) -> str:
  """What lines are, and the bands or bars around them."""
  if all(len(record.points) == 1 for record in records):
    return "one seed"
  return "mean and 95 % interval over seeds"


def _number(place: str) -> float | str:
  """The number in the name of a place, such as 'q = 0.1', or the name."""
  try:
    return float(place.split()[-1])
  except ValueError:
    return place


def _draw_panels(about: Mapping[str, Any], panels: Mapping[str, Any]) -> Any:
  names = group(about, about["rows"])
  return draw_metrics(panels, about["metrics"], names)


_DRAW = {"curves": _draw_curves, "values": _draw_values, "panels": _draw_panels}


# Pictures that `fedjax_opt.plots` does not have.


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
    entries = {}
    for row_axes, (title, row) in zip(axes, rows.items(), strict=True):
      for panel, metric in zip(row_axes, metrics, strict=True):
        entries |= _draw_panel(panel, row, metric, styles)
      row_axes[0].set_ylabel(title)
    for panel, metric in zip(axes[0], metrics, strict=True):
      panel.set_title(metric_name(metric))
    for panel in axes[-1]:
      panel.set_xlabel("Communication round")
    width = 2.8 * scale[0] * len(metrics)
    legend_title = sentence(_interval(records))
    panels.add_below(figure, entries, width, legend_title)
    return figure


def _draw_panel(
  axes, row: Mapping[str, Record], metric: str, styles
) -> dict[str, Any]:
  """Draws one panel; returns the entries of its legend."""
  curves = {
    method: curve_of(record, metric)
    for method, record in row.items()
    if metric in record.history.metrics
  }
  curves = {
    method: line
    for method, line in curves.items()
    if np.isfinite(line.mean).any()
  }
  if metric == "rank":
    axes.yaxis.get_major_locator().set_params(integer=True)
  if not curves:
    return {}
  axis = metric_axis(metric, list(curves.values()))
  return draw_curves(axes, curves, styles, axis)
