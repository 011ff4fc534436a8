"""The standing of methods in a reference: places, verdicts, aggregates.

Axis letters: `n` seeds of the report, `T` conditions.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
from scipy import stats

from experiments.reference import cells
from experiments.reference.definition import Condition, Reference, ReferenceCell
from experiments.stored.same_data import check_same_data
from fedjax_opt.results.metric_names import is_accuracy
from fedjax_opt.study import statistics, words
from fedjax_opt.study.bootstrap import Interval
from fedjax_opt.study.numbers import NumberFormat
from fedjax_opt.study.report import formats
from fedjax_opt.study.report.study_tables import Entry, ReportTable, Row
from fedjax_opt.study.study import Study
from fedjax_opt.study.verdicts import TIED, Verdict

_RESAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Leaderboard:
  """Where the methods of a reference stand, by its cells that have run.

  Attributes:
    reference: the reference comparison.
    planned: all its cells, those that have run and those that have not.
    studies: name of a condition -> its cells as a study, with its verdicts.
    joined: methods that joined the reference; [] for the reference alone.
  """

  reference: Reference
  planned: list[ReferenceCell]
  studies: dict[str, Study]
  joined: list[str]

  def rank(self, study: Study, verdict: Verdict) -> int | None:
    """The place by the mean, 1 for the best; None if a seed diverged."""
    sign = 1 if study.is_larger_better else -1
    means = [sign * v.value.estimate for v in study.verdicts]
    score = sign * verdict.value.estimate
    return None if np.isnan(score) else 1 + sum(mean > score for mean in means)

  def scores(self) -> dict[str, np.ndarray]:
    """method -> accuracy over the best mean accuracy, [n, T], 0 if it diverged.

    It has the methods that ran under every condition that has run and is
    compared by an accuracy.
    """
    by_method: dict[str, list[np.ndarray]] = {}
    studies = [s for s in self.studies.values() if is_accuracy(s.metric)]
    for study in studies:
      best = np.nanmax([v.value.estimate for v in study.verdicts] or [np.nan])
      for cell in study.cells:
        values = cell.final(study.metric)
        if cell.report_runs is None:
          values = np.full(self.reference.report_seeds, np.nan)
        by_method.setdefault(cell.method, []).append(
          np.nan_to_num(values / best)
        )
    columns = {m: v for m, v in by_method.items() if len(v) == len(studies)}
    return {method: np.stack(values, 1) for method, values in columns.items()}

  def mean_ranks(self) -> dict[str, Interval]:
    """method -> mean place over the conditions of `scores`, with its interval.

    The seeds of each condition are resampled, the same for all methods.
    """
    scores = self.scores()
    if not scores:
      return {}
    array = np.stack([*scores.values()])  # [methods, n, T]
    _, seeds, tasks = array.shape
    indices = statistics.resamples(_RESAMPLES, seeds, num_tasks=tasks)
    estimate = _ranks(array.mean(1)).mean(-1)
    means = np.stack([array[:, d, np.arange(tasks)].mean(1) for d in indices])
    low, high = np.quantile(_ranks(means).mean(-1), [0.025, 0.975], axis=0)
    rows = zip(estimate, low, high, strict=True)
    return {
      m: Interval(*map(float, r)) for m, r in zip(scores, rows, strict=True)
    }

  def overall(self) -> ReportTable | None:
    """Methods by the interquartile mean of their scores; None without any."""
    ranks, scores = self.mean_ranks(), self.scores()
    middle = {m: statistics.interquartile_mean(v) for m, v in scores.items()}
    rows = [
      {
        "Method": method,
        "Score": Entry(*NumberFormat("score", 3).texts(middle[method])),
        "Mean place": Entry(*NumberFormat("place", 1).texts(ranks[method])),
        "Diverged": str(int((scores[method] == 0).sum())),
      }
      for method in sorted(scores, key=lambda m: -middle[m].estimate)
    ]
    return ReportTable(rows, 1) if rows else None

  def joined_table(self) -> ReportTable | None:
    """A row for each condition and method that joined; None without any."""
    rows = []
    for name, study in self.studies.items():
      for verdict in study.verdicts:
        if verdict.cell.method in self.joined:
          rows.append(self._row(name, study, verdict))
    return ReportTable(rows, 2) if rows else None

  def _row(self, name: str, study: Study, verdict: Verdict) -> Row:
    rank, total = self.rank(study, verdict), len(study.verdicts)
    word = verdict.kind
    return {
      "Condition": self.condition(name).title,
      "Method": study.labels[verdict.cell.method],
      "Value": Entry(*study.numbers.texts(verdict.value)),
      "Place": f"{rank or words.NOTHING} of {total}",
      "Verdict": "not told apart from the best" if word == TIED else word,
    }

  def condition(self, name: str) -> Condition:
    """The condition of a name."""
    return next(c for c in self.reference.conditions if c.name == name)

  def __str__(self) -> str:
    tables = [self.joined_table(), self.overall()]
    lines = [formats.lines(table) for table in tables if table is not None]
    num_ran = sum(len(study.cells) for study in self.studies.values())
    note = f"{num_ran} of {len(self.planned)} cells have run"
    return "\n".join(line for part in [*lines, [note]] for line in [*part, ""])


def leaderboard(
  reference: Reference,
  planned: Sequence[ReferenceCell],
  folders: Sequence[pathlib.Path],
  joined: Sequence[str],
) -> Leaderboard:
  """The standing of all cells that have records in these folders.

  Raises:
    ValueError: if a file is damaged, or the cells of a condition ran on
      different data.
  """
  studies = {}
  for condition in reference.conditions:
    own_planned = [c for c in planned if c.condition.name == condition.name]
    found = [cells.read(cell, folders) for cell in own_planned]
    if ran := tuple(cell for cell in found if cell is not None):
      runs = [(cell.method, part) for cell in ran for part in cell.parts]
      check_same_data(
        f"reference: {condition.name}",
        [(part.seeds, method, part.digests) for method, part in runs],
        "remove the records of one of them",
      )
      studies[condition.name] = Study(
        ran, condition.metric, condition.title, condition.target
      )
  return Leaderboard(reference, [*planned], studies, [*joined])


def _ranks(means: np.ndarray) -> np.ndarray:
  """Ranks along the methods' axis, [..., methods, T]; ties share the mean."""
  return stats.rankdata(-means, axis=-2)
