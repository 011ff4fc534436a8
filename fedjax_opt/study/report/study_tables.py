"""What the tables of a study say, before they become text.

`main_table` has a row for each method and a column for each condition. If there
are many conditions, it has a row for each cell. All tables take their numbers
from the verdicts of the study; formats.py writes them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.metric_names import TIME
from fedjax_opt.results.names import capitalized, metric_name, name_of
from fedjax_opt.study import statistics, verdicts, words
from fedjax_opt.study.bootstrap import Interval
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.numbers import NumberFormat
from fedjax_opt.study.report import templates
from fedjax_opt.study.study_cells import StudyCells
from fedjax_opt.study.tuning import num_near_ties
from fedjax_opt.study.variance import spread_of
from fedjax_opt.study.verdicts import (
  COLLAPSED,
  DIVERGED,
  TIED,
  Verdict,
)
from fedjax_opt.study.words import all_digits, condition_label

# Up to this many conditions, or tuned hyperparameters, have a column each.
_MAX_CONDITIONS, _MAX_HYPERPARAMETERS = 6, 4
_MARKS = {TIED: "†", COLLAPSED: "§"}
_EDGE = "‡"
_TRIED, _LOST = "Settings tried", "Failed"
_PERCENT = NumberFormat("accuracy", 0)  # Probabilities are in percent as well.
_COST_NAMES = {
  "rounds": "Rounds",
  TIME: "Simulated time",
  "bytes": "Exchanged",
  "gradient_evaluations": "Gradient evaluations",
}


class Entry(NamedTuple):
  """What one place of a table says.

  Attributes:
    text: such as a mean, or a name.
    detail: text that follows in smaller type, such as the mean's interval.
    verdict: its kind, see `Verdict`; '' if the text is no value of the metric.
  """

  text: str
  detail: str = ""
  verdict: str = ""

  @property
  def mark(self) -> str:
    """The mark of its verdict, which a note explains."""
    return _MARKS.get(self.verdict, "")


Row = Mapping[str, Entry | str]  # Name of a column -> its entry in this row.


class ReportTable:
  """A table for people.

  Attributes:
    caption: what the table shows; "" if the page's template says it.
    header: name of each column.
    rows: each as long as the header.
    num_names: number of first columns that name the row, by default up to the
      method.
    left: whether each column is flush left: names and words; not numbers.
    notes: what its marks mean.
  """

  def __init__(
    self,
    rows: Sequence[Row],
    num_names: int | None = None,
    notes: Sequence[str] = (),
    caption: str = "",
  ):
    """A table of rows, all of which have the same columns."""
    self.caption, self.notes, self.header = caption, notes, list(rows[0])
    self.num_names = num_names or self.header.index("Method") + 1
    self.rows = [
      [
        entry if isinstance(entry, Entry) else Entry(entry)
        for entry in row.values()
      ]
      for row in rows
    ]
    columns = zip(*self.rows, strict=True)
    texts = ["".join(entry.text for entry in column) for column in columns]
    has_digit = [re.search(r"\d", text) is not None for text in texts]
    names = range(self.num_names)
    self.left = [
      i in names or not has or self.header[i] == "Verdict"
      for i, has in enumerate(has_digit)
    ]


def axes_of(study: StudyCells) -> list[str]:
  """The names of what differs between conditions."""
  return list(dict.fromkeys(n for c in study.conditions for n in c))


def _row(study: StudyCells, cell: Cell, other_columns: Row) -> Row:
  """The columns of condition, method, and the others; no head twice."""
  row = {"Method": study.labels[cell.method]} | other_columns
  names = axes_of(study)
  heads = words.unique(capitalized(name_of(name)) for name in names)
  values = (all_digits(cell.condition.get(name)) for name in names)
  conditions = dict(zip(heads, values, strict=True))
  return beside(conditions, row, "{} (condition)")


def beside(
  conditions: Mapping[str, Any], row: Mapping[str, Any], renamed: str
) -> dict[str, Any]:
  """The columns of a condition, then those of a row; no name twice.

  Args:
    conditions: name -> value, of the condition.
    row: the other columns.
    renamed: a condition's name, {}, if another column has it.
  """
  return {
    renamed.format(name) if name in row else name: value
    for name, value in conditions.items()
  } | dict(row)


# The values.


def main_table(study: StudyCells, is_wide: bool | None = None) -> ReportTable:
  """The metric of every cell, and what tuning tried where that differs.

  Args:
    study: the study.
    is_wide: whether each condition has a column; if not, each cell has a row.
      By default each has a column if conditions are few.
  """
  name, conditions = metric_name(study.metric), study.conditions
  if is_wide is None:
    is_wide = len(conditions) <= _MAX_CONDITIONS
  rows: list[Row] = []
  if is_wide:
    heads = [condition_label(condition) or name for condition in conditions]
    for method, label in study.labels.items():
      own_verdicts = [v for v in study.verdicts if v.cell.method == method]
      values: dict[str, Entry | str] = dict.fromkeys(heads, words.NOTHING)
      for v in own_verdicts:
        head = condition_label(v.cell.condition) or name
        values[head] = _value(study, v)
      rows.append({"Method": label} | values | _tried(*own_verdicts))
  else:
    for v in study.verdicts:
      value = {name: _value(study, v)}
      rows.append(_row(study, v.cell, value | _tried(v)))
  tried, lost = ({row[name] for row in rows} for name in (_TRIED, _LOST))
  has_lost = any(count[:1] not in ("0", words.NOTHING) for count in lost)
  left_out = [_TRIED] * (len(tried) == 1) + [_LOST] * (not has_lost)
  rows = [{n: v for n, v in row.items() if n not in left_out} for row in rows]
  caption, *notes = templates.items(
    "main_table.txt",
    study=study,
    name=name,
    tried=tried,
    lost=_LOST if has_lost else "",
    is_wide=is_wide,
    marks=_MARKS,
  )
  return ReportTable(rows, notes=notes, caption=caption)


def _tried(*own_verdicts: Verdict) -> Row:
  """How many settings were tried in all, and how many of them failed."""
  tunings = [v.cell.tuning for v in own_verdicts if v.cell.tuning]
  num_lost = sum(tuning.num_diverged for tuning in tunings)
  num_lost += sum(v.cell.num_collapsed for v in own_verdicts)
  tried = sum(tuning.budget for tuning in tunings)
  return {
    _TRIED: words.span(v.cell.budget for v in own_verdicts),
    _LOST: f"{num_lost} of {tried}" if tried else words.NOTHING,
  }


def _value(study: StudyCells, verdict: Verdict) -> Entry:
  if verdict.kind == DIVERGED:
    seeds = words.counted(verdict.num_seeds, "seed")
    lost = f"{verdict.num_diverged} of {seeds}"
    is_all = verdict.cell.report_runs is None
    return Entry("diverged", "every setting" if is_all else lost, DIVERGED)
  # A single method is not called best.
  is_alone = len(study.under(verdict.cell.condition)) == 1
  texts = study.numbers.texts(verdict.value)
  return Entry(*texts, "" if is_alone else verdict.kind)


def differences(study: StudyCells) -> ReportTable | None:
  """How far the others are behind the best; None if there are no others."""
  numbers = study.numbers
  behind = "Behind the best" + " (points)" * bool(numbers.unit)
  rows = [
    _row(
      study,
      v.cell,
      {
        "Verdict": ": ".join(filter(None, [v.kind, v.remark])),
        behind: Entry(*numbers.texts(v.behind, True)),
        "p (Holm)": words.p_value(v.pair.adjusted),
        "Detectable": numbers.difference(v.pair.detectable),
        "Best wins (%)": Entry(*_PERCENT.texts(v.probability)),
      },
    )
    for v in study.verdicts
    if v.pair
  ]
  return ReportTable(rows) if rows else None


def over_all(study: StudyCells) -> ReportTable | None:
  """How good methods are over all conditions; None if there is only one.

  Each is compared with the one that has the best interquartile mean.
  """
  matrices = study.matrices
  means = {m: statistics.interquartile_mean(v) for m, v in matrices.items()}
  candidates = [m for m in means if np.isfinite(means[m].estimate)]
  if len(candidates) < 2:
    return None
  best = (max if study.is_larger_better else min)(candidates, key=means.get)
  numbers = study.numbers
  name = f"Better than {study.labels[best]} (%)"
  middle = f"Interquartile mean{' (%)' * bool(numbers.unit)}"
  rows = []
  for method, scores in matrices.items():
    wins = verdicts.probability(study.metric, scores, matrices[best])
    row = {"Method": study.labels[method]}
    row[middle] = Entry(*numbers.texts(means[method]))
    row[name] = (
      words.NOTHING if method == best else Entry(*_PERCENT.texts(wins))
    )
    rows.append(row)
  return ReportTable(rows)


# How settings were chosen, and what all of it cost.


def settings(study: StudyCells) -> ReportTable:
  """The chosen setting of every cell, and its score."""
  names = list(
    dict.fromkeys(n for c in study.cells for n in c.tuned or c.chosen)
  )
  is_wide = 0 < len(names) <= _MAX_HYPERPARAMETERS
  rows = []
  for cell in (verdict.cell for verdict in study.verdicts):
    chosen = {name: _chosen(cell, name) for name in cell.chosen}
    texts = {
      capitalized(name_of(n)): chosen.get(n, words.NOTHING) for n in names
    }
    if not is_wide:
      chosen_names = [name for name in cell.tuned or chosen if name in chosen]
      parts = [f"{name_of(name)} {chosen[name]}" for name in chosen_names]
      texts = {"Chosen setting": ", ".join(parts) or words.NOTHING}
    rows.append(_row(study, cell, texts | _tuning(cell)))
  has_edges = any(_EDGE in str(text) for row in rows for text in row.values())
  notes = [f"{_EDGE} at the edge of the values that were tried."] * has_edges
  num_names = None if is_wide else list(rows[0]).index("Chosen setting") + 1
  return ReportTable(rows, num_names, notes)


def _chosen(cell: Cell, name: str) -> str:
  """The chosen value of a hyperparameter; if several, with how often each."""
  times: dict[str, int] = {}
  for setting in cell.choices:
    chosen = setting.hyperparameters[name]
    is_edge = cell.tuning is not None and cell.tuning.side(name, chosen)
    value = all_digits(chosen) + _EDGE * bool(is_edge)
    times[value] = times.get(value, 0) + len(setting.points)
  if len(times) == 1:
    return next(iter(times))
  return ", ".join(f"{value} ({number} ×)" for value, number in times.items())


def _tuning(cell: Cell) -> Row:
  """The columns on how the setting of a cell was chosen."""
  tuning, row = cell.tuning, {"Settings": "1"}
  row |= dict.fromkeys((_LOST, "Score"), words.NOTHING)
  if tuning:
    numbers = NumberFormat(cell.criterion.metric)
    score = numbers.with_interval(Interval(tuning.score))
    seeds = words.counted(tuning.num_seeds, "seed")
    row["Settings"] = f"{cell.budget} × {seeds}"
    lost = f"{tuning.num_diverged} + {cell.num_collapsed}"
    row |= {_LOST: lost, "Score": score}
  return row | {"Near ties": all_digits(num_near_ties(cell))}


def spread(study: StudyCells) -> ReportTable | None:
  """The parts of the spread of results; None if they are not known."""
  numbers, rows = NumberFormat(study.metric), []
  for cell in (verdict.cell for verdict in study.verdicts):
    parts = spread_of(cell, study.metric)
    if parts is not None:
      columns = {name: numbers.difference(x) for name, x in parts.items()}
      rows.append(_row(study, cell, columns))
  return ReportTable(rows) if rows else None


def costs(study: StudyCells) -> tuple[ReportTable | None, ReportTable | None]:
  """The cost of runs up to the target, and to the end; None if not known."""
  spent = [{c: v.cell.spent(c) for c in _COST_NAMES} for v in study.verdicts]
  names = [c for c in _COST_NAMES if any(row[c] is not None for row in spent)]
  to_target, in_all = [], []
  for v, of_rounds in zip(study.verdicts, spent, strict=True):
    ends = {c: curve[-1] for c, curve in of_rounds.items() if curve is not None}
    until, whole = (
      {_COST_NAMES[c]: words.cost(c, values.get(c)) for c in names}
      for values in (v.to_target, ends)
    )
    if TIME in names and v.to_target:
      until[_COST_NAMES[TIME]] = _time_to_target(study, v)
    if any(cell.seconds for cell in study.cells):
      whole["Time"] = words.seconds(v.cell.seconds)
    to_target.append(_row(study, v.cell, until))
    in_all.append(_row(study, v.cell, whole))
  in_all = _by_method(study, in_all)
  is_known = [*in_all[0]][-1] != "Method"
  return (
    ReportTable(to_target) if names and study.target is not None else None,
    ReportTable(in_all) if is_known else None,
  )


def _by_method(study: StudyCells, rows: Sequence[Row]) -> Sequence[Row]:
  """A row for each method, if its rows differ only in condition and time.

  The time is then the sum over the conditions.
  """
  heads = [*rows[0]]
  axes = heads[: heads.index("Method")]
  alike = {}
  for row in rows:
    costs = {n: text for n, text in row.items() if n not in (*axes, "Time")}
    alike[tuple(costs.values())] = costs
  if not axes or len(alike) > len(study.methods):
    return rows
  if "Time" in rows[0]:
    for row in alike.values():
      own_cells = [
        c for c in study.cells if study.labels[c.method] == row["Method"]
      ]
      row["Time"] = words.seconds(sum(cell.seconds for cell in own_cells))
  return list(alike.values())


def _time_to_target(study: StudyCells, verdict: Verdict) -> Entry:
  """The mean over seeds, and its interval."""
  mean = words.cost(TIME, verdict.to_target.get(TIME))
  if mean == words.NOTHING:
    return Entry(mean)
  per_seed = statistics.to_target(
    verdict.cell.report_runs.history, study.metric, study.target, TIME
  )
  _, low, high = statistics.mean_interval(per_seed)
  if np.isnan(low):
    return Entry(mean)
  ends = words.cost(TIME, max(low, 0.0)), words.cost(TIME, high)
  return Entry(mean, " to ".join(ends))


def shared(study: StudyCells) -> ReportTable | None:
  """All that is the same in all cells, with the versions and the device."""
  # A flag may have the name of a size.
  values = {capitalized(name_of(str(n))): v for n, v in study.about.items()}
  rows = [
    {"Setting": name, "Value": words.option_text(value)}
    for name, value in values.items()
  ]
  if seconds := sum(cell.seconds for cell in study.cells):
    time = words.seconds(seconds)
    rows.append({"Setting": "Wall time of all runs", "Value": time})
  return ReportTable(rows, 2) if rows else None
