"""Cells made of the folders of runs that are there."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from experiments.specification import spec
from experiments.studies import planned_cells
from experiments.studies.cell_runs import results_of, with_files
from experiments.studies.planned_cells import CHOICES, PlannedCell, labels_of
from experiments.studies.request import Request
from experiments.studies.store import Store
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.data import digest
from fedjax_opt.results.load import Run, load_run
from fedjax_opt.study.cells import Cell, PointResults

# Parts of a config.json that do not depend on the method.
_OF_NO_METHOD = {n for n, flag in spec.FLAGS.items() if not flag.is_identity}
_OF_NO_METHOD |= {"device", "streams", "versions", "seed", spec.LIMITED}
_OF_NO_METHOD.add(digest.DATA_DIGESTS)
# Flags of a study that say how methods run.
_HOW_METHODS_RUN = (
  "jobs", "executor", "report_seeds", "nested", "crossed", "budget",
)  # fmt: skip


def planned_and_existing(
  request: Request,
) -> tuple[list[PlannedCell], list[Cell]]:
  """The cells that are to run, and cells made of existing runs."""
  if not request.runs:
    return planned_cells.plan(request), []
  runs = load_runs(request.runs)
  if not request.methods:
    changed = request.changed()
    unused = request.flags | {
      n: changed[n] for n in _HOW_METHODS_RUN if n in changed
    }
    if name := next(iter(unused), None):
      raise ValueError(
        f"{name}={unused[name]}: the runs have their own flags; leave {name} "
        "out, or give methods too"
      )
    varied = varied_among([run.config for run in runs])
    return [], cells_of_runs(runs, varied)
  planned, configs = planned_cells.plan(request), [run.config for run in runs]
  # A flag that differs only between planned cells may be a method's own.
  varied = list(planned[0].condition)
  # Defaults that the clients limit count as those of the runs.
  values = [cell.spec.as_limited_in(configs[0]).values() for cell in planned]
  for config in values:
    names = varied_among([*configs, config])
    varied += [name for name in names if name not in varied]
  planned = [
    cell._replace(condition={n: config.get(n) for n in varied})
    for cell, config in zip(planned, values, strict=True)
  ]
  own_labels = [method.get("label") for method in request.methods]
  unlabelled = [cell for cell in planned if cell.method not in own_labels]
  existing = cells_of_runs(runs, varied, unlabelled)
  check_labels(planned, existing)
  return planned, existing


def load_runs(folders: Sequence[str]) -> list[Run]:
  """Runs that are there.

  Raises:
    ValueError: if a folder holds no complete run.
  """
  runs = []
  for folder in folders:
    with reworded_errors(folder="runs"):
      run = load_run(folder)
    if not run.is_complete:
      raise ValueError(
        f"runs={folder!r}: the run did not end; go on with it by --resume"
      )
    runs.append(run)
  return runs


def varied_among(configs: Sequence[Mapping[str, Any]]) -> list[str]:
  """The flags that may be conditions and differ between runs."""
  return [
    name
    for name in spec.conditions()
    if len({str(config.get(name)) for config in configs}) > 1
  ]


def cells_of_runs(
  runs: Sequence[Run],
  varied: Sequence[str],
  planned: Sequence[PlannedCell] = (),
) -> list[Cell]:
  """Cells of existing runs, each with its own choice among its settings.

  Methods are named by the choices of their flags and, if these are the same, by
  other flags that differ.

  Args:
    runs: which.
    varied: flags whose values are the conditions, see `varied_among`.
    planned: cells of the same study that are to run, whose labels are made of
      their flags; a run of one of these methods has its label.

  Raises:
    ValueError: if two runs have the same method and condition.
  """
  by_run = [{n: run.config.get(n) for n in varied} for run in runs]
  labels = _labels(runs, by_run, planned)
  return [
    with_files(Cell(label, condition, *_tuned(run)))
    for run, label, condition in zip(runs, labels, by_run, strict=True)
  ]


def _tuned(run: Run) -> tuple[PointResults | None, PointResults | None]:
  """A run whose best setting is reported with the seeds that chose it."""
  results = results_of(run)
  outcome = results.outcome
  if outcome.budget == 1:
    return None, results
  return results, results.take(outcome.best.points) if outcome.best else None


def _labels(
  runs: Sequence[Run],
  conditions: Sequence[Mapping[str, Any]],
  planned: Sequence[PlannedCell],
) -> list[str]:
  """A label for each run; the same for one method under several conditions.

  A tuned hyperparameter is not in the labels, unless only it tells runs apart.
  """
  configs = [run.config for run in runs]
  configs += [cell.spec.values() for cell in planned]
  texts = [{n: str(v) for n, v in config.items()} for config in configs]
  tuned = {name for text in texts for name, v in text.items() if "[" in v}
  for ignored in (tuned, set()):
    labels = _labels_without(texts, ignored)
    of_planned = zip(labels[len(runs) :], planned, strict=True)
    methods = {label: cell.method for label, cell in of_planned}
    labels = [methods.get(label, label) for label in labels[: len(runs)]]
    cells = list(zip(labels, map(str, conditions), strict=True))
    if len(set(cells)) == len(cells):
      return labels
  i = next(i for i, cell in enumerate(cells) if cell in cells[:i])
  raise ValueError(
    f"runs: {str(runs[cells.index(cells[i])].folder)!r} and "
    f"{str(runs[i].folder)!r} hold the same method under the same conditions; "
    "give one of them"
  )


def _labels_without(
  texts: Sequence[Mapping[str, str]], tuned: Collection[str]
) -> list[str]:
  """Labels made of choices and other flags that differ, without some flags."""
  ignored = {*spec.conditions(), *CHOICES, *tuned, *_OF_NO_METHOD}
  by_run = [
    {n: text[n] for n in CHOICES if n in text}
    | {n: v for n, v in text.items() if n not in ignored and "[" not in v}
    for text in texts
  ]
  # Flags that are the same in all runs do not tell them apart.
  own_flags = [
    {
      name: value
      for name, value in flags.items()
      if name == "algorithm" or any(g.get(name) != value for g in by_run)
    }
    for flags in by_run
  ]
  different = [g for i, g in enumerate(own_flags) if g not in own_flags[:i]]
  # A choice that all runs share is in no label; nor is a default in its place.
  labels = labels_of(different, dict.fromkeys(CHOICES))
  return [labels[different.index(flags)] for flags in own_flags]


def check_labels(
  planned: Sequence[PlannedCell], existing: Sequence[Cell]
) -> None:
  """Checks that no method has the label of a run under the same condition.

  Raises:
    ValueError: naming the label and the run.
  """
  for cell, old in itertools.product(planned, existing):
    if (cell.method, cell.condition) == (old.method, old.condition):
      raise ValueError(
        f"method: the run {str(old.parts[0].run.folder)!r} has the label "
        f"{cell.method!r} too; give the method a label=NAME of its own"
      )


def check_data(
  existing: Sequence[Cell], planned: Sequence[PlannedCell], store: Store
) -> None:
  """Checks that existing runs have the data of all else of their condition.

  The test examples are always the same; all data are, if the seeds and the
  flags that say what they are agree.
  """
  names = [
    name
    for name, flag in spec.all_flags().items()
    if flag.is_identity and flag.group.key in ("task", "data", "selection")
  ]
  found = [
    (cell.condition, f"the run {str(run.folder)!r}", run.config, digests)
    for cell in existing
    for run in [cell.parts[0].run]
    for digests in [run.config.get(digest.DATA_DIGESTS, {})]
  ]
  for cell in planned if existing else ():
    if digests := store.digests_of(cell.spec):
      flags = cell.spec.values()
      found.append((cell.condition, f"method {cell.method}", flags, digests))
  tests = [
    (condition, whose, {"test": digests.get("test")})
    for condition, whose, _, digests in found
  ]
  alike = [
    ((condition, [flags.get(n) for n in ("seed", *names)]), whose, digests)
    for condition, whose, flags, digests in found
  ]
  check_same_data("runs", [*tests, *alike], "give runs on the same data")


def check_same_data(
  where: str, found: Iterable[tuple[Any, str, Mapping[str, Any]]], hint: str
) -> None:
  """Checks that all that must have the same data has them.

  Args:
    where: the flag and the condition, for the message.
    found: for each run what it shares with those that must have its data; what
      it is; and the digests of its data.
    hint: what can be done, for the message.

  Raises:
    ValueError: naming two whose data differ.
  """
  first: dict[str, tuple[str, Mapping[str, Any]]] = {}
  for shared, whose, digests in found:
    other, expected = first.setdefault(str(shared), (whose, digests))
    if words := digest.changed(expected, digests):
      raise ValueError(f"{where}: {whose} has {words} than {other}; {hint}")
