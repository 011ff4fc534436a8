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
  numbers         tables of the paper, by name, for other entries to refer to.
                  Each has `columns`, and for each row one text: its numbers,
                  with commas between

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
  elsewhere       part of a key -> flags that replace `preset` in the cell. The
                  grid of `tune` keeps `preset`
  also            further cells: a table of entries that replace those above
                  for these cells

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
                  lists of tables, see `TableDeclaration` and
                  `PictureDeclaration` in views.py
  claims          a list of tables, see declared_claims.py

`blocks` and `keep` may also name a function, as `calls` does, for what these
entries cannot declare: `blocks(entries, records) -> blocks` and `keep(entries,
run) -> RecordedParts`. `own` lists the further entries that these functions
read. All other entries are refused.
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
  Computed,
  Entries,
  GridChoices,
  Key,
  Recipe,
  Records,
  RunOf,
  rows_named,
)
from experiments.artefacts.blocks import Block
from experiments.artefacts.declared_claims import ClaimDeclaration, Comparison
from experiments.artefacts.views import PictureDeclaration, TableDeclaration
from experiments.stored.records import RecordedParts
from fedjax_opt import Run
from fedjax_opt.checks.values import nearest
from fedjax_opt.study import words

_EXPERIMENTS = pathlib.Path(__file__).parents[1]


def _entries(words: str, **inner: Mapping) -> dict[str, Mapping | None]:
  """Entries that a table may have; some are tables, or lists of tables."""
  return dict.fromkeys(words.split()) | inner


_CALLS = _entries("function rows columns thirds options labels")
_CELLS = _entries(
  "rows columns thirds skip preset flags labels report reported elsewhere tune",
  calls=_CALLS,
)
_AT_SIZE = _CELLS | {"also": _CELLS}
_COMPARISON = dict.fromkeys(Comparison._fields)
_CLAIM = dict.fromkeys(ClaimDeclaration._fields) | {"parts": _COMPARISON}
_ARTEFACT = (
  _AT_SIZE
  | dict.fromkeys(SIZES, _AT_SIZE)
  | _entries(
    "title setting sizes origin needs like groups numbers blocks keep "
    "keep_last own expand titles corner",
    tables=dict.fromkeys(TableDeclaration._fields),
    pictures=dict.fromkeys(PictureDeclaration._fields),
    claims=_COMPARISON | _CLAIM,
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
    entries = merged(common, _completed(content, table))
    known = dict.fromkeys(entries.get("own", ())) | _ARTEFACT
    _check(f"{str(file)!r}: {name}", entries, known)
    artefacts.append(_artefact(f"{paper}/{name}", entries))
  return artefacts


def _check(where: str, entries: Entries, known: Mapping[str, Any]) -> None:
  """Checks all entries, as a misspelt one would silently be nothing."""
  for name, value in entries.items():
    if name not in known:
      matches = nearest(name, known)
      hint = f"; did you mean {matches[0]}?" if matches else ""
      raise ValueError(f"{where}: has no entry {name!r}{hint}")
    if inner := known[name]:
      for table in value if isinstance(value, list) else [value]:
        _check(f"{where}.{name}", table, inner)


def _completed(content: Entries, table: Entries) -> Entries:
  """An artefact, completed by the entries of another that it is `like`."""
  like = table.get("like")
  return merged(_completed(content, content[like]), table) if like else table


def _artefact(name: str, entries: Entries) -> Artefact:
  def function(part: str, default: Callable) -> Callable:
    declared = entries.get(part)
    if isinstance(declared, str):
      return lambda argument: _function(declared)(entries, argument)
    return functools.partial(default, entries)

  return Artefact(
    name,
    entries["title"],
    entries["setting"],
    functools.partial(recipes, entries),
    function("blocks", blocks),
    function("keep", keep),
    tuple(entries.get("sizes", SIZES)),
    entries.get("origin", "paper"),
    entries.get("needs", ""),
  )


def _function(place: str) -> Callable:
  """A function of a paper's module, which is imported only now."""
  module, _, name = place.partition(":")
  return getattr(importlib.import_module(f"experiments.{module}"), name)


def merged(*tables: Entries) -> dict[str, Any]:
  """Joins tables: later values replace earlier ones; inner tables are merged"""
  union: dict[str, Any] = {}
  for table in tables:
    for name, value in table.items():
      is_table = isinstance(value, dict) and isinstance(union.get(name), dict)
      union[name] = merged(union[name], value) if is_table else value
  return union


def at_size(entries: Entries, size: str) -> dict[str, Any]:
  """An artefact with the entries that differ at a size."""
  return merged(entries, entries.get(size, {}))


def recipes(entries: Entries, choices: GridChoices) -> dict[Key, Recipe]:
  """A run or a call for each row, column and third part of an artefact."""
  here = at_size(entries, choices.size)
  also = _recipes(merged(here, here["also"]), choices) if "also" in here else {}
  return _recipes(here, choices) | also


def _recipes(entries: Entries, choices: GridChoices) -> dict[Key, Recipe]:
  declared = entries.get("calls", entries)
  axes = ("rows", "columns", "thirds")
  axes = [declared[axis] for axis in axes if axis in declared]
  keys = [key[::-1] for key in itertools.product(*reversed(axes))]
  if "calls" in entries:
    return {key: _call_of(declared, key) for key in keys}
  keys = [key for key in keys if [*key] not in entries.get("skip", [])]
  return {key: _run(entries, key, choices) for key in keys}


def _call_of(declared: Entries, key: Key) -> Computed:
  labels = declared.get("labels", {})
  of_key = [labels.get(part, {}) for part in (*key, ", ".join(key))]
  options = merged(declared.get("options", {}), *of_key)
  return Computed(_function(declared["function"]), options)


def _run(entries: Entries, key: Key, choices: GridChoices) -> RunOf:
  of_parts = lambda name: [
    flag
    for part in reversed(key)
    for flag in entries.get(name, {}).get(part, [])
  ]
  of_all = lambda preset: sorted(
    [*preset, *entries.get("flags", []), *of_parts("labels")],
    key=lambda flag: not flag.startswith("--flagfile"),
  )
  preset, best = entries.get("preset", []), []
  if tune := for_row(entries.get("tune", []), key[0]):
    best = choices.best(*of_all(preset), *tune)
  flags = [*of_all(of_parts("elsewhere") or preset), *best]
  return RunOf((*flags, *entries.get("report", []), *of_parts("reported")))


def for_row(declared: Mapping[str, list] | list, row: str) -> list[str]:
  """The value for a row, declared for all rows or by row."""
  return declared.get(row, []) if isinstance(declared, Mapping) else declared


def keep(entries: Entries, run: Run) -> RecordedParts:
  """The metrics that an artefact declares, of all points."""
  del run
  return RecordedParts(
    entries.get("keep", ["test_accuracy"]), last=entries.get("keep_last")
  )


def blocks(entries: Entries, records: Records) -> list[Block]:
  """The tables, pictures and claims that an artefact declares."""
  records = expanded(entries, records)
  tables = [
    views.table(_view(TableDeclaration, entries, own), records)
    for own in entries.get("tables", [])
  ]
  pictures = [
    views.picture(
      _view(PictureDeclaration, entries, own), _in_columns(own, records)
    )
    for own in entries.get("pictures", [])
  ]
  shown_blocks = [block for block in (*tables, *pictures) if block is not None]
  return [*shown_blocks, *declared_claims.claims(entries, records)]


def _view(kind: type[Any], entries: Entries, own: Entries) -> Any:
  """A declared table or picture, with entries of its own or of the artefact."""
  values = {**entries, "title": "", **own}
  values["rows"] = rows_named(entries, values["rows"])
  if "paper_numbers" in own:
    values["paper_numbers"] = paper_numbers(entries, own["paper_numbers"])
  return kind(**{n: v for n, v in values.items() if n in kind._fields})


def _in_columns(own: Entries, records: Records) -> Records:
  """The records in the columns of a picture, if it has columns of its own."""
  if "columns" not in own:
    return records
  return {k: r for k, r in records.items() if k[1] in own["columns"]}


def paper_numbers(entries: Entries, name: str) -> dict[Key, str]:
  """(row, column) -> the number in a table of the paper."""
  table = entries["numbers"][name]
  return {
    (row, column): number
    for row, line in table.items()
    if row != "columns"
    for column, number in zip(table["columns"], line.split(", "), strict=True)
  }


def expanded(entries: Entries, records: Records) -> Records:
  """Records of single points, with their hyperparameters in the keys."""
  if "expand" not in entries:
    return records
  by_setting = {}
  for key, record in records.items():
    names = for_row(entries["expand"], key[0])
    for values in dict.fromkeys(
      tuple(point[name] for name in names) for point in record.points
    ):
      first, *texts = map(words.all_digits, values)
      labels = (f"{n} = {v}" for n, v in zip(names[1:], texts, strict=True))
      of_setting = record.where(**dict(zip(names, values, strict=True)))
      by_setting[first, ", ".join((key[0], *labels)), *key[1:]] = of_setting
  return by_setting
