"""How far one setting carries: regrets and ranks over tasks."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from experiments.artefacts import definitions
from experiments.artefacts.artefact import Entries, Records
from experiments.artefacts.blocks import Block, Claim, Quantity, Table
from experiments.artefacts.values import ACCURACY, with_interval

_NEAR = 0.005  # What the paper counts as good as the best.


def blocks(entries: Entries, records: Records) -> list[Block]:
  """What the file declares, and means over the tasks that ran whole.

  The means are over the tasks of each earlier design, then over all.
  """
  declared_blocks = definitions.blocks(entries, records)
  ran = {key[0] for key in records}
  rows = [row for row in entries["rows"] if row in ran]
  tasks = [
    task
    for task in dict.fromkeys(key[1] for key in records)
    if all((row, task) in records for row in rows)
  ]
  if len(rows) < 2 or not tasks:
    return declared_blocks
  # [rows, tasks, seeds]
  accuracy = np.array(
    [[records[row, task].final(ACCURACY) for task in tasks] for row in rows]
  )
  accuracy = np.nan_to_num(accuracy)
  earlier = [size for size in entries["first_tasks"] if size < len(tasks)]
  parts = {f"the first {size} tasks": accuracy[:, :size] for size in earlier}
  parts[f"all {len(tasks)} tasks"] = accuracy
  return [
    *declared_blocks[:1],
    *(_table(entries, rows, part, name) for name, part in parts.items()),
    *declared_blocks[1:],
    *(_least(rows, part, name) for name, part in parts.items()),
  ]


def _regret(accuracy: np.ndarray) -> np.ndarray:
  """Each row's mean loss to the best mean on each task. [R, S]."""
  means = accuracy.mean(2)
  return (means.max(0)[:, None] - accuracy).mean(1)


def _table(
  entries: Entries, rows: Sequence[str], accuracy: np.ndarray, name: str
) -> Table:
  """Regrets and ranks, as means over tasks; the intervals are over seeds."""
  means, regret = accuracy.mean(2), _regret(accuracy)
  rank = stats.rankdata(-accuracy, axis=0).mean(1)
  is_near = means >= means.max(0) - _NEAR
  is_first_or_second = stats.rankdata(-means, axis=0, method="min") <= 2
  lines = [
    [
      row,
      with_interval(regret[i], ACCURACY),
      f"{100 * (means.max(0) - means[i]).max():.1f}",
      str(is_near[i].sum()),
      str(is_first_or_second[i].sum()),
      with_interval(rank[i], "rank"),
    ]
    for i, row in enumerate(rows)
  ]
  heads = [
    entries["corner"], "mean regret, points", "largest regret",
    "mean within 0.5 points", "best or second", "mean rank",
  ]  # fmt: skip
  title = f"{name} together; a run that diverged counts as 0 %"
  return Table(heads, lines, title[0].upper() + title[1:])


def _least(rows: Sequence[str], accuracy: np.ndarray, name: str) -> Claim:
  """That Δ-SGD's mean regret is below that of each other method."""
  regrets = dict(zip(rows, _regret(accuracy), strict=True))
  own_regret = regrets["Δ-SGD"]
  quantities = [
    Quantity(
      f"regret of {row} less that of Δ-SGD",
      tuple((100 * (regret - own_regret)).tolist()),
      "points",
    )
    for row, regret in regrets.items()
    if row != "Δ-SGD"
  ]
  text = f"Over {name}, Δ-SGD, not tuned, has the least mean regret"
  return Claim(text, quantities, is_ours=True)
