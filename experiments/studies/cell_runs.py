"""The cells of a study: run now, or read from the folders of existing runs."""

import csv
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.processes import command
from experiments.single_run import extra_metrics, job
from experiments.single_run.loading import Loaded, Loader, is_of_data
from experiments.specification import spec
from experiments.studies.planned_cells import (
  CHOICES,
  PlannedCell,
  labels_of,
  of_method,
)
from experiments.studies.request import Request
from experiments.studies.store import Store
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.checks.values import nearest
from fedjax_opt.data import digest
from fedjax_opt.results.load import Run, load_run
from fedjax_opt.results.metric_names import direction, reported_names
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import sizes
from fedjax_opt.study.cells import Cell, PointResults
from fedjax_opt.study.words import condition_label

# Parts of a config.json that do not depend on the method.
_OF_NO_METHOD = {n for n, flag in spec.FLAGS.items() if not flag.is_identity}
_OF_NO_METHOD |= {"device", "streams", "versions", "seed", spec.LIMITED}
_OF_NO_METHOD.add(digest.DATA_DIGESTS)
# Parts that a report shows, if they are the same in all runs.
_REPORTED = (
  "task", "partition", "alpha", "examples_per_client", "cohort_size",
  "batch_size", "local_epochs", "local_steps", "sampling", "weighting",
  "rounds", "eval_every", "precision", "streams", "versions", "device",
)  # fmt: skip
# What was made of the user's own data, such as which columns were read.
AS_READ = "data as read"

# Cells that are to run.


def check(cells: Sequence[PlannedCell], store: Store, request: Request) -> None:
  """Checks the cells that will run, with their data; compiles nothing.

  Each method and each condition is in a cell that is checked; not each pair of
  them.

  Args:
    cells: which.
    store: store of all runs; cells that it has are not checked again.
    request: of the study; its metric must be measured, and its target and
      effect possible where the default metric is the accuracy.

  Raises:
    ValueError: naming the invalid flag, or the folder of a cell that ran
      on other data.
    ImportError: naming the package to install.
  """
  checked_methods, checked_conditions = set(), set()
  specs = {(cell.method, str(cell.condition)): cell.spec for cell in cells}
  for cell in cells:
    condition = str(cell.condition)
    if store.find(cell.first_run) is not None:
      continue
    if cell.method in checked_methods and condition in checked_conditions:
      continue
    checked_methods.add(cell.method)
    checked_conditions.add(condition)
    prepared = lambda label, of=condition: _prepared(specs[label, of], store)
    methods = {label: () for label, of in specs if of == condition}
    prepared_job = of_method(cell.method, methods, prepared)
    if request.metric:
      names = prepared_job.simulator.metric_names(prepared_job.task.init)
      names += extra_metrics.names_of(prepared_job)
      check_measured(request.metric, cell.method, names)
    if prepared_job.task.has_accuracy:
      request.check_numbers(request.metric or "test_accuracy")


def _prepared(run_spec: spec.Spec, store: Store) -> job.Job:
  """A job with its data."""
  return job.prepare(run_spec, store.loader.load(run_spec))


def check_measured(metric: str, method: str, names: Collection[str]) -> None:
  """Checks that a method measures the metric of the comparison.

  Args:
    metric: its name.
    method: its label.
    names: the metrics that it measures.

  Raises:
    ValueError: if it is not among them.
  """
  if metric in names:
    return
  usual = [n for n in names if direction(n) and "decile" not in n]
  near = nearest(metric, names)
  raise ValueError(
    f"metric={metric!r}: {method} does not measure it; it measures "
    f"{', '.join(usual)}{f'; did you mean {near[0]}?' if near else ''}"
  )


def run_cell(cell: PlannedCell, store: Store) -> tuple[PlannedCell, Cell]:
  """Runs one cell: its grid, then its best setting with fresh seeds."""
  run = lambda *args: _results_of(*store.run(cell.at(*args)))
  ran = _with_files(cell.tune(run))
  # Its data are in memory still, also if the cell has no grid.
  if loaded := _loaded(cell.first_run, store.loader):
    task = loaded.task
    sets = sizes.example_sets(task.validation, task.test)
    ran = dataclasses.replace(ran, sets=sets)
  return cell, ran


def _loaded(run_spec: spec.Spec, loader: Loader) -> Loaded | None:
  """The data of a run; None if they can no longer be read."""
  try:
    return loader.load(run_spec)
  except (OSError, ValueError, ImportError):
    return None


def _results_of(run: Run, was_stored: bool = False) -> PointResults:
  """What a stored run measured."""
  timing = run.summary["timing"]
  return PointResults(
    run.points,
    run.history,
    Criterion(**run.summary["criterion"]),
    timing["compile_seconds"] + timing["run_seconds"],
    was_stored,
    # The models of all cells would fill the memory.
    dataclasses.replace(run, params=None),
  )


def _with_files(cell: Cell) -> Cell:
  """The cell, with what the folders of its runs hold; see `Cell`."""
  runs = [part.run for part in cell.parts]
  # A nested run stores this for one point, not for its first seed's choice.
  has_own = cell.report_runs is not None and not cell.is_nested
  report = cell.report_runs.run if has_own else None
  files = cell.files._replace(
    commands=tuple(dict.fromkeys(map(_command, runs))),
    per_client=_per_client(report),
    step_sizes=_step_sizes(report, cell) if report else {},
    is_verified=all(run.is_verified for run in runs),
  )
  return dataclasses.replace(cell, files=files)


def _command(run: Run) -> str:
  """The command that ran it."""
  lines = (run.folder / "flags.txt").read_text("utf-8").split("\n")
  flags = [line for line in lines if line.startswith("--")]
  return command.line("run", [*flags, f"--output_dir={run.folder}"])


def _per_client(run: Run | None) -> dict[str, np.ndarray]:
  """kind of model -> accuracy of each client on its held-out examples."""
  path = None if run is None else run.folder / "per_client.csv"
  if path is None or not path.exists():
    return {}
  # Not with pandas: no reader of it returns every number exactly in all
  # versions.
  with open(path, encoding="utf-8", newline="") as file:
    header, *rows = csv.reader(file)
  end, number = "_accuracy", lambda cell: float(cell or "nan")
  return {
    name.removesuffix(end): np.array([number(row[i]) for row in rows])
    for i, name in enumerate(header)
    if name.endswith(end)
  }


def _step_sizes(run: Run, cell: Cell) -> dict[str, np.ndarray]:
  """The traces of the first point of the chosen setting, each [R, C, K]."""
  path = run.folder / "traces.npz"
  if not path.exists():
    return {}
  first = run.points.index(cell.report_runs.points[0])
  with np.load(path) as traces:
    return {name: traces[name][first] for name in traces.files}


def setup_of(
  planned: Sequence[PlannedCell], loader: Loader
) -> tuple[dict[str, sizes.ClientSummary], dict[str, str]]:
  """The clients of all conditions, and the sizes of the model and the data.

  Both are empty if data can no longer be read.

  Returns:
    `Study.clients`; and name -> size of what is the same under all conditions.
  """
  clients: dict[str, sizes.ClientSummary] = {}
  all_sizes: list[dict[str, str]] = []
  for cell in planned:
    data_condition = {n: v for n, v in cell.condition.items() if is_of_data(n)}
    label = condition_label(data_condition)
    if label not in clients:
      if not (loaded := _loaded(cell.spec, loader)):
        return {}, {}
      task, of_seed, *_ = loaded
      summary = sizes.client_summary_of(of_seed[cell.spec.seed[0]])
      clients[label] = summary._replace(
        names=task.client_names, labels=task.label_names
      )
      task_sizes = sizes.of_task(task.init, task.validation, task.test)
      notes = {AS_READ: "; ".join(task.notes)} if task.notes else {}
      all_sizes.append(task_sizes | notes)
  size_texts = in_common(all_sizes) | sizes.client_sizes([*clients.values()])
  return clients, size_texts


def in_common(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """The entries that are the same in all mappings; {} if there are none."""
  return {
    name: value
    for name, value in (mappings[0] if mappings else {}).items()
    if all(other.get(name) == value for other in mappings)
  }


def shared_flags(planned: Sequence[PlannedCell]) -> dict[str, Any]:
  """Flags that were given and are the same in all cells."""
  ignored = ("data_dir", "compilation_cache", "seed")
  flags = in_common([cell.given_flags for cell in planned])
  return {n: value for n, value in flags.items() if n not in ignored}


def shared_config(cells: Sequence[Cell]) -> dict[str, Any]:
  """The facts that a reader needs to judge a report, if the runs share them."""
  config = in_common([p.run.config for cell in cells for p in cell.parts])
  return {n: config[n] for n in _REPORTED if config.get(n) is not None}


def metric_of(cells: Sequence[Cell]) -> str:
  """The default metric by which methods are compared.

  It is the metric of the criterion on test examples, if it exists there.
  """
  criterion = cells[0].criterion
  parts = [cell.report_runs or cell.tuning_runs for cell in cells]
  measured = [part.history.metrics for part in parts if part]
  for name in (*reported_names(criterion.metric), criterion.metric):
    if measured and all(name in metrics for metrics in measured):
      return name
  return criterion.metric


# Runs that are there.


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
    _with_files(Cell(label, condition, *_tuned(run)))
    for run, label, condition in zip(runs, labels, by_run, strict=True)
  ]


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


def _tuned(run: Run) -> tuple[PointResults | None, PointResults | None]:
  """A run whose best setting is reported with the seeds that chose it."""
  results = _results_of(run)
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
