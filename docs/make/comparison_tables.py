"""Fills tables of comparison.md and which_method_study.md from records.

  PYTHONPATH=. python docs/make/comparison_tables.py

The site fills them again when it is built, and shows all cells on a page that
sorts and filters in the browser.
"""

import collections
import dataclasses
import functools
import math
import pathlib
import shutil
from typing import Any

import marks
import numpy as np

from experiments.reference import definition, page, standing
from experiments.reference.definition import Condition
from experiments.reference.standing import Leaderboard
from experiments.specification.choice_flags import TASK
from experiments.stored import records
from fedjax_opt import plots
from fedjax_opt.results.metric_names import is_accuracy
from fedjax_opt.results.names import name_of
from fedjax_opt.study.plots import frame
from fedjax_opt.study.report import formats
from fedjax_opt.study.report.study_tables import Entry, ReportTable, Row
from fedjax_opt.study.study import Study
from fedjax_opt.study.verdicts import (
  BEST,
  COLLAPSED,
  DIVERGED,
  TIED,
  WORSE,
  Verdict,
)

NAME = "field"
DOCS = pathlib.Path(__file__).parents[1]
PAGES = [DOCS / "comparison.md", DOCS / "which_method_study.md"]
PICTURE = DOCS / "comparison.png"
_SHOWN = 6  # Methods of a condition, and FedAvg; the other page has all.
_BASELINE = "FedAvg"
_NAMED = 4  # Methods of a case.
# Lines of the titles of narrow columns.
_BREAKS = {
  " = ": "=\n", " of ": " of\n", "logistic": "logi-\nstic",
  "network": "net-\nwork",
}  # fmt: skip
_VERDICTS = (TIED, WORSE, COLLAPSED, DIVERGED)  # In the order of sentences.

# On the page and in the picture; others follow.
_ORDER = (
  "digits-10-few", "digits-0.3-few", "digits-0.05-few", "digits-0.05-all",
  "mnist-logistic-0.1", "mnist-mlp-0.1", "quadratic", "lasso",
)  # fmt: skip
# What a reader has -> the conditions that are like it.
_CASES = {
  "clients are alike": ["digits-10-few"],
  "clients differ a little, few take part": ["digits-0.3-few"],
  "clients differ, few take part": [
    "digits-0.05-few",
    "mnist-logistic-0.1",
    "mnist-mlp-0.1",
  ],
  "clients differ, all take part": ["digits-0.05-all"],
  "a sparse model (LASSO)": ["lasso"],
}


@functools.cache
def published() -> Leaderboard:
  """The conditions under which all methods have records."""
  plan = definition.read(NAME)
  conditions = [c for c in plan.conditions if (plan.records / c.name).exists()]
  cells = plan._replace(conditions=conditions).cells(plan.methods)
  is_there = lambda place: (plan.records / place.file).exists()
  incomplete = {p.condition.name for p in cells if not is_there(p)}
  cells = [p for p in cells if p.condition.name not in incomplete]
  board = standing.leaderboard(plan, cells, [plan.records], [])
  order = sorted(board.studies, key=(*_ORDER, *board.studies).index)
  return dataclasses.replace(
    board, studies={name: board.studies[name] for name in order}
  )


def filled(text: str) -> str:
  """A page with what its marks enclose made anew."""
  board = published()
  sections = [_extent(board), *(_section(board, n) for n in board.studies)]
  text = marks.filled(text, "conditions", "\n".join(sections))
  return marks.filled(text, "advice", _advice(board))


def _advice(board: Leaderboard) -> str:
  """The methods that are among the best under all conditions of a case."""
  rows = [_advice_on(board, *case) for case in _CASES.items()]
  return formats.markdown(ReportTable(rows, 5)).strip() + "\n"


def _advice_on(board: Leaderboard, case: str, names: list[str]) -> Row:
  studies = [board.studies[name] for name in names]
  verdicts = [*map(_by_label, studies)]
  ran = [method for method in verdicts[0] if all(method in v for v in verdicts)]
  good = [m for m in ran if all(v[m].kind in (BEST, TIED) for v in verdicts)]
  good.sort(
    key=lambda method: np.mean([v[method].value.estimate for v in verdicts]),
    reverse=studies[0].is_larger_better,
  )
  texts = [
    f"{method} ({_means(studies, verdicts, method)})"
    for method in good[:_NAMED]
  ]
  count = f"{len(good)} of {len(ran)}"
  count += ", such as " if len(good) > _NAMED else ": "
  words = [v[_BASELINE].kind if _BASELINE in v else "–" for v in verdicts]
  return {
    "Your case": case,
    "Conditions": "; ".join(board.condition(name).title for name in names),
    "Among the best": count + "; ".join(texts),
    "FedAvg": _means(studies, verdicts, _BASELINE),
    "FedAvg's verdict": "; ".join(words),
  }


def _by_label(study: Study) -> dict[str, Verdict]:
  return {study.labels[v.cell.method]: v for v in study.verdicts}


def _means(
  studies: list[Study], verdicts: list[dict[str, Verdict]], method: str
) -> str:
  """The mean of a method under each condition."""
  texts = []
  for study, by_name in zip(studies, verdicts, strict=True):
    numbers = study.numbers  # Percents have one decimal under all conditions.
    numbers = numbers._replace(decimals=1) if numbers.unit else numbers
    is_there = method in by_name
    texts.append(numbers.texts(by_name[method].value)[0] if is_there else "–")
  return ", ".join(texts)


def _extent(board: Leaderboard) -> str:
  """Which conditions are complete, and the time that their cells took."""
  conditions = board.reference.conditions
  missing = [c.title for c in conditions if c.name not in board.studies]
  text = f"{len(board.studies)} of {len(conditions)} conditions are complete."
  if missing:
    text += f" The others have not run yet: {'; '.join(missing)}."
  seconds = sum(
    record.about["seconds"]
    for place in board.planned
    for record in records.read(board.reference.records / place.file)
  )
  return f"{text} All cells took {seconds / 3600:.0f} hours of one core.\n"


def _section(board: Leaderboard, name: str) -> str:
  study, condition = board.studies[name], board.condition(name)
  sign = -1 if study.is_larger_better else 1
  ranked = sorted(study.verdicts, key=lambda v: sign * v.value.estimate)
  top_verdicts, other_verdicts = ranked[:_SHOWN], ranked[_SHOWN:]
  counts = collections.Counter(verdict.kind for verdict in other_verdicts)
  kinds = sorted(counts, key=_VERDICTS.index)
  *firsts, last = [f"{counts[v]} {_verb(v, counts[v])}" for v in kinds] or [""]
  summary = f"{', '.join(firsts)} and {last}" if firsts else last
  text = f"{len(ranked)} methods."
  if other_verdicts:
    text += f" The table has the {len(top_verdicts)} with the best means."
    text += f" Of the others, {summary}."
  for place, verdict in enumerate(other_verdicts, _SHOWN + 1):
    if study.labels[verdict.cell.method] == _BASELINE:
      text += f" {_BASELINE} (last row) has rank {place} by its mean."
      top_verdicts.append(verdict)
  if study.target is not None:
    text += (
      f" The target is {100 * study.target:g} %, checked every "
      f"{condition.flags['eval_every']} rounds."
    )
  costs = _costs(study, top_verdicts)
  pairs = zip(top_verdicts, costs, strict=True)
  table = ReportTable([_row(study, *pair) for pair in pairs], 1)
  rows = formats.markdown(table).strip()
  return f"### {condition.title}\n\n{_trained(condition)}\n\n{text}\n\n{rows}\n"


def _trained(condition: Condition) -> str:
  """What all methods train under a condition, and how."""
  flags = condition.flags
  task = TASK.entries[flags["task"]].help.split("\n")[0]
  parts = [task[0].upper() + task[1:]]
  if "strength" in flags:
    parts.append(f"l1 of strength {flags['strength']}")
  if "partition" in flags:
    parts.append(f"partition `{flags['partition']}`")
  if "examples_per_client" in flags:
    parts.append(f"{flags['examples_per_client']} examples of each client")
  steps, batch = flags["local_steps"], flags["batch_size"]
  # Clients of a partition may have fewer examples than a batch.
  may_be_few = "partition" in flags and "examples_per_client" not in flags
  parts.append(
    f"{flags['rounds']} rounds of {steps} local steps on "
    f"{'at most ' * may_be_few}{batch} examples"
  )
  return f"{'; '.join(parts)}."


def _verb(verdict: str, number: int) -> str:
  if verdict in (DIVERGED, COLLAPSED):
    return verdict
  return f"{'is' if number == 1 else 'are'} {verdict}"


def _row(
  study: Study, verdict: Verdict, costs: dict[str, str]
) -> dict[str, str | Entry]:
  cell, numbers = verdict.cell, study.numbers
  edges = cell.tuning.edges if cell.tuning else ()
  metric = name_of(study.metric).removeprefix("test ").capitalize()
  metric += " (%)" * bool(numbers.unit)
  return {
    "Method": study.labels[cell.method],
    metric: Entry(*numbers.texts(verdict.value)),
    "Verdict": "†" if verdict.kind == TIED else verdict.kind,
    **costs,
    "At edge": ", ".join(name_of(edge.name) for edge in edges) or "–",
  }


# Column -> the cost that it has, and in which unit.
_COSTS = {
  "Rounds": ("rounds", 1),
  "MB": ("bytes", 1e6),
  "Gradients": ("gradient_evaluations", 1e3),
}


def _costs(study: Study, verdicts: list[Verdict]) -> list[dict[str, str]]:
  """The costs of a row each: all of a column with the same decimals."""
  rows = [{} for _ in verdicts]
  for column, (name, scale) in _COSTS.items() if study.target else ():
    costs = [verdict.to_target[name] / scale for verdict in verdicts]
    # At least one, and so many that the least has two digits; NaN has none.
    needed = [1 - math.floor(math.log10(cost)) for cost in costs if cost > 0]
    decimals = max([1, *needed])
    for row, cost in zip(rows, costs, strict=True):
      row[column] = "–" if np.isnan(cost) else f"{cost:.{decimals}f}"
  return rows


def draw(is_narrow: bool = False) -> Any:
  """The figure: how far each method is below the best mean of a condition.

  It has the conditions by accuracy, and the methods that ran under all of them,
  ordered by their mean over these conditions.

  Args:
    is_narrow: whether it is for a phone.
  """
  board = published()
  studies = [s for s in board.studies.values() if is_accuracy(s.metric)]
  verdicts = [*map(_by_label, studies)]
  points = {
    method: [100 * v[method].value.estimate for v in verdicts]
    for method in verdicts[0]
    if all(method in v for v in verdicts)
  }
  below = np.nanmax([*points.values()], axis=0) - np.array([*points.values()])
  order = np.argsort(np.nan_to_num(below, nan=100).mean(1))
  methods = [[*points][i] for i in order]
  scale, size = ((1.27, 3.6), 8.5) if is_narrow else ((2.32, 3.5), 9)
  with plots.figure(1, 1, scale) as (figure, axes):
    ax = axes[0, 0]
    ax.imshow(below[order], cmap="Blues", vmax=10, aspect="auto")
    for row, method in enumerate(methods):
      for column, by_name in enumerate(verdicts):
        value, verdict = below[order[row], column], by_name[method].kind
        is_near = verdict in (BEST, TIED)
        ax.text(
          column, row, "–" if np.isnan(value) else f"{value:.1f}",
          ha="center", va="center", fontsize=9,
          fontweight="bold" if is_near else "normal",
          color="white" if value > 6 else "black",
        )  # fmt: skip
    titles = [study.title.replace(", ", "\n") for study in studies]
    if is_narrow:
      for old, new in _BREAKS.items():
        titles = [title.replace(old, new) for title in titles]
      methods = [method.removeprefix("FedAvg, ") for method in methods]
    ax.set_xticks(range(len(titles)), titles, fontsize=size)
    ax.set_yticks(range(len(methods)), methods, fontsize=size)
    ax.tick_params(length=0)
    ax.xaxis.tick_top()
    ax.grid(visible=False)
  return figure


def write_browser_page(folder: pathlib.Path) -> None:
  """Writes the sortable page, beside a copy of the records that it links to."""
  shutil.rmtree(folder, ignore_errors=True)
  shutil.copytree(definition.read(NAME).records, folder)
  path = page.write(published(), folder)
  home = '<p><a href="../comparison.html">The reference comparison</a></p>\n'
  path.write_text(path.read_text().replace("<h1>", home + "<h1>"))


if __name__ == "__main__":
  for each in PAGES:
    each.write_text(filled(each.read_text()))
  frame.finish(draw(), PICTURE)
  frame.finish(draw(is_narrow=True), PICTURE.with_stem("comparison_phone"))
