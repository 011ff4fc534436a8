"""The table that closes a run in the terminal."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_opt.results.history import History, is_fraction
from fedjax_opt.results.selection import (
  Criterion,
  Point,
  Setting,
  format_value,
  group_by_seed,
  rank,
  select,
  varying,
)

# Of more settings than `_MAX_ROWS`, the table shows the best `_NUM_BEST`.
_MAX_ROWS = 20
_NUM_BEST = 10


def table(
  history: History,
  points: Sequence[Point],
  criterion: Criterion,
  extra: Mapping[str, Sequence[float]] | None = None,
) -> str:
  """One row for each setting of the hyperparameters, as text.

  A setting that ran with several seeds has their mean and sample standard
  deviation. Up to 20 settings stay in the order of the grid; of more, the best
  10 are shown.

  Args:
    history: the metrics of every point.
    points: hyperparameters of every grid point. [S] mappings.
    criterion: by which `select` chooses the row that is marked.
    extra: title -> [S] numbers, the same for all seeds, of further columns.

  Returns:
    Lines without a newline at the end.
  """
  if not history.rounds:
    return "no round was evaluated"
  settings = group_by_seed(points)
  shown = settings
  if len(settings) > _MAX_ROWS:
    shown = rank(history, points, criterion)[:_NUM_BEST]
  selected = select(history, points, criterion)
  lines = [
    f"after round {history.rounds[-1]}:",
    *_align(
      _columns(history, settings, shown, criterion, selected, extra or {})
    ),
    *_notes(settings, shown, criterion, selected),
  ]
  return "\n".join(lines)


def _columns(
  history: History,
  settings: Sequence[Setting],
  shown: Sequence[Setting],
  criterion: Criterion,
  selected: int | None,
  extra: Mapping[str, Sequence[float]],
) -> list[list[str]]:
  """The columns of the table, each with its title and a cell for each row."""
  names = varying([s.hyperparameters for s in settings])
  columns = [_hyperparameter_column(shown, name) for name in names]
  # What is reported, then what the choice was made by.
  tested = criterion.metric.replace("validation_", "test_")
  for name in ("test_accuracy", tested):
    if name in history.metrics and name != criterion.metric:
      columns.append(_metric_column(history, shown, name, name))
      break
  name = criterion.metric
  columns.append(_metric_column(history, shown, name, name))
  columns.append(_best_column(history, shown, name))
  name = "train_worst_decile_accuracy"
  if name in history.metrics:
    title = "worst decile (train)"
    columns.append(_metric_column(history, shown, name, title))
  for title, values in extra.items():
    cells = (format_value(values[s.points[0]]) for s in shown)
    columns.append([title, *cells])
  columns.append(["status", *(_status(history, s.points) for s in shown)])
  if len(settings) > 1:
    marks = ["*" if selected in s.points else "" for s in shown]
    columns.insert(0, ["", *marks])
  return columns


def _notes(
  settings: Sequence[Setting],
  shown: Sequence[Setting],
  criterion: Criterion,
  selected: int | None,
) -> list[str]:
  """The lines below the table."""
  lines = []
  if selected is None:
    lines.append("none selected: every point diverged")
  elif len(settings) > 1:
    lines.append(f"* selected: {criterion}")
  if len(shown) < len(settings):
    lines.append(
      f"best {len(shown)} of {len(settings)} settings; metrics.csv and "
      f"summary.json have the other {len(settings) - len(shown)}"
    )
  if any(len(setting.points) > 1 for setting in shown):
    lines.append("± is the sample standard deviation over seeds")
  return lines


def _hyperparameter_column(settings: Sequence[Setting], name: str) -> list[str]:
  values = [s.hyperparameters.get(name) for s in settings]
  return [name, *map(format_value, values)]


def _metric_column(
  history: History, settings: Sequence[Setting], name: str, title: str
) -> list[str]:
  """The metric at the last evaluated round."""
  final = history.values(name)[:, -1]
  return [title, *(_spread(final[s.points], name) for s in settings)]


def _best_column(
  history: History, settings: Sequence[Setting], name: str
) -> list[str]:
  """The metric's best value, with its round if only one seed has a value."""
  column = ["best (round)"]
  for setting in settings:
    found = [history.best(point, name) for point in setting.points]
    found = [best for best in found if best is not None]
    text = _spread(np.array([value for value, _ in found]), name)
    column.append(f"{text} ({found[0][1]})" if len(found) == 1 else text)
  return column


def _spread(values: np.ndarray, metric: str) -> str:
  """Mean and deviation over the finite values, such as `98.10 ± 0.12 %`."""
  values = values[np.isfinite(values)]
  if not values.size:
    return "-"
  spread = values.std(ddof=1) if values.size > 1 else None
  if is_fraction(metric):
    if spread is None:
      return f"{100 * values[0]:.2f} %"
    return f"{100 * values.mean():.2f} ± {100 * spread:.2f} %"
  if spread is None:
    return f"{values[0]:.4g}"
  return f"{values.mean():.4g} ± {spread:.2g}"


def _status(history: History, points: Sequence[int]) -> str:
  """What became of the points of one setting, such as `diverged at 20`."""
  rounds = [r for r in map(history.diverged_round, points) if r is not None]
  if not rounds:
    return "ok" if len(points) == 1 else f"ok ({len(points)} seeds)"
  if len(points) == 1:
    return f"diverged at {rounds[0]}"
  return f"{len(rounds)} of {len(points)} diverged from {min(rounds)}"


def _align(columns: Sequence[Sequence[str]]) -> list[str]:
  """Rows of the table; numbers are flush right, the last column flush left."""
  padded = []
  for column in columns:
    width = max(map(len, column))
    last = column is columns[-1]
    padded.append([c.ljust(width) if last else c.rjust(width) for c in column])
  return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
