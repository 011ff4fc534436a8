"""Records as cells of tables and as curves."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.artefacts.base import Found, Key, Picture, Table
from experiments.artefacts.claims import Quantity, above
from experiments.artefacts.record import Record
from fedjax_opt import plots, statistics
from fedjax_opt.results import history
from fedjax_opt.study.report.drawing import curve
from fedjax_opt.study.words import Numbers

NOT_RUN = "-"
ACCURACY = "test_accuracy"

Value = Callable[[Record], np.ndarray]  # One number for each point, [S].


def final(metric: str = ACCURACY) -> Value:
  """The last value of a metric, of each point."""
  return lambda record: record.final(metric)


def mean_of_last(metric: str, n: int) -> Value:
  """The mean of a metric over the last `n` evaluations, of each point."""
  return lambda record: record.history.values(metric)[:, -n:].mean(axis=1)


def best(metric: str = ACCURACY) -> Value:
  """The best value of a metric, of each point; NaN where it diverged.

  Args:
    metric: its name says whether the largest or the least value is best.
  """
  best_of = np.min if history.direction(metric) == "min" else np.max
  return lambda record: best_of(record.history.values(metric), axis=1)


def values(found: Found, key: Key, value: Value) -> np.ndarray | None:
  """The values of a cell by seed; None if it has not run."""
  return value(found[key]) if key in found else None


def of_points(
  record: Record, value: Value | None = None, **wanted: float
) -> np.ndarray:
  """The values, by seed, of the points with these hyperparameters.

  Args:
    record: of a run.
    value: of each point; the last test accuracy by default.
    **wanted: hyperparameter -> value.
  """
  is_near = lambda a, b: abs(a - b) < 1e-6 * max(1, abs(b))
  rows = [
    row
    for row, point in enumerate(record.points)
    if all(is_near(point[name], each) for name, each in wanted.items())
  ]
  return (value or final())(record)[rows]


def with_interval(of_seeds: np.ndarray | None, metric: str = ACCURACY) -> str:
  """The mean over seeds with its 95 % interval: 91.2 (90.1 to 92.3).

  Args:
    of_seeds: one value for each seed; None if it has not run.
    metric: whose values they are.
  """
  if of_seeds is None:
    return NOT_RUN
  if not np.isfinite(of_seeds).any():
    return "diverged"
  if not np.isfinite(of_seeds).all():
    lost = int(np.sum(~np.isfinite(of_seeds)))
    return f"{lost} of {len(of_seeds)} diverged"
  text, ends = Numbers(metric).parts(statistics.mean_interval(of_seeds))
  return f"{text} ({ends})" if ends else text


def beside_paper(
  found: Found,
  rows: Sequence[str],
  columns: Sequence[str],
  paper: Mapping[tuple[str, str], str | float],
  *,
  corner: str = "method",
  value: Value | None = None,
  metric: str = ACCURACY,
  title: str = "",
) -> Table:
  """Each cell `(row, column)`: the paper's number and ours.

  Args:
    found: what there is; its keys begin with row and column.
    rows: first parts of the keys.
    columns: second parts of the keys.
    paper: its numbers; a column of which it has none has only ours.
    corner: head of the first column.
    value: what is shown; the last value of `metric` by default.
    metric: whose values these are.
    title: of the table.
  """
  value = value or final(metric)
  given = [c for c in columns if any((r, c) in paper for r in rows)]
  heads = [corner]
  for column in columns:
    heads += [f"{column}, paper", "ours"] if column in given else [column]
  lines = []
  for row in rows:
    cells = [row]
    for column in columns:
      if column in given:
        cells.append(str(paper.get((row, column), NOT_RUN)))
      ours = values(found, (row, column), value)
      cells.append(with_interval(ours, metric))
    lines.append(cells)
  return Table(heads, lines, title)


def curves_by_column(
  found: Found,
  rows: Sequence[str],
  columns: Mapping[str, str],
  name: str,
  alt: str,
  *,
  metric: str = ACCURACY,
  x_label: str = "Communication round",
) -> Picture:
  """Learning curves, one panel for each column, one line for each row.

  Args:
    found: what there is; its keys are `(row, column)`.
    rows: first parts of the keys.
    columns: second parts of the keys -> titles of the panels.
    name: of the picture's file.
    alt: what it shows.
    metric: which is drawn, with its 95 % interval over the seeds.
    x_label: of the axis.
  """
  panels = {}
  for column, title in columns.items():
    own = {
      row: curve_of(found[row, column], metric)
      for row in rows
      if (row, column) in found
    }
    if own:
      panels[title] = own

  def draw(path):
    plots.study_curves(
      panels,
      path,
      metric=metric,
      x_label=x_label,
      interval="mean and 95 % interval over seeds",
      styles=plots.method_styles(rows),
    )

  return Picture(name, draw, alt)


def values_by_column(
  found: Found,
  rows: Sequence[str],
  columns: Mapping[str, float],
  name: str,
  alt: str,
  *,
  value: Value,
  metric: str,
  x_name: str,
) -> Picture:
  """A value against a condition, one line with intervals for each row.

  Args:
    found: what there is; its keys are `(row, column)`. A row is drawn if it has
      all the columns that any row has.
    rows: first parts of the keys.
    columns: second parts of the keys -> values of the condition.
    name: of the picture's file.
    alt: what it shows.
    value: what is drawn.
    metric: whose values these are.
    x_name: identifier of the condition, such as 'class_fraction'.
  """
  shown = [c for c in columns if any((row, c) in found for row in rows)]

  def draw(path):
    lines = {}
    for row in rows:
      if shown and all((row, column) in found for column in shown):
        of_columns = [value(found[row, column]) for column in shown]
        ends = [statistics.mean_interval(each) for each in of_columns]
        lines[row] = tuple(np.array(ends, float).reshape(-1, 3).T)
    plots.study_values(
      lines,
      path,
      metric=metric,
      x_name=x_name,
      x_values=[columns[column] for column in shown],
      interval="mean and 95 % interval over seeds",
      styles=plots.method_styles(rows),
    )

  return Picture(name, draw, alt)


def curve_of(record: Record, metric: str) -> plots.Curve:
  """A metric over the rounds, with its 95 % interval over the seeds."""
  rounds = np.asarray(record.history.rounds, float)
  of_seeds = record.history.values(metric)
  return curve(rounds, of_seeds)


def lead(
  found: Found,
  name: str,
  one: Key,
  other: Key,
  value: Value | None = None,
  *,
  unit: str = "points",
  scale: float = 100.0,
) -> Quantity:
  """By how much one cell is above another, seed by seed.

  Args:
    found: what there is.
    name: of the quantity.
    one: key of the cell that should be above.
    other: key of the other.
    value: what is compared; the last test accuracy by default.
    unit: of the difference.
    scale: of the difference; -1 where smaller values are better.
  """
  value = value or final()
  a, b = values(found, one, value), values(found, other, value)
  # What the keys share says nothing of who is who.
  differ = [(x, y) for x, y in zip(one, other, strict=False) if x != y]
  sides = tuple(", ".join(side) for side in zip(*differ, strict=True))
  return above(name, a, b, unit, scale, sides or (one[0], other[0]))
