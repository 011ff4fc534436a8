"""Captions of what ran, made from the flags that ran, never by hand."""

import itertools
import math
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.artefacts.artefact import (
  GridChoices,
  Key,
  Recipe,
  RunOf,
  grid_of,
)
from experiments.artefacts.recipe_runner import ArtefactResult, outcome_of_grid
from experiments.specification.spec import FLAGS, all_flags
from experiments.stored.records import Record
from experiments.studies.study_facts import in_common
from fedjax_opt.results.names import format_value, name_of
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import words

# Flags that do not change what is measured. A cell has one setting, so that in
# its runs nothing is selected.
_SILENT = (
  "checkpoint_every", "eval_every", "target_accuracy",
  "select_on", "select_metric", "select_over",
)  # fmt: skip


def settings(records: Iterable[Record]) -> str:
  """The flags that all runs share and that are no defaults; '' if none."""
  runs = [record.flags for record in records if record.arguments]
  flags = {n: v for n, v in in_common(runs).items() if n not in _SILENT}
  text = ", ".join(f"`{n}={shown_value(v)}`" for n, v in flags.items())
  return f"In all runs: {text}." if runs else ""


def varied(records: Iterable[Record]) -> str:
  """The flags that differ between runs, with their values; '' if none."""
  runs = [record.flags for record in records if record.arguments]
  names = dict.fromkeys(name for flags in runs for name in flags)
  defaults = {name: flag.default for name, flag in all_flags().items()}
  parts, in_some = [], []
  for name in names:
    values = [flags.get(name, defaults.get(name)) for flags in runs]
    texts = [*dict.fromkeys(shown_value(v) for v in values if v is not None)]
    if len({str(value) for value in values}) < 2 or name in _SILENT:
      continue
    if len(texts) > 1:
      parts.append(f"`{name}`: {'; '.join(texts)}")
    else:  # The other runs have no such flag.
      in_some.append(f"`{name}={texts[0]}`")
  text = f"Varied: {', '.join(parts)}." if parts else ""
  if in_some:
    text += f" Only where it applies: {', '.join(in_some)}."
  return text.strip()


def chosen(result: ArtefactResult) -> str:
  """The values tried of tuned hyperparameters, and the criterion; '' if none.

  Also whose they are, if methods tried different ones; how often the best value
  was at the edge of a grid, so that a better one may be beyond it; and how
  often there was no best.
  """
  ways: dict[str, dict[str, None]] = {}
  method_of = _method_names([record.flags for record in result.tuning.values()])
  at_edge, num_lost = [], 0
  for grid, record in result.tuning.items():
    tried_values, tuning = grid_of(grid), outcome_of_grid(record)
    num_lost += tuning.best is None
    if tuning.best is not None:
      edges = [edge.name for edge in tuning.edges]
      at_edge += [name in edges for name in tried_values]
    criterion = Criterion(**record.about["criterion"])
    values = [f"`{n}` among {shown_value(v)}" for n, v in tried_values.items()]
    seeds = shown_value(record.flags.get("seed", 0))
    way = f"{words.listed(values)} by {criterion}, seed {seeds}"
    ways.setdefault(way, {})[method_of(record.flags)] = None
  if not ways:
    return ""
  all_of_them = set().union(*ways.values())
  parts = [
    way if set(whose) == all_of_them else f"{way} ({words.listed([*whose])})"
    for way, whose in ways.items()
  ]
  if at_edge:
    parts.append(
      f"{sum(at_edge)} of {len(at_edge)} chosen values are at an edge of their "
      "grid"
    )
  if num_lost:
    parts.append(
      f"of {num_lost} of {len(result.tuning)} grids all points diverged, so "
      "that the first value is used"
    )
  return f"Chosen: {'; '.join(parts)}."


def _method_names(runs: Sequence[Mapping[str, Any]]) -> Callable[..., str]:
  """Flags of a run -> its algorithm and rule, as far as runs differ in them."""
  values_of = lambda flags: [
    str(flags.get(name, FLAGS[name].default))
    for name in ("algorithm", "client")
  ]
  differs = [len(set(v)) > 1 for v in zip(*map(values_of, runs), strict=True)]
  return lambda flags: " with ".join(
    f"`{value}`"
    for value, is_told in zip(values_of(flags), differs, strict=True)
    if is_told
  )


class Reduction(NamedTuple):
  """How an artefact at a size differs from that at the paper's size.

  Attributes:
    changed: flag -> its values at the paper's size, and here, in the cells that
      both have.
    missing: a phrase on the paper's cells that are not here; [] if all are.
    added: a phrase on the cells that the paper lacks; [] if there are none.
  """

  changed: Mapping[str, tuple[Mapping[str, None], Mapping[str, None]]] = {}
  missing: Sequence[str] = ()
  added: Sequence[str] = ()


def reduction(result: ArtefactResult) -> Reduction:
  """How a size differs from the paper's; empty if it does not."""
  if result.size == "paper":
    return Reduction()
  choices = GridChoices("paper")
  paper = result.artefact.recipes(choices)
  changed = _changed(result, paper, choices.grids)
  added = _added(result, paper, changed)
  return Reduction(changed, _missing(result, paper), added)


def in_short(reduction: Reduction, *, has_added: bool = True) -> list[str]:
  """A reduction in a few words for each way.

  Args:
    reduction: the reduction.
    has_added: whether to say what ran that the paper does not have.
  """
  changed = [
    _values_text(name, [*ours])
    for name, (_, ours) in reduction.changed.items()
    # Local steps say that there are no epochs, and the task has its network.
    if not (name == "local_epochs" and "local_steps" in reduction.changed)
    and name != "pretrained"
  ]
  return [*changed, *reduction.missing, *(reduction.added if has_added else ())]


def in_full(reduction: Reduction) -> list[str]:
  """A reduction in words, with what the paper's size has in parentheses."""
  changed = []
  for name, (theirs, ours) in reduction.changed.items():
    values = [
      name_of(v) if name == "task" else _PHRASES.get(f"{name} {v}", v)
      for v in theirs
    ]
    changed.append(
      f"{_values_text(name, [*ours])} ({words.listed(values, 'or')})"
    )
  return [*changed, *reduction.missing, *reduction.added]


def _missing(result: ArtefactResult, paper: Mapping[Key, Recipe]) -> list[str]:
  """The phrase on cells of the paper that are not here, if any.

  A run with a grid has a cell for each of its points.
  """
  number_of = {
    key: math.prod(map(len, grid_of(recipe.arguments).values()))
    if isinstance(recipe, RunOf)
    else 1
    for key, recipe in paper.items()
  }
  number = sum(number_of[key] for key in paper if key in result.recipes)
  total = sum(number_of.values())
  if number == total:
    return []
  whose = "" if result.artefact.origin == "ours" else "the paper's "
  of_all = f"{number} of {whose}{total} cells"
  return [of_all if number else "no cell of the paper"]


def _added(
  result: ArtefactResult, paper: Mapping[Key, Recipe], said: Iterable[str]
) -> list[str]:
  """The phrase on cells that the paper lacks, if any, but for what is said."""
  replaced = {"task": "pretrained", "rounds": "rounds"}  # By which flag.
  of_paper = {
    (name, str(recipe.identity.get(name)))
    for name in replaced
    for recipe in paper.values()
  }
  added = {
    ", ".join(
      _values_text(name, [str(recipe.identity[name])])
      for name, flag in replaced.items()
      if name in recipe.identity
      and flag not in said
      and (name, str(recipe.identity[name])) not in of_paper
    ): None
    for key, recipe in result.recipes.items()
    if key not in paper
  }
  if not added:
    return []
  if phrase := " and ".join(filter(None, added)):
    return [f"instead {phrase}"]
  # Methods that the paper does not have, or other values of what it varies.
  known = {*itertools.chain(*paper)}
  parts = dict.fromkeys(itertools.chain(*result.recipes))
  return [f"also {words.listed([p for p in parts if p not in known])}"]


def _changed(
  result: ArtefactResult, paper: Mapping[Key, Recipe], grids: Sequence[tuple]
) -> dict[str, tuple[dict, dict]]:
  """Flag -> its values at the paper's size, and ours, in the common cells.

  A tuned hyperparameter has all values that the grids try, not only the chosen
  one.
  """
  chosen = {n for g in (*grids, *result.tuning) for n in grid_of(g)}
  differences = [
    difference
    for key, recipe in result.recipes.items()
    if key in paper
    for difference in _differences(paper[key], recipe)
    if difference[0] not in chosen
  ]
  theirs, ours = _tried(grids), _tried(result.tuning)
  differences += [
    (name, theirs[name], values)
    for name, values in ours.items()
    if values != theirs.get(name, values)
  ]
  changed: dict[str, tuple[dict, dict]] = {}
  for name, their, our in differences:
    sides = changed.setdefault(name, ({}, {}))
    sides[0][their] = sides[1][our] = None
  return changed


def _tried(grids: Iterable[tuple[str, ...]]) -> dict[str, str]:
  """Hyperparameter -> all values that grids try, joined by commas."""
  by_name: dict[str, set[float]] = {}
  for name, values in (item for g in grids for item in grid_of(g).items()):
    by_name.setdefault(name, set()).update(values)
  return {name: shown_value(sorted(tried)) for name, tried in by_name.items()}


# Flags whose values are said as a number of something.
_COUNTED = {"rounds": "round", "local_steps": "local step", "seeds": "seed"}
# Flags whose one value is said in a phrase, and values that are.
_PHRASES = {
  "augmentation": "{} augmentation",
  "drop_remainder False": "smaller last batches too",
  "drop_remainder True": "whole batches only",
  "max_length": "texts of {} tokens",
  "norm None": "no normalization layers",
  "test_every": "one of {} test examples",
}


def _values_text(name: str, values: Sequence[str]) -> str:
  if name == "task":
    return words.listed([*map(name_of, values)])
  if any("," in value for value in values):
    label = name_of(name)
    if not label.endswith("rate"):
      return f"other {label}"
    tried = sorted(float(x) for value in values for x in value.split(","))
    return f"{label}s {format_value(tried[0])} to {format_value(tried[-1])}"
  text = words.listed(values, "or")
  phrase = _PHRASES.get(name) if len(values) == 1 else None
  if phrase := _PHRASES.get(f"{name} {text}", phrase):
    return phrase.format(text).replace("none ", "no ")
  if values == ["None"]:
    return f"no `{name}`"
  if name in _COUNTED:
    return f"{text} {_COUNTED[name]}{'s' * (values != ['1'])}"
  return f"`{name}` {text}"


def run_facts(result: ArtefactResult) -> list[str]:
  """Task, rounds, clients and seeds of the runs; [] if there are none."""
  runs = [r.flags for r in result.cell_records.values() if r.arguments]
  parts = []
  for name in ("task", "rounds", "clients", "clients a round", "seeds"):
    values = dict.fromkeys(filter(None, (_of_run(name, f) for f in runs)))
    if values and name.startswith("clients"):
      parts.append(f"{words.listed([*values], 'or')} {name}")
    elif values:
      parts.append(_values_text(name, [*values]))
  return parts


def _of_run(name: str, flags: Mapping[str, Any]) -> str | None:
  """A run's task, rounds, clients or seeds; None if its flags do not say it."""
  flags = {"task": FLAGS["task"].default, **flags}
  if name == "seeds":
    return str(len(np.atleast_1d(flags.get("seed", 0))))
  if name == "task" and "pretrained" in flags:
    # The network is not the task's own.
    network = pathlib.Path(flags["pretrained"]).name
    return f"{name_of(flags['task']).rpartition(' ')[0]} {network}"
  if not name.startswith("clients"):
    return shown_value(flags[name]) if name in flags else None
  number, cohort = flags.get("num_clients"), flags.get("cohort_size")
  # If the data say how many clients there are, no flag does.
  is_by_data = name == "clients a round"
  if cohort is None or (number is None) != is_by_data:
    return None
  return str(cohort) if number in (None, cohort) else f"{cohort} of {number}"


def is_elsewhere(result: ArtefactResult) -> bool:
  """Whether no cell of the paper ran on the data that it has there."""
  paper = result.artefact.recipes(GridChoices("paper"))
  data = lambda recipe: str(recipe.identity.get("task")).partition("_")[0]
  return not any(
    data(paper[key]) == data(recipe)
    for key, recipe in result.recipes.items()
    if key in paper
  )


def stand_ins(result: ArtefactResult) -> str:
  """The tasks of the cells, if the paper's size has none of these; or ''."""
  paper = result.artefact.recipes(GridChoices("paper"))
  tasks_of = lambda recipes: {r.identity.get("task") for r in recipes.values()}
  tasks = tasks_of(result.recipes) - {None}
  is_other = result.size != "paper" and tasks.isdisjoint(tasks_of(paper))
  return words.listed(sorted(map(name_of, tasks))) if is_other else ""


def _differences(theirs: Recipe, ours: Recipe) -> list[tuple[str, str, str]]:
  """(flag, the paper's value, ours) for each flag that differs."""
  a, b = theirs.identity, ours.identity
  seeds = [str(len(np.atleast_1d(flags.get("seed", 0)))) for flags in (a, b)]
  return [
    (name, shown_value(a.get(name)), shown_value(b.get(name)))
    for name in dict.fromkeys([*a, *b])
    if a.get(name) != b.get(name) and name not in (*_SILENT, "seed")
  ] + ([("seeds", *seeds)] if seeds[0] != seeds[1] else [])


def cost(result: ArtefactResult) -> str:
  """The dates and devices of the runs, and the time that they took."""
  records = result.records
  if not records:
    return ""
  devices = dict.fromkeys(
    f"{device['platform'].upper()} ({device['kind']})"
    for record in records
    if (device := record.about.get("device"))
  )
  note = f", {words.listed(list(devices))}" if devices else ""
  points = sum(
    record.about.get("num_points", len(record.points)) for record in records
  )
  runs = words.counted(len(records), "program")
  return (
    f"{_dates(records)}{note}: {runs} with {words.counted(points, 'point')} in "
    f"{_time(records)}, the sum over the programs."
  )


def reuse_note(result: ArtefactResult, old_records: Sequence[Record]) -> str:
  """Says that nothing ran, if all parts of a result were recorded; or ''.

  Args:
    result: the artefact's result.
    old_records: the records that existed before.
  """
  records = result.records
  is_whole = len(result.cell_records) == len(result.recipes)
  if not is_whole or not all(record in old_records for record in records):
    return ""
  return (
    f"recorded on {_dates(records)}, nothing ran; --anew runs it "
    f"({_time(records)} when it was recorded)"
  )


def _dates(records: Sequence[Record]) -> str:
  """The first date, and the last if it is another."""
  dates = sorted({record.about["date"] for record in records})
  return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


def _time(records: Sequence[Record]) -> str:
  """The time of all compilation and rounds, as if one ran after the other."""
  return words.seconds(sum(record.about["seconds"] for record in records))


def shown_value(value: Any) -> str:
  """A flag's value: a list as on the command line, or as "3 to 22"."""
  values = [*value] if isinstance(value, list | tuple) else [value]
  are_many = len(values) > 3 and isinstance(values[0], int)
  if are_many and values == [*range(values[0], values[0] + len(values))]:
    return f"{values[0]} to {values[-1]}"
  return ",".join(map(format_value, values))
