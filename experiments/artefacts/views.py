"""Tables and pictures as TOML files declare them.

Both show the records that exist of `rows` and `columns`. The key of a record is
(row, column, *at). Where a table or picture has no entry of its own, it has
that of its artefact.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.artefacts.artefact import Key, Records
from experiments.artefacts.blocks import Picture, Table
from experiments.artefacts.declared_claims import lead
from experiments.artefacts.metric_panels import (
  curve_of,
  draw_metrics,
  interval_words,
)
from experiments.artefacts.values import ACCURACY, NOT_RUN, value, with_interval
from experiments.stored.records import Record
from fedjax_opt import plots, statistics


class TableDeclaration(NamedTuple):
  """A table as a file declares it.

  Attributes:
    rows: the rows; the file may name a group instead.
    columns: the columns in their order.
    titles: part of a key -> its title.
    title: a line above the table.
    corner: the head of the first column.
    value: what is shown, see values.py, or a hyperparameter.
    values: head -> value: a line for each column and row has all these, as far
      as its run measured them.
    at: the other parts of the keys.
    paper_numbers: (row, column) -> the paper's number, shown beside ours; in
      the file the name of a table of `numbers`.
    deviation: whether standard deviations are shown too.
    less: a row; what is shown are the differences to it.
    bold: keys that are printed in bold.
    turned: whether each column of the keys has a row; `corner` names these.
  """

  rows: Sequence[str]
  columns: Sequence[str] = ()
  titles: Mapping[str, str] = {}
  title: str = ""
  corner: str = "method"
  value: str = ACCURACY
  values: Mapping[str, str] = {}
  at: Sequence[str] = ()
  paper_numbers: Mapping[Key, str] = {}
  deviation: bool = False
  less: str | None = None
  bold: Sequence[Sequence[str]] = ()
  turned: bool = False


class PictureDeclaration(NamedTuple):
  """A picture as a file declares it.

  Attributes:
    name: the name of its file.
    alt: the text for readers who cannot see it.
    kind: 'curves': learning curves, a panel for each column; 'panels': a row of
      panels for each column, in it one for each of `metrics`; 'values': `value`
      against the last part of the keys, at the places `x`, a panel for each
      combination of the other parts.
    rows: the rows; the file may name a group instead.
    columns: the columns in their order. If the file has some for the picture,
      it shows only these.
    titles: part of a key -> its title.
    metrics: see `kind`.
    value: see `kind`.
    x: see `kind`.
    x_name: what the last parts of the keys are.
    transposed: whether the keys are reversed first.
    each_seed: whether 'curves' have a thin line for each seed, and no bands.
    guess: the accuracy of a constant guess, for a line; None for no line.
  """

  name: str
  alt: str
  kind: str
  rows: Sequence[str]
  columns: Sequence[str] = ()
  titles: Mapping[str, str] = {}
  metrics: Sequence[str] = ()
  value: str = ACCURACY
  x: Sequence[str] = ()
  x_name: str = ""
  transposed: bool = False
  each_seed: bool = False
  guess: float | None = None


Declaration = TableDeclaration | PictureDeclaration
# Title -> row -> its record, or for 'values' x -> record.
Panels = Mapping[str, Mapping[str, Any]]


def columns_of(declared: Declaration, records: Records) -> list[str]:
  """The columns that have records, in their declared order.

  If some are not declared, such as those of another size, the order is that of
  the keys.
  """
  rows = declared.rows
  columns = dict.fromkeys(k[1] for k in records if k[0] in rows and len(k) > 1)
  named = [name for name in declared.columns if name in columns]
  return named if len(named) == len(columns) else [*columns]


def table(declared: TableDeclaration, records: Records) -> Table | None:
  """Each cell `(row, column)`: the paper's number, if any, and ours.

  Rows without either are left out.
  """
  if declared.values:
    return _values_table(declared, records)
  rows, at, numbers = declared.rows, declared.at, declared.paper_numbers
  columns = [
    column
    for column in columns_of(declared, records)
    if any((row, column, *at) in records for row in rows)
  ]
  in_paper = {column for row, column in numbers if row in rows}
  heads = [declared.corner]
  for column in columns:
    title = declared.titles.get(column, column)
    heads += [f"{title}, paper", "ours"] if column in in_paper else [title]
  lines = []
  for row in rows:
    cells = []
    for column in columns:
      if column in in_paper:
        cells.append(numbers.get((row, column), NOT_RUN))
      cells.append(_cell(declared, records, (row, column, *at)))
    if set(cells) != {NOT_RUN}:
      lines.append([row, *cells])
  if not columns:
    return None
  if declared.turned:
    heads, *lines = map(list, zip(heads, *lines, strict=True))
  return Table(heads, lines, declared.title)


def _values_table(declared: TableDeclaration, records: Records) -> Table | None:
  """Several values of each cell: a line for each column and row."""
  lines = [
    [declared.titles.get(column, column), row]
    + [
      _cell(declared._replace(value=words), records, key)
      if _has(records[key], words)
      else NOT_RUN
      for words in declared.values.values()
    ]
    for column in columns_of(declared, records)
    for row in declared.rows
    if (key := (row, column, *declared.at)) in records
  ]
  heads = ["at", declared.corner, *declared.values]
  return Table(heads, lines, declared.title) if lines else None


def _has(record: Record, words: str) -> bool:
  """Whether a record has a value, or a hyperparameter."""
  metrics = record.history.metrics
  return words in record.points[0] or value(words).metric in metrics


def _cell(declared: TableDeclaration, cells: Records, key: Key) -> str:
  if key not in cells:
    return NOT_RUN
  if declared.value in cells[key].points[0]:
    return f"{cells[key].points[0][declared.value]:g}"
  if declared.less is not None:
    return lead(cells, key, (declared.less, *key[1:])).text(1)
  measure = value(declared.value)
  per_seed = measure.compute(cells[key])
  text = with_interval(per_seed, measure.metric, declared.deviation)
  return f"**{text}**" if list(key[:2]) in declared.bold else text


def picture(declared: PictureDeclaration, records: Records) -> Picture | None:
  """The declared picture; None if there is nothing to draw."""
  if declared.transposed:
    records = {key[::-1]: record for key, record in records.items()}
  panels = _panels_of(declared, records)
  draw = functools.partial(_DRAW[declared.kind], declared, panels)
  return Picture(declared.name, draw, declared.alt) if panels else None


def _panels_of(declared: PictureDeclaration, records: Records) -> Panels:
  """The panels of a picture."""
  rows, panels = declared.rows, {}
  if declared.kind != "values":
    for column in columns_of(declared, records):
      panel = {r: records[r, column] for r in rows if (r, column) in records}
      panels[declared.titles.get(column, column)] = panel
    return panels
  places = [x for x in declared.x if any(key[-1] == x for key in records)]
  for row, *rest in dict.fromkeys(key[:-1] for key in records):
    of_row = {x: records.get((row, *rest, x)) for x in places}
    # A row is drawn if it has all places that any row has.
    if row in rows and places and None not in of_row.values():
      panels.setdefault(", ".join(rest), {})[row] = of_row
  return panels


def _draw_curves(declared: PictureDeclaration, panels: Panels) -> Any:
  curves = {
    title: {row: curve_of(record, ACCURACY) for row, record in panel.items()}
    for title, panel in panels.items()
  }
  records = [record for rows in panels.values() for record in rows.values()]
  no_bands = lambda curve: curve._replace(low=None, high=None)
  if declared.each_seed:
    curves = {
      title: {row: no_bands(line) for row, line in panel.items()}
      for title, panel in curves.items()
    }
  styles = plots.method_styles(declared.rows)
  figure = plots.study_curves(
    curves,
    None,
    metric=ACCURACY,
    x_label="Communication round",
    interval=_lines_of(declared, records),
    styles=styles,
  )
  for axes, panel in zip(figure.axes, panels.values(), strict=False):
    _add_to_curves(declared, axes, panel, styles)
  return figure


def _lines_of(declared: PictureDeclaration, records: Sequence[Record]) -> str:
  """What the lines of 'curves' are."""
  lines = (
    "mean; thin: each seed" if declared.each_seed else interval_words(records)
  )
  return lines + "; dotted: a constant guess" * (declared.guess is not None)


def _add_to_curves(declared: PictureDeclaration, axes, panel, styles) -> None:
  """Adds the lines of seeds, and of a guess, to a panel of accuracies."""
  if declared.each_seed:
    for row, record in panel.items():
      values = 100 * record.history.values(ACCURACY).T
      look = {"color": styles[row][0], "linewidth": 0.6, "alpha": 0.7}
      axes.plot(record.history.rounds, values, zorder=2.5, **look)
  if declared.guess is not None:
    guess = 100 * declared.guess
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, guess - 0.05 * (high - low)), high)
    axes.axhline(guess, color="0.4", linewidth=0.8, linestyle=":")


def _draw_values(declared: PictureDeclaration, panels: Panels) -> Any:
  measure = value(declared.value)

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
    x_name=declared.x_name,
    x_values=[*map(_number, places)],
    interval=interval_words(
      [
        record
        for panel in panels.values()
        for of_row in panel.values()
        for record in of_row.values()
      ]
    ),
    styles=plots.method_styles(declared.rows),
  )


def _number(place: str) -> float | str:
  """The number in the name of a place, such as 'q = 0.1', or the name."""
  try:
    return float(place.split()[-1])
  except ValueError:
    return place


_DRAW = {
  "curves": _draw_curves,
  "values": _draw_values,
  "panels": lambda declared, panels: draw_metrics(
    panels, declared.metrics, declared.rows
  ),
}
