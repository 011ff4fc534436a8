"""The table that closes a run in the terminal."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_opt.results import selection
from fedjax_opt.results.history import History
from fedjax_opt.results.metric_names import is_accuracy, reported_names
from fedjax_opt.results.names import format_value
from fedjax_opt.results.outcome import outcome_of
from fedjax_opt.results.selection import Criterion, Point, Setting
from fedjax_opt.results.text_tables import aligned

# With more settings than `_MAX_ROWS`, the table shows the best `_NUM_BEST`.
_MAX_ROWS = 20
_NUM_BEST = 10


def closing_table(
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
    criterion: by which the row that is marked was chosen.
    extra: title -> [S] numbers, the same for all seeds, of further columns.

  Returns:
    Lines without a newline at the end.
  """
  if not history.rounds:
    return "no round was evaluated"
  settings = selection.group_by_seed(points)
  rows = settings
  if len(settings) > _MAX_ROWS:
    rows = selection.rank(history, points, criterion)[:_NUM_BEST]
  outcome = outcome_of(history, points, criterion)
  columns = _columns(history, settings, rows, criterion.metric)
  for title, values in (extra or {}).items():
    columns[title] = [format_value(values[row.points[0]]) for row in rows]
  columns["status"] = [_status(history, row.points) for row in rows]
  if len(settings) > 1:
    marks = ["*" if row == outcome.best else "" for row in rows]
    columns = {"": marks} | columns
  lines = [
    f"after round {history.rounds[-1]}:",
    *aligned([[n, *cells] for n, cells in columns.items()], [len(columns) - 1]),
  ]
  if not history.rounds[-1]:
    lines.append("this is the initial model: no round was trained")
  if outcome.best is None:
    lines.append("none selected: every point diverged")
  elif len(settings) > 1:
    lines.append(f"* selected: {criterion}")
    lines += [e.sentence(e.name, format_value(e.value)) for e in outcome.edges]
  lines += _no_gain(history, outcome.best, criterion)
  if len(rows) < len(settings):
    lines.append(
      f"best {len(rows)} of {len(settings)} settings; metrics.csv and "
      f"summary.json have the other {len(settings) - len(rows)}"
    )
  if any(len(setting.points) > 1 for setting in rows):
    lines.append("± is the sample standard deviation over seeds")
  return "\n".join(lines)


def _no_gain(
  history: History, best: Setting | None, criterion: Criterion
) -> list[str]:
  """A line if the best setting is no better than the initial model."""
  if best is None or history.rounds[0] or not history.rounds[-1]:
    return []
  values = history.values(criterion.metric)[best.points].mean(axis=0)
  sign = 1 if criterion.direction == "max" else -1
  if not sign * (values[-1] - values[0]) <= 0:
    return []
  start = _spread(values[:1], criterion.metric)
  return [
    f"no better than the initial model, whose {criterion.metric} is {start}"
  ]


def _columns(
  history: History,
  settings: Sequence[Setting],
  rows: Sequence[Setting],
  metric: str,
) -> dict[str, list[str]]:
  """Title -> a cell for each row: hyperparameters, then metrics."""
  columns = {
    name: [format_value(row.hyperparameters.get(name)) for row in rows]
    for name in selection.varying([s.hyperparameters for s in settings])
  }

  def add(name: str, title: str) -> None:
    final = history.values(name)[:, -1]
    columns[title] = [_spread(final[row.points], name) for row in rows]

  # The reported metrics, then the metric of the criterion.
  for name in reported_names(metric):
    if name in history.metrics and name != metric:
      add(name, name)
      break
  add(metric, metric)
  best = [_best(history, row.points, metric) for row in rows]
  columns["its best (round)"] = best
  for name in history.metrics:  # Metrics that were asked for, such as scores.
    if name.startswith("test_") and name not in (*columns, "test_loss"):
      add(name, name)
  if "train_worst_decile_accuracy" in history.metrics:
    add("train_worst_decile_accuracy", "worst decile (train)")
  return columns


def _best(history: History, points: Sequence[int], metric: str) -> str:
  """The best value of a metric, with its round if only one seed has a value."""
  pairs = [best for point in points if (best := history.best(point, metric))]
  text = _spread(np.array([value for value, _ in pairs]), metric)
  return f"{text} ({pairs[0][1]})" if len(pairs) == 1 else text


def _spread(values: np.ndarray, metric: str) -> str:
  """Mean and deviation over the finite values, such as `98.10 ± 0.12 %`."""
  values = values[np.isfinite(values)]
  if not values.size:
    return "-"
  scale, digits, unit = (
    (100, ".2f", " %") if is_accuracy(metric) else (1, ".4g", "")
  )
  text = f"{scale * values.mean():{digits}}"
  if values.size > 1:
    spread = scale * values.std(ddof=1)
    text += f" ± {spread:{digits if unit else '.2g'}}"
  return text + unit


def _status(history: History, points: Sequence[int]) -> str:
  """The status of the points of one setting, such as `diverged at 20`."""
  rounds = [r for r in map(history.diverged_round, points) if r is not None]
  if not rounds:
    return "ok" if len(points) == 1 else f"ok ({len(points)} seeds)"
  if len(points) == 1:
    return f"diverged at {rounds[0]}"
  return f"{len(rounds)} of {len(points)} diverged from {min(rounds)}"
