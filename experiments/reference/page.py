"""The static page of a reference comparison, which sorts and filters itself."""

import functools
import pathlib
from typing import Any

import numpy as np

from experiments.reference import regrets
from experiments.reference.standing import Leaderboard
from fedjax_opt import plots
from fedjax_opt.files import json_files
from fedjax_opt.results.names import name_of
from fedjax_opt.study import statistics, words
from fedjax_opt.study.study import Study
from fedjax_opt.study.verdicts import Verdict

_TEMPLATE = pathlib.Path(__file__).with_name("page.html")
_COLUMNS = (
  "Condition", "Method", "Value", "95 % interval", "Place", "Verdict",
  "Rounds to target", "Megabytes", "Gradients", "Setting", "Settings tried",
  "At an edge", "Command and record",
)  # fmt: skip
# The columns of costs to a target, and the unit in which they are shown;
# reference conditions have no clock.
_COSTS = {"rounds": 1, "bytes": 1e6, "gradient_evaluations": 1}
_PROFILED = 8  # The number of methods that have a curve.


def write(standing: Leaderboard, folder: pathlib.Path) -> pathlib.Path:
  """Writes `reference.html` and, with several conditions, `profiles.png`.

  Args:
    standing: the cells to show.
    folder: the folder of the records, to which the page links.

  Returns:
    The path of the page.
  """
  import jinja2  # Every report needs them.

  scores = standing.scores()
  overall = standing.overall()
  if scores:
    _draw_profiles(standing, folder / "profiles.png")
  environment = jinja2.Environment(
    autoescape=True, undefined=jinja2.StrictUndefined
  )
  template = environment.from_string(_TEMPLATE.read_text("utf-8"))
  text = template.render(
    title=standing.reference.title,
    overall=overall,
    carried=regrets.table(standing),
    profiled=min(_PROFILED, len(scores)),
    columns=_COLUMNS,
    metrics={
      standing.condition(name).title: name_of(study.metric).capitalize()
      + " (%)" * bool(study.numbers.unit)
      for name, study in standing.studies.items()
    },
    rows=_rows(standing),
  )
  path = folder / "reference.html"
  json_files.write_text(path, text)
  return path


def _rows(standing: Leaderboard) -> list[list[Any]]:
  """The rows of the table; an entry is text, or [text, value to sort by]."""
  files = {
    (cell.condition.name, cell.planned.method): cell.file.as_posix()
    for cell in standing.planned
  }
  return [
    _row(standing, name, study, verdict, files[name, verdict.cell.method])
    for name, study in standing.studies.items()
    for verdict in study.verdicts
  ]


def _row(
  standing: Leaderboard, name: str, study: Study, verdict: Verdict, file: str
) -> list[Any]:
  cell, sign = verdict.cell, -1 if study.is_larger_better else 1
  text, interval = study.numbers.texts(verdict.value)
  rank = standing.rank(study, verdict)
  number = lambda value, label: [label, None if np.isnan(value) else value]
  costs = [
    verdict.to_target.get(cost, np.nan) / unit for cost, unit in _COSTS.items()
  ]
  edges = cell.tuning.edges if cell.tuning else ()
  tuned = {n: v for n, v in cell.chosen.items() if n in cell.tuned}
  return [
    standing.condition(name).title,
    study.labels[cell.method],
    number(sign * verdict.value.estimate, text),
    interval,
    [str(rank or words.NOTHING), rank],
    verdict.kind,
    *(number(cost, _shown(cost)) for cost in costs),
    words.setting_label(tuned) if tuned else "",
    [str(cell.budget), cell.budget],
    ", ".join(f"{name_of(edge.name)} {edge.side}" for edge in edges),
    {"command": "\n".join(cell.files.commands), "record": file},
  ]


def _shown(cost: float) -> str:
  """A cost with three digits, or all of them before the point."""
  if np.isnan(cost):
    return words.NOTHING
  return f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}"


def _draw_profiles(standing: Leaderboard, path: pathlib.Path) -> None:
  """Draws, for the best methods, the share of runs that reach each score."""
  scores = standing.scores()
  middle = functools.partial(statistics.interquartile_mean, num_resamples=1)
  best = sorted(scores, key=lambda m: -middle(scores[m]).estimate)[:_PROFILED]
  least = min(float(np.quantile(scores[m], 0.02)) for m in best)
  levels = np.linspace(least, max(float(scores[m].max()) for m in best), 200)
  shares = {m: statistics.performance_profile(scores[m], levels) for m in best}
  plots.performance_profiles(
    {method: plots.Curve(levels, *band) for method, band in shares.items()},
    path,
    metric="score",
    interval="share of runs and 95 % interval",
  )
