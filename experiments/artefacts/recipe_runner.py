"""Runs the recipes of an artefact: each once, several at a time, none twice."""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.artefacts.artefact import (
  Artefact,
  Computed,
  GridChoices,
  Key,
  Recipe,
  RunOf,
  grid_of,
  spec_of,
)
from experiments.artefacts.blocks import Block
from experiments.processes import executors
from experiments.specification.spec import LIMITED
from experiments.stored import records, store
from experiments.stored.records import Record, RecordedParts
from experiments.stored.store import Store
from fedjax_opt import Run
from fedjax_opt.files import locks
from fedjax_opt.results.outcome import Outcome, outcome_of
from fedjax_opt.results.selection import Criterion

_RECORD = "record.json"  # The record of a computation, in its folder.


@dataclasses.dataclass(frozen=True)
class ArtefactResult:
  """What an artefact consists of at a size.

  Attributes:
    artefact: which.
    size: one of its sizes.
    recipes: key -> recipe, of all its cells.
    cell_records: key -> record, of the cells that have run.
    tuning: flags of a grid -> its record, of the grids that have run.
  """

  artefact: Artefact
  size: str
  recipes: dict[Key, Recipe]
  cell_records: dict[Key, Record]
  tuning: dict[tuple[str, ...], Record]

  @functools.cached_property
  def blocks(self) -> list[Block]:
    """The tables, pictures and claims; [] if nothing ran."""
    return self.artefact.blocks(self.cell_records) if self.cell_records else []

  @property
  def records(self) -> list[Record]:
    """The records of grids, then the records of cells."""
    return [*self.tuning.values(), *self.cell_records.values()]


@dataclasses.dataclass(frozen=True)
class RecipeRunner:
  """Runs recipes, unless they are recorded or their folder has them.

  Attributes:
    folder: folder of all runs; None to run nothing and show what is recorded.
    data_dir: folder of the data, or None.
    jobs: runs at a time; if several, each has one core.
    executor: what runs them instead, see `executors.check`.
    only_found: whether to run nothing, and show what exists.
    pretrained_dir: folder with the folders of pretrained encoders, or None.
  """

  folder: pathlib.Path | None
  data_dir: str | None = None
  jobs: int = 1
  executor: str | None = None
  only_found: bool = False
  pretrained_dir: str | None = None

  @functools.cached_property
  def _store(self) -> Store:
    return Store(self.folder)

  def run(
    self, artefact: Artefact, size: str, recorded: Sequence[Record] = ()
  ) -> ArtefactResult:
    """Runs an artefact, beginning with the grids that choose its settings.

    Args:
      artefact: which.
      size: one of its sizes.
      recorded: records of cells, which are not run again.

    Raises:
      ValueError: naming the invalid flag.
      KeyboardInterrupt: by Ctrl-C or SIGTERM; what is done stays.
      RunFailed: if a run failed, with what it said.
    """
    index = RecordIndex(recorded)
    tuning: dict[tuple[str, ...], Record] = {}
    while True:
      chosen = {grid: choice(record) for grid, record in tuning.items()}
      choices = GridChoices(size, chosen)
      recipes = artefact.recipes(choices)
      grids = {g: RunOf(g) for g in choices.grids if g not in tuning}
      if not grids:
        break
      cell_records = self._records(grids, _of_tuning, index)
      tuning |= cell_records
      # Nothing runs, so the settings of these grids are not chosen.
      if len(cell_records) < len(grids):
        return ArtefactResult(artefact, size, recipes, {}, tuning)
    cell_records = self._records(recipes, artefact.keep, index)
    return ArtefactResult(artefact, size, recipes, cell_records, tuning)

  def _records(
    self,
    recipes: Mapping[Any, Recipe],
    keep: Callable[[Run], RecordedParts],
    index: "RecordIndex",
  ) -> dict[Any, Record]:
    """The records by key; recipes without a record run now."""
    find = lambda recipe: index.find(recipe) or self._stored(recipe, keep)
    by_key = {key: find(recipe) for key, recipe in recipes.items()}
    # Two keys may have the same recipe.
    missing = {recipes[k].name: recipes[k] for k, r in by_key.items() if not r}
    if missing and self.folder and not self.only_found:
      self._run(missing)
      for key, recipe in recipes.items():
        by_key[key] = by_key[key] or self._stored(recipe, keep)
    return {key: record for key, record in by_key.items() if record}

  def _stored(
    self, recipe: Recipe, keep: Callable[[Run], RecordedParts]
  ) -> Record | None:
    """The record that a recipe's folder has; None if it has none."""
    if self.folder is None:
      return None
    if isinstance(recipe, Computed):
      path = self.folder / recipe.name / _RECORD
      return next(iter(records.read(path)), None)
    # A run on other data than it would read now is not found.
    run = self._store.find(spec_of(self.completed(recipe).arguments))
    # Values are rounded as in its file; else ties could be decided otherwise.
    return run and records.as_read(
      records.of_run(run, recipe.arguments, keep(run))
    )

  def _run(self, missing: Mapping[str, Recipe]) -> None:
    """Runs recipes, by folder name."""
    named_recipes = [
      (name, self.completed(recipe))
      for name, recipe in missing.items()
      if not self._lacks_start(recipe)
    ]
    done = executors.map_cells(
      _run_recipe,
      named_recipes,
      self._store,
      self.jobs,
      self.executor,
      self.folder,
    )
    for number, (name, seconds) in enumerate(done, 1):
      print(
        f"{number}/{len(named_recipes)} {name}: {seconds:.0f} s", flush=True
      )

  def _lacks_start(self, recipe: Recipe) -> bool:
    """Whether a recipe's encoder starts from a folder that is not given."""
    start = recipe.identity.get("pretrained")
    if start is None or self.pretrained_dir is not None:
      return False
    print(
      f"  not run, because it starts from {start}: give --pretrained_dir, "
      "the folder that has it",
      flush=True,
    )
    return True

  def completed(self, recipe: Recipe) -> Recipe:
    """The recipe with --data_dir and the folder of its encoder filled in."""
    start = recipe.identity.get("pretrained")
    if start is not None and self.pretrained_dir is not None:
      folder = pathlib.Path(self.pretrained_dir) / start
      flags = [a for a in recipe.arguments if not a.startswith("--pretrained=")]
      recipe = RunOf((*flags, f"--pretrained={folder}"))
    if isinstance(recipe, Computed) or self.data_dir is None:
      return recipe
    if "data_dir" not in spec_of(recipe.arguments).task.entry.takes:
      return recipe
    return RunOf((*recipe.arguments, f"--data_dir={self.data_dir}"))


class RecordIndex:
  """Records, found by the recipe that they belong to."""

  def __init__(self, records: Sequence[Record]):
    """Records of runs and of computations, in the order of preference."""
    self._runs = [record for record in records if record.arguments]
    calls = [record for record in records if not record.arguments]
    self._computed = {record.flags["digest"]: record for record in calls[::-1]}

  def find(self, recipe: Recipe) -> Record | None:
    """The record of a recipe; for a run, one with the same flags."""
    if isinstance(recipe, Computed):
      return self._computed.get(recipe.name)
    spec, of_most = spec_of(recipe.arguments), recipe.identity
    for record in self._runs:
      wanted = of_most
      if limited := record.about.get(LIMITED):
        wanted = spec.as_limited_in({LIMITED: limited} | record.flags).identity
      shared = record.flags.keys() & wanted.keys()
      # Nearly all records end here, before what the other flags mean is known.
      if any(record.flags[name] != wanted[name] for name in shared):
        continue
      if store.other_flags_text(record.flags, wanted) is None:
        return record
    return None


def outcome_of_grid(record: Record) -> Outcome:
  """The outcome of a grid."""
  criterion = Criterion(**record.about["criterion"])
  return outcome_of(record.history, record.points, criterion)


def choice(record: Record) -> dict[str, Any] | None:
  """The setting that a grid chooses; None if all its points diverged."""
  best = outcome_of_grid(record).best
  names = grid_of(record.arguments)
  return best and {name: best.hyperparameters[name] for name in names}


def _of_tuning(run: Run) -> RecordedParts:
  """The metric that its criterion looks at."""
  criterion = Criterion(**run.summary["criterion"])
  last = None if criterion.rule == "best" else criterion.n
  return RecordedParts((criterion.metric,), last=last)


# In a worker, if there are several.


def _run_recipe(
  named_recipe: tuple[str, Recipe], runs: Store
) -> tuple[str, float]:
  """Runs a recipe into its folder; returns its name and the seconds."""
  name, recipe = named_recipe
  start, folder = time.monotonic(), runs.folder / name
  if isinstance(recipe, RunOf):
    runs.run(spec_of(recipe.arguments))
  else:
    with locks.held("output_dir", folder):
      _compute(name, recipe, folder)
  return name, time.monotonic() - start


def _compute(name: str, recipe: Computed, folder: pathlib.Path) -> None:
  """Calls the function of a recipe, and writes what it returned."""
  start = time.monotonic()
  history, points = recipe.function(**recipe.options)
  seconds = time.monotonic() - start
  flags = {"digest": name, "function": recipe.function.__qualname__}
  about = records.about_now(seconds)
  record = Record((), flags | dict(recipe.options), about, points, history)
  folder.mkdir(parents=True, exist_ok=True)
  records.write(folder / _RECORD, [record])
