"""The CSV of a study: a row for each cell, numbers with all their digits."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_opt.comparison.cells import Study, exact
from fedjax_opt.comparison.verdicts import Verdict
from fedjax_opt.results.history import COSTS

_PROBABILITY = (
  "probability_best_is_better", "probability_low", "probability_high",
)  # fmt: skip
_FIXED = (
  "method", "tuning_settings", "tuning_seeds", "diverged_settings", "edges",
  "criterion", "tuning_score", "metric", "mean", "low", "high", "seeds",
  "diverged_seeds", "verdict", "behind", "behind_low", "behind_high",
  *_PROBABILITY,
  *(f"{cost}_to_target" for cost in COSTS), "seconds",
)  # fmt: skip


def csv_text(study: Study, found: Sequence[Verdict]) -> str:
  """The table for programs.

  Columns are the conditions; `method`; `chosen_<name>` of every
  hyperparameter; then what is in `_FIXED`. What there is no value of is empty.
  """
  axes = list(dict.fromkeys(n for v in found for n in v.cell.condition))
  names = list(dict.fromkeys(n for v in found for n in v.cell.chosen))
  chosen = [f"chosen_{name}" for name in names]
  taken = {*_FIXED, *chosen}
  conditions = [n if n not in taken else f"condition_{n}" for n in axes]
  text = io.StringIO()
  rows = csv.writer(text, lineterminator="\n")
  rows.writerow([*conditions, _FIXED[0], *chosen, *_FIXED[1:]])
  for verdict in found:
    cell = verdict.cell
    fixed = _fixed(study, verdict)
    rows.writerow(
      [_plain(cell.condition.get(name)) for name in axes]
      + [cell.method]
      + [_plain(cell.chosen.get(name)) for name in names]
      + [_plain(fixed[name]) for name in _FIXED[1:]]
    )
  return text.getvalue()


def _fixed(study: Study, verdict: Verdict) -> dict[str, Any]:
  """The columns that every study has."""
  cell, tuning = verdict.cell, verdict.cell.tuning
  edges = tuning.edges if tuning else ()
  row = {
    "tuning_settings": cell.budget,
    "tuning_seeds": tuning.num_seeds if tuning else 0,
    "diverged_settings": tuning.num_diverged if tuning else None,
    "edges": "; ".join(
      f"{edge.name}={exact(edge.value)} ({edge.side})" for edge in edges
    ),
    "criterion": str(cell.criterion) if tuning else None,
    "tuning_score": tuning.score if tuning else None,
    "metric": study.metric,
    "seeds": verdict.num_seeds,
    "diverged_seeds": verdict.num_diverged,
    "verdict": verdict.verdict,
    "seconds": cell.seconds,
  }
  for interval, columns in (
    (verdict.value, ("mean", "low", "high")),
    (verdict.behind, ("behind", "behind_low", "behind_high")),
    (verdict.probability, _PROBABILITY),
  ):
    row |= dict(zip(columns, interval, strict=True))
  costs = {f"{c}_to_target": verdict.to_target.get(c) for c in COSTS}
  return row | costs


def _plain(value: Any) -> Any:
  """A value as Python writes it; '' for none."""
  if isinstance(value, np.generic):
    value = value.item()
  if value is None or (isinstance(value, float) and np.isnan(value)):
    return ""
  return value
