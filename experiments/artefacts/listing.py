"""The list of all artefacts: their settings, and what their sizes cost."""

import math
import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.artefacts import publishing
from experiments.artefacts.artefact import (
  Artefact,
  GridChoices,
  RunOf,
  spec_of,
)
from experiments.artefacts.recipe_runner import RecordIndex
from experiments.stored.records import Record
from fedjax_opt.study import words


def text(artefacts: Sequence[Artefact]) -> str:
  """Every artefact: setting, the cost of each size, and whether it is done."""
  lines = []
  for artefact in artefacts:
    lines += ["", *_wrapped("", f"{artefact.name}: {artefact.title}")]
    lines += _wrapped("  setting  ", artefact.setting)
    for size in artefact.sizes:
      if size != "smoke":
        lines += _wrapped(f"  {size:7}  ", _cost(artefact, size))
  return "\n".join(lines[1:])


def _cost(artefact: Artefact, size: str) -> str:
  """The programs of a size, and the time or the results."""
  cost = _programs(artefact, size)
  if publishing.is_published(artefact, size):
    name = publishing.file_of(artefact, size).name
    return f"{cost}; done, see experiments/{artefact.paper}/artefacts/{name}"
  time_text = time_left(artefact, size) if size == "cpu" else None
  return f"{cost}; about {time_text} more" if time_text else cost


def _programs(artefact: Artefact, size: str) -> str:
  """The programs of a size, with their points and rounds."""
  runs, computations = _work(artefact, size)
  parts = []
  if runs:
    all_flags = [run.identity for run in runs]
    tasks = dict.fromkeys(flags["task"] for flags in all_flags)
    rounds = words.span(flags["rounds"] for flags in all_flags)
    points = sum(map(_num_points, all_flags))
    parts.append(
      f"{', '.join(tasks)}: {words.counted(len(runs), 'program')} with "
      f"{words.counted(points, 'point')}, {rounds} rounds"
    )
  if computations:
    parts.append(words.counted(computations, "computation"))
  return "; ".join(parts)


def time_left(artefact: Artefact, size: str) -> str | None:
  """Says how long the missing runs of an artefact take.

  The estimate uses the median time of a point, round and local epoch in the
  paper's recorded runs of the same task; None if there are none.
  """
  runs, _ = _work(artefact, size)
  records = publishing.records_of(artefact.paper)
  times, index = _times(records), RecordIndex(records)
  missing = [run.identity for run in runs if index.find(run) is None]
  if not all(flags["task"] in times for flags in missing):
    return None
  seconds = sum(times[flags["task"]] * _epochs(flags) for flags in missing)
  return f"{max(1, round(seconds / 60))} min"


def _work(artefact: Artefact, size: str) -> tuple[list[RunOf], int]:
  """The runs, each once, and how many other computations there are."""
  choices = GridChoices(size)
  recipes = artefact.recipes(choices).values()
  runs = [recipe for recipe in recipes if isinstance(recipe, RunOf)]
  all_runs = dict.fromkeys([*map(RunOf, choices.grids), *runs])
  return list(all_runs), len(recipes) - len(runs)


def _times(records: Iterable[Record]) -> dict[str, float]:
  """Task -> seconds of a point, round and local epoch."""
  seconds_by_task: dict[str, dict] = {}
  for record in records:
    if record.arguments:
      flags = spec_of(record.arguments).identity
      seconds = record.about["seconds"] / _epochs(flags)
      seconds_by_task.setdefault(flags["task"], {})[record.arguments] = seconds
  return {
    task: statistics.median(seconds.values())
    for task, seconds in seconds_by_task.items()
  }


def _epochs(flags: Mapping[str, Any]) -> float:
  """Local epochs of all points and rounds; local steps count as one epoch."""
  local = flags.get("local_epochs") or 1
  return _num_points(flags) * flags["rounds"] * local


def _num_points(flags: Mapping[str, Any]) -> int:
  return math.prod(len(v) for v in flags.values() if isinstance(v, list))


def _wrapped(begin: str, text: str) -> list[str]:
  indent = " " * (len(begin) or 2)
  return textwrap.wrap(text, 80, initial_indent=begin, subsequent_indent=indent)
