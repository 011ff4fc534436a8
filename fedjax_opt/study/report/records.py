"""The tables of a study for programs, with all digits; see formats.csv."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedjax_opt.results.history import COSTS, TIME
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.report.study_tables import axes_of
from fedjax_opt.study.verdicts import JudgedStudy, Verdict, num_near_ties
from fedjax_opt.study.words import exact

# Columns of intervals.
_MEAN = ("mean", "low", "high")
_DIFFERENCE = ("difference", "low", "high")
_BEHIND = ("behind", "behind_low", "behind_high")
_WINS = ("probability_best_is_better", "probability_low", "probability_high")


def cell_records(study: JudgedStudy) -> list[dict[str, Any]]:
  """column -> value, of each cell: numbers with all their digits.

  Columns are the conditions; `method`; `chosen_<name>` of every hyperparameter;
  then what every study has. What there is no value of is None or NaN.
  """
  rows = []
  for verdict in study.verdicts:
    cell = verdict.cell
    row = _chosen(study, cell.chosen) | _tuning_of(cell)
    row |= {"metric": study.metric} | _said_of(study, verdict)
    row["min_effect"] = study.smallest_effect
    for part in ("validation", "test"):
      size, share = cell.sets.get(part, (None, None))
      row |= {f"{part}_examples": size, f"{part}_largest_class": share}
    rows.append(_row(study, cell, row))
  return rows


def _row(
  study: JudgedStudy, cell: Cell, others: Mapping[str, Any]
) -> dict[str, Any]:
  """The condition, the method and the others; no column has two values."""
  row = {"method": cell.method, **others}
  return {
    f"condition_{name}" if name in row else name: cell.condition.get(name)
    for name in axes_of(study)
  } | row


def _chosen(study: JudgedStudy, point: Mapping[str, Any]) -> dict[str, Any]:
  """The columns of the hyperparameters."""
  names = dict.fromkeys(n for cell in study.cells for n in cell.chosen)
  return {f"chosen_{name}": point.get(name) for name in names}


def seed_records(study: JudgedStudy) -> list[dict[str, Any]]:
  """column -> value, of each seed of the report of each cell."""
  rows = []
  for cell in (c for c in study.cells if c.measured is not None):
    history = cell.measured.history
    values = history.values(study.metric)
    for point, of_seed in zip(cell.measured.points, values, strict=True):
      row = {"seed": point["seed"], **_chosen(study, point)}
      row |= {"first_round": history.rounds[0], "first": of_seed[0]}
      rows.append(_row(study, cell, row | {"value": of_seed[-1]}))
  return rows


def pair_records(study: JudgedStudy) -> list[dict[str, Any]]:
  """column -> value, of every two methods under each condition."""
  rows = []
  for pair in study.pairs:
    row = {"other": pair.second.method}
    row |= dict(zip(_DIFFERENCE, pair.difference, strict=True))
    row |= {"sd": pair.sd, "seeds": pair.num_seeds, "p": pair.p}
    row |= {"p_holm": pair.adjusted, "detectable": pair.detectable}
    rows.append(_row(study, pair.first, row))
  return rows


def _tuning_of(cell: Cell) -> dict[str, Any]:
  """The columns on how a setting was chosen."""
  tuning = cell.tuning
  edges = tuning.edges if tuning else ()
  return {
    "tuning_settings": cell.budget,
    "tuning_seeds": tuning.num_seeds if tuning else 0,
    "diverged_settings": tuning.num_diverged if tuning else None,
    "collapsed_settings": cell.num_collapsed if tuning else None,
    "edges": "; ".join(f"{e.name}={exact(e.value)} ({e.side})" for e in edges),
    "criterion": str(cell.criterion) if tuning else None,
    "tuning_score": tuning.score if tuning else None,
    "near_ties": num_near_ties(cell),
    "nested": cell.is_nested,
  }


def _said_of(study: JudgedStudy, verdict: Verdict) -> dict[str, Any]:
  """The columns on what was measured; time only in a study with a clock."""
  has_time = any(cell.spent(TIME) is not None for cell in study.cells)
  costs = [cost for cost in COSTS if has_time or cost != TIME]
  return {
    **dict(zip(_MEAN, verdict.value, strict=True)),
    "seeds": verdict.num_seeds,
    "diverged_seeds": verdict.num_diverged,
    "verdict": verdict.verdict,
    "remark": verdict.remark,
    **dict(zip(_BEHIND, verdict.behind, strict=True)),
    "p_holm": verdict.pair.adjusted if verdict.pair else None,
    **dict(zip(_WINS, verdict.probability, strict=True)),
    **{f"{cost}_to_target": verdict.to_target.get(cost) for cost in costs},
    "seconds": verdict.cell.seconds,
  }
