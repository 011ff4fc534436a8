"""Artefacts as the file `experiments/PAPER/artefacts.toml` declares them.

Each table of the file is an artefact. The table `common` is none: every
artefact has its entries, and may replace them.

  title, setting  what the artefact shows, and the paper's setting; a line each
  sizes           the sizes that it has. Default: smoke, cpu and paper
  origin          "theorem", or "ours" if the paper does not have it. Default:
                  "paper", for its tables and figures
  needs           what it needs, if a few cores are not enough
  like            an artefact that has all entries that are not given here
  smoke, cpu, paper
                  tables of entries that replace others at this size
  groups          lists of rows, by name, for other entries to refer to
  numbers         tables of the paper, by name, likewise. Each has `columns`,
                  and for each row one text: its numbers, with commas between

Cells. There is a cell for each combination of `rows`, `columns` and `thirds`,
except for those in the list `skip`; `columns` and `thirds` may be absent. The
combination is the key of the cell, such as (row, column). The cell is a run
with these flags:

  preset, flags   flags of all cells
  labels          part of a key -> flags
  tune            flags of a grid, for all cells or by row. The grid has the
                  flags above and these. The cell has the setting that the grid
                  chooses, and the flags below
  report          flags of all cells
  reported        part of a key -> flags
  elsewhere       part of a key -> flags in place of `preset`, but not for the
                  grid
  also            further cells, by any name: tables of entries that replace
                  those above for these cells

If cells are calls of a function, and no runs, `calls` is a table:

  function        such as "fco.convex:gaps", in a module of the paper
  rows, columns, thirds
                  as above
  options         options of all calls
  labels          part of a key, or a whole key as in "row, column" -> options

What is shown:

  keep            metrics that are recorded. Default: test_accuracy
  keep_last       number of last evaluations that are recorded. Default: all
  expand          hyperparameters, for all cells or by row. The points of a
                  record that share their values become a record. Its key
                  begins with the value of the first hyperparameter; the values
                  of the others are joined to the row
  titles          part of a key -> its title in tables, pictures and claims
  tables, pictures
                  see views.py
  claims          see declared_claims.py

`blocks` and `keep` may also name a function, as `calls` does, for what these
entries cannot declare: `blocks(about, records) -> blocks` and `keep(about, run)
-> RecordedParts`. `own` lists the further entries that these functions read.
All other entries are refused.
"""

import functools
import importlib
import itertools
import pathlib
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from experiments.artefacts import declared_claims, views
from experiments.artefacts.artefact import (
  SIZES,
  Artefact,
  Block,
  Computed,
  GridChoices,
  Key,
  Recipe,
  Records,
  RunOf,
)
from experiments.studies.records import RecordedParts
from fedjax_opt import Run
from fedjax_opt.checks.values import nearest

_EXPERIMENTS = pathlib.Path(__file__).parents[1]

About = Mapping[str, Any]  # An artefact as its file has it.


def _entries(words: str, **inner: Mapping) -> dict[str, Mapping | None]:
  """Entries that a table may have; some are tables, or lists of tables."""
  return dict.fromkeys(words.split()) | inner


_ANY = "*"  # An entry of any name.
_CALLS = _entries("function rows columns thirds options labels")
_CELLS = _entries(
  "rows columns thirds skip preset flags labels report reported elsewhere tune",
  calls=_CALLS,
)
_AT_SIZE = _CELLS | {"also": {_ANY: _CELLS}}
_PART = _entries(
  "value values by better more less near within above below in_rows from to"
)
_ARTEFACT = (
  _AT_SIZE
  | dict.fromkeys(SIZES, _AT_SIZE)
  | _entries(
    "title setting sizes origin needs like groups numbers blocks keep "
    "keep_last own expand titles corner",
    tables=_entries(
      "title corner rows columns titles value values at paper_numbers "
      "deviation less bold"
    ),
    pictures=_entries(
      "name alt kind rows columns titles metrics value x x_name transposed"
    ),
    claims=_PART | _entries("text at all_of only_run ours", parts=_PART),
  )
)


def of_paper(paper: str) -> list[Artefact]:
  """The artefacts of a paper, in the order of its file.

  Raises:
    ValueError: naming an entry that nothing reads.
  """
  file = _EXPERIMENTS / paper / "artefacts.toml"
  content = tomllib.loads(file.read_text(encoding="utf-8"))
  common = content.pop("common", {})
  artefacts = []
  for name, table in content.items():
    about = merged(common, _completed(content, table))
    entries = dict.fromkeys(about.get("own", ())) | _ARTEFACT
    _check(f"{str(file)!r}: {name}", about, entries)
    artefacts.append(_artefact(f"{paper}/{name}", about))
  return artefacts


def _check(where: str, about: About, entries: Mapping[str, Any]) -> None:
  """Checks all entries, as a misspelt one would silently be nothing."""
  for name, value in about.items():
    if name not in entries and _ANY not in entries:
      matches = nearest(name, entries)
      hint = f"; did you mean {matches[0]}?" if matches else ""
      raise ValueError(f"{where}: has no entry {name!r}{hint}")
    if inner := entries.get(name, entries.get(_ANY)):
      for table in value if isinstance(value, list) else [value]:
        _check(f"{where}.{name}", table, inner)


def _completed(content: About, table: About) -> About:
  """An artefact, completed by the entries of another that it is `like`."""
  like = table.get("like")
  return merged(_completed(content, content[like]), table) if like else table


def _artefact(name: str, about: About) -> Artefact:
  def function(part: str, default: Callable) -> Callable:
    declared = about.get(part)
    if isinstance(declared, str):
      return functools.partial(_call, declared, about)
    return functools.partial(default, about)

  return Artefact(
    name,
    about["title"],
    about["setting"],
    functools.partial(cells, about),
    function("blocks", blocks),
    function("keep", keep),
    tuple(about.get("sizes", SIZES)),
    about.get("origin", "paper"),
    about.get("needs", ""),
  )


def _call(place: str, about: About, argument: Any) -> Any:
  """Calls a function of a paper's modules."""
  return _function(place)(about, argument)


def _function(place: str) -> Callable:
  """A function of a paper's module, which is imported only now."""
  module, _, name = place.partition(":")
  return getattr(importlib.import_module(f"experiments.{module}"), name)


def merged(*tables: About) -> dict[str, Any]:
  """Joins tables: later values replace earlier ones; inner tables are merged"""
  union: dict[str, Any] = {}
  for table in tables:
    for name, value in table.items():
      is_table = isinstance(value, dict) and isinstance(union.get(name), dict)
      union[name] = merged(union[name], value) if is_table else value
  return union


def at_size(about: About, size: str) -> dict[str, Any]:
  """An artefact with the entries that differ at a size."""
  return merged(about, about.get(size, {}))


def cells(about: About, choices: GridChoices) -> dict[Key, Recipe]:
  """A run or a call for each row, column and third part of an artefact."""
  entries = at_size(about, choices.size)
  recipes = _cells(entries, choices)
  for replacements in entries.get("also", {}).values():
    recipes |= _cells(merged(entries, replacements), choices)
  return recipes


def _cells(about: About, choices: GridChoices) -> dict[Key, Recipe]:
  declared = about.get("calls", about)
  axes = ("rows", "columns", "thirds")
  axes = [declared[axis] for axis in axes if axis in declared]
  keys = [key[::-1] for key in itertools.product(*reversed(axes))]
  if "calls" in about:
    return {key: _call_of(declared, key) for key in keys}
  skip = about.get("skip", [])
  return {key: _run(about, key, choices) for key in keys if [*key] not in skip}


def _call_of(declared: About, key: Key) -> Computed:
  labels = declared.get("labels", {})
  of_key = [labels.get(part, {}) for part in (*key, ", ".join(key))]
  options = merged(declared.get("options", {}), *of_key)
  return Computed(_function(declared["function"]), options)


def _run(about: About, key: Key, choices: GridChoices) -> RunOf:
  of_parts = lambda name: [
    flag for part in reversed(key) for flag in about.get(name, {}).get(part, [])
  ]
  of_all = lambda preset: sorted(
    [*preset, *about.get("flags", []), *of_parts("labels")],
    key=lambda flag: not flag.startswith("--flagfile"),
  )
  preset, best = about.get("preset", []), []
  if tune := for_row(about.get("tune", []), key[0]):
    best = choices.best(*of_all(preset), *tune)
  flags = [*of_all(of_parts("elsewhere") or preset), *best]
  return RunOf((*flags, *about.get("report", []), *of_parts("reported")))


def for_row(declared: Mapping[str, list] | list, row: str) -> list[str]:
  """The value for a row, declared for all rows or by row."""
  return declared.get(row, []) if isinstance(declared, Mapping) else declared


def keep(about: About, run: Run) -> RecordedParts:
  """The metrics that an artefact declares, of all points."""
  del run
  return RecordedParts(
    about.get("keep", ["test_accuracy"]), last=about.get("keep_last")
  )


def blocks(about: About, records: Records) -> list[Block]:
  """The tables, pictures and claims that an artefact declares."""
  records = expanded(about, records)
  tables = [
    views.table(table, records, _numbers_beside(table))
    for table in (about | {"title": ""} | t for t in about.get("tables", []))
  ]
  pictures = [
    views.picture(about | declared, _in_columns(declared, records))
    for declared in about.get("pictures", [])
  ]
  shown_blocks = [block for block in (*tables, *pictures) if block is not None]
  return [*shown_blocks, *declared_claims.claims(about, records)]


def _in_columns(declared: About, records: Records) -> Records:
  """The records in the columns of a picture, if it has columns of its own."""
  if "columns" not in declared:
    return records
  return {k: r for k, r in records.items() if k[1] in declared["columns"]}


def _numbers_beside(about: About) -> dict[Key, str]:
  """The paper's numbers that a declared table shows beside ours."""
  name = about.get("paper_numbers")
  return {} if name is None else paper_numbers(about, name)


def paper_numbers(about: About, name: str) -> dict[Key, str]:
  """(row, column) -> the number in a table of the paper."""
  table = about["numbers"][name]
  return {
    (row, column): number
    for row, line in table.items()
    if row != "columns"
    for column, number in zip(table["columns"], line.split(", "), strict=True)
  }


def expanded(about: About, records: Records) -> Records:
  """Records of single points, with their hyperparameters in the keys."""
  if "expand" not in about:
    return records
  by_setting = {}
  for key, record in records.items():
    names = for_row(about["expand"], key[0])
    for values in dict.fromkeys(
      tuple(point[name] for name in names) for point in record.points
    ):
      first, *texts = (f"{value:g}" for value in values)
      labels = (f"{n} = {v}" for n, v in zip(names[1:], texts, strict=True))
      of_setting = record.where(**dict(zip(names, values, strict=True)))
      by_setting[first, ", ".join((key[0], *labels)), *key[1:]] = of_setting
  return by_setting
