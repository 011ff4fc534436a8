"""What artefacts cost: their programs with their points, rounds and time."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.artefacts import publishing
from experiments.artefacts.artefact import Artefact, Plan, RunOf, flags_of
from fedjax_opt.study import words


def programs(artefact: Artefact, size: str) -> str:
  """The programs of a size, with their points and rounds."""
  runs, others = _work(artefact, size)
  parts = []
  if runs:
    resolved = [flags_of(run) for run in runs]
    tasks = dict.fromkeys(flags["task"] for flags in resolved)
    rounds = words.span(flags["rounds"] for flags in resolved)
    points = sum(map(_num_points, resolved))
    parts.append(
      f"{', '.join(tasks)}: {words.counted(len(runs), 'program')} with "
      f"{words.counted(points, 'point')}, {rounds} rounds"
    )
  if others:
    parts.append(words.counted(others, "computation"))
  return "; ".join(parts)


def time_left(artefact: Artefact, size: str) -> str | None:
  """What is not recorded of an artefact takes so long, in words.

  By the median time of a point, round and local epoch in the recorded runs of
  the paper that have the same task; None if there are none.
  """
  runs, _ = _work(artefact, size)
  records = publishing.records_of(artefact.paper)
  times = _times(records)
  known = [flags_of(each.arguments) for each in records if each.arguments]
  resolved = [each for each in map(flags_of, runs) if each not in known]
  if not all(flags["task"] in times for flags in resolved):
    return None
  seconds = sum(times[flags["task"]] * _epochs(flags) for flags in resolved)
  return f"{max(1, round(seconds / 60))} min"


def _work(artefact, size) -> tuple[list[Sequence[str]], int]:
  """The flags of each run, and how many other computations there are."""
  plan = Plan(size, {})
  cells = artefact.cells(plan).values()
  runs = [cell.arguments for cell in cells if isinstance(cell, RunOf)]
  others = sum(not isinstance(cell, RunOf) for cell in cells)
  return list(dict.fromkeys([*plan.grids, *runs])), others


def _times(records: Iterable[Any]) -> dict[str, float]:
  """Task -> seconds of a point, round and local epoch."""
  of_tasks: dict[str, dict] = {}
  for record in records:
    if record.arguments:
      flags = flags_of(record.arguments)
      seconds = record.about["seconds"] / _epochs(flags)
      of_tasks.setdefault(flags["task"], {})[record.arguments] = seconds
  return {
    task: statistics.median(seconds.values())
    for task, seconds in of_tasks.items()
  }


def _epochs(flags: dict[str, Any]) -> float:
  """Of all points and rounds; a number of local steps counts as one."""
  local = flags.get("local_epochs") or 1
  return _num_points(flags) * flags["rounds"] * local


def _num_points(flags: dict[str, Any]) -> int:
  return math.prod(len(v) for v in flags.values() if isinstance(v, list))
