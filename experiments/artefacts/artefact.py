"""An artefact: a table, a figure or a theorem of a paper, made again.

It says which runs it is made of (`cells`) and what is shown of them (`blocks`).
All else is the same for all artefacts. Artefacts share runs, because runs are
identified by their flags alone.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.artefacts.blocks import Block
from experiments.command_line import parser
from experiments.command_line.flag_words import argument
from experiments.specification.resolve import resolve
from experiments.specification.spec import Spec
from experiments.stored import store
from experiments.stored.records import Record, RecordedParts
from fedjax_opt import Run
from fedjax_opt.files import json_files
from fedjax_opt.study import words

# Origin of an artefact -> the same in words.
ORIGINS = {
  "paper": "tables and figures of the paper",
  "theorem": "theorems",
  "ours": "not in the paper",
}

SIZES = ("smoke", "cpu", "paper")  # Those of runs, from small to large.

Key = tuple[str, ...]  # The key of a cell: its row, its column, ...
Records = Mapping[Key, Record]  # The records of cells; some may be missing.
Entries = Mapping[str, Any]  # What a file declares of an artefact.


class RunOf(NamedTuple):
  """A cell that is one run of `experiments.run`, with all its points.

  Attributes:
    arguments: its flags, except the folder and `--data_dir`.
  """

  arguments: tuple[str, ...]

  @property
  def identity(self) -> Mapping[str, Any]:
    """All on which its results depend; do not change it."""
    return spec_of(self.arguments).identity

  @property
  def name(self) -> str:
    """The name of its folder."""
    return store.run_name(spec_of(self.arguments))


class Computed(NamedTuple):
  """A cell that is one call of a function.

  Attributes:
    function: `(**options) -> History, points`; at the top level of a module, so
      that it can be found by its name.
    options: values that JSON has.
  """

  function: Callable[..., Any]
  options: Mapping[str, Any]

  @property
  def identity(self) -> Mapping[str, Any]:
    """All on which its results depend, but the function."""
    return json_files.to_json(self.options)

  @property
  def name(self) -> str:
    """The name of its folder.

    It has a digest, also of the function's module: if the function moves, its
    records are no longer found. 1 was a version, which all records have.
    """
    name = self.function.__qualname__
    place = {"function": f"{self.function.__module__}.{name}", "version": 1}
    return store.folder_name(name, place | self.options)


Recipe = RunOf | Computed  # What makes a cell.


@dataclasses.dataclass
class GridChoices:
  """The grids that an artefact looks up while it lists its cells.

  Attributes:
    size: one of `SIZES`.
    chosen: flags of a grid -> the setting that it chose, by name; None if all
      its points diverged.
    grids: flags of the grids that `best` was called with.
  """

  size: str
  chosen: Mapping[tuple[str, ...], Mapping | None] = dataclasses.field(
    default_factory=dict
  )
  grids: list[tuple[str, ...]] = dataclasses.field(default_factory=list)

  def best(self, *arguments: str) -> tuple[str, ...]:
    """The flags of the setting that a grid chooses, by its `--select_on`.

    If the grid has not run yet, or all its points diverged, these are the flags
    of its first setting.
    """
    if arguments not in self.grids:
      self.grids.append(arguments)
    grid = grid_of(arguments)
    setting = self.chosen.get(arguments) or {n: v[0] for n, v in grid.items()}
    return tuple(argument(n, words.all_digits(setting[n])) for n in grid)


def rows_named(entries: Entries, rows: str | Sequence[str]) -> Sequence[str]:
  """The rows, or the rows of the group that has this name."""
  return entries["groups"][rows] if isinstance(rows, str) else rows


@functools.cache
def spec_of(arguments: tuple[str, ...]) -> Spec:
  """The specification of a cell's flags; read only once.

  Raises:
    ValueError: naming the invalid flag.
  """
  return resolve(parser.parse(["run", *arguments]))


def grid_of(arguments: Sequence[str]) -> dict[str, list[float]]:
  """Flag -> values, for hyperparameters with several values."""
  grid = spec_of(tuple(arguments)).grid
  return {name: values for name, values in grid.items() if len(values) > 1}


@dataclasses.dataclass(frozen=True)
class Artefact:
  """A table, a figure or a theorem.

  Attributes:
    name: 'domo/table1': the folder of the paper, and what the paper calls it.
    title: what it shows, in one line.
    setting: the paper's setting, in one line.
    recipes: `choices -> {key of a cell: its recipe}`.
    blocks: `records -> [block]`; `records` has at least one cell.
    keep: function from a run to what of it is recorded.
    sizes: the sizes that it has. An artefact whose data or network is too large
      for CPUs has no `cpu`.
    origin: one of `ORIGINS`.
    needs: the hardware that it needs, if a few cores are not enough; else ''.
  """

  name: str
  title: str
  setting: str
  recipes: Callable[[GridChoices], dict[Key, Recipe]]
  blocks: Callable[[Records], list[Block]]
  keep: Callable[[Run], RecordedParts]
  sizes: tuple[str, ...] = SIZES
  origin: str = "paper"
  needs: str = ""

  @property
  def paper(self) -> str:
    """The folder of the paper."""
    return self.name.split("/")[0]

  @property
  def own_name(self) -> str:
    """The paper's name for it, as in the names of its files."""
    return self.name.split("/")[1]
