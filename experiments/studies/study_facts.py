"""What a report says of a whole study: its facts, sizes and clients."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.processes import command
from experiments.single_run.loading import Loader, is_of_data
from experiments.specification import spec as specs
from experiments.specification.choice_flags import CHOICE_FLAGS
from experiments.specification.spec import FLAGS
from experiments.studies.cell_runs import loaded_data
from experiments.studies.labels import CHOICES
from experiments.studies.planned_cells import PlannedCell
from experiments.studies.request import Request
from fedjax_opt.results.metric_names import reported_names
from fedjax_opt.results.names import name_of
from fedjax_opt.study import sizes, words
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.study import Study
from fedjax_opt.study.words import condition_label

# Parts that a report shows, if they are the same in all runs.
_REPORTED = (
  "task", "partition", "alpha", "examples_per_client", "cohort_size",
  "batch_size", "local_epochs", "local_steps", "sampling", "weighting",
  "rounds", "eval_every", "precision", "streams", "versions", "device",
)  # fmt: skip
# Groups in whose flags methods may differ.
_GROUPS_OF_METHODS = ("client", "privacy", "messages", "rounds", "time")
# What was made of the user's own data, such as which columns were read.
AS_READ = "data as read"


def study_of(
  request: Request,
  argv: Sequence[str],
  planned: Sequence[PlannedCell],
  existing: Sequence[Cell],
  done: Sequence[Cell],
  loader: Loader,
) -> Study:
  """The study of all cells, in the order in which they were asked for."""
  key = lambda cell: (cell.method, str(dict(cell.condition)))
  places = {key(cell): number for number, cell in enumerate(planned)}
  clients, size_texts = setup_of(planned, loader)
  cells = [*existing, *sorted(done, key=lambda cell: places[key(cell)])]
  return Study(
    tuple(cells),
    request.metric or metric_of(cells),
    title=request.title or _title(request),
    target=request.target,
    about=_shared_facts(planned, cells, size_texts),
    command=command.line("compare", argv[1:]),
    notes=(
      *difference_notes(planned),
      *privacy_notes(planned, existing),
    ),
    clients=clients,
    min_effect=request.min_effect,
  )


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


def _title(request: Request) -> str:
  task = request.flags.get("task", "digits" if request.methods else "runs")
  return f"Study: {_named(task)}"


def _named(value: Any) -> str:
  """The names of choices for people, separated by commas."""
  return ", ".join(name_of(name.strip()) for name in str(value).split(","))


def _shared_facts(
  planned: Sequence[PlannedCell],
  cells: Sequence[Cell],
  size_texts: Mapping[str, str],
) -> dict[str, Any]:
  """What all cells share, for the report."""
  shared = shared_config(cells)
  if planned:
    shared |= shared_flags(planned)
    is_tuned = any(cell.grid for cell in planned)
    shared |= planned[0].design.facts(is_tuned)
  if any("examples of a client" in name for name in size_texts):
    shared.pop("examples_per_client", None)
  # Choices stand first, and are said by name.
  named = {n: _named(v) for n, v in shared.items() if n in CHOICE_FLAGS}
  return named | size_texts | shared | named


def shared_flags(planned: Sequence[PlannedCell]) -> dict[str, Any]:
  """Flags that were given and are the same in all cells."""
  ignored = ("data_dir", "compilation_cache", "seed")
  flags = in_common([cell.given_flags for cell in planned])
  return {n: value for n, value in flags.items() if n not in ignored}


def shared_config(cells: Sequence[Cell]) -> dict[str, Any]:
  """The facts that a reader needs to judge a report, if the runs share them."""
  config = in_common([p.run.config for cell in cells for p in cell.parts])
  return {n: config[n] for n in _REPORTED if config.get(n) is not None}


def in_common(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """The entries that are the same in all mappings; {} if there are none."""
  return {
    name: value
    for name, value in (mappings[0] if mappings else {}).items()
    if all(other.get(name) == value for other in mappings)
  }


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
      if not (loaded := loaded_data(cell.spec, loader)):
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


def difference_notes(planned: Sequence[PlannedCell]) -> list[str]:
  """Sentences on flags that differ between methods, and are in no label.

  A method may have its own cohort or local steps; then it works more or less
  than the others in a round. Or it alone compresses messages, or has a schedule
  of its rate.
  """
  first_cells = [c for c in planned if c.condition == planned[0].condition]
  given = {name for cell in first_cells for name in cell.given_flags}
  names = dict.fromkeys(specs.conditions()) | {
    name: None
    for name, flag in FLAGS.items()
    if name in given - {*CHOICES} and flag.group.key in _GROUPS_OF_METHODS
  }
  options = {}
  for cell in first_cells:
    values = cell.spec.values()
    options[cell.method] = {name: values.get(name) for name in names}
  return list(words.differing_options(options).values())


def privacy_notes(
  planned: Sequence[PlannedCell], existing: Sequence[Cell] = ()
) -> list[str]:
  """The sentence on methods whose noise can be computed again, if any.

  Args:
    planned: the cells of a study that run.
    existing: cells of runs that were there before.
  """
  seeded = [c.method for c in planned if c.spec.dp_seed is not None]
  seeded += [
    cell.method
    for cell in existing
    if any(part.run.config.get("dp_seed") is not None for part in cell.parts)
  ]
  labels = dict.fromkeys(map(words.quoted_if_list, seeded))
  if not labels:
    return []
  return [
    f"NOT private: {words.listed(list(labels))}, whose noise comes from "
    "dp_seed, so it can be computed again and removed."
  ]
