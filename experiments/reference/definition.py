"""What a reference comparison consists of, as its TOML file says."""

import contextlib
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.specification.choice_flags import CHOICE_FLAGS
from experiments.specification.spec import FLAGS, not_default
from experiments.stored import store
from experiments.studies import planned_cells
from experiments.studies.labels import labels_of
from experiments.studies.planned_cells import PlannedCell
from experiments.studies.request import Request, content_of, texts_of
from fedjax_opt.base import STREAMS
from fedjax_opt.checks import fields
from fedjax_opt.checks.values import check_word
from fedjax_opt.study import tuning

FOLDER = pathlib.Path(__file__).parent
_TASK = FLAGS["task"].default
_LOCAL_WORK = ("local_steps", "local_epochs")  # Of which one is given.


def _is_folder(name: str, value: Any) -> None:
  check_word(name, value)
  if not re.fullmatch(r"\w[\w.-]*", value):
    raise ValueError(
      f"{name}={value!r}: must be letters, digits, '_', '-' and '.', for it "
      "names a folder"
    )


@fields.checked(
  name=fields.Field(_is_folder),
  title=fields.NAME,
  metric=fields.NAME,
  target=fields.plain_number("(-inf, inf)"),
  scale=fields.mapping_of(
    fields.plain_number("(0, inf)"), "numbers by their flags"
  ),
)
class Condition(NamedTuple):
  """A task and its flags, on which methods are compared.

  Attributes:
    name: the name of its folder of records.
    title: a title for people.
    flags: the flags of all runs, as text.
    metric: the metric by which methods are compared.
    target: value of the metric whose cost is reported, or None.
    scale: hyperparameter -> what its values are multiplied with here.
    named_only: whether only methods run that name it.
  """

  name: str
  title: str
  flags: Mapping[str, Any]
  metric: str = "test_accuracy"
  target: float | None = None
  scale: Mapping[str, float] = {}
  named_only: bool = False


class ReferenceCell(NamedTuple):
  """A cell of the reference.

  Attributes:
    condition: where it is.
    planned: what runs.
    most_extensions: how often its grid may be extended.
  """

  condition: Condition
  planned: PlannedCell
  most_extensions: int

  @property
  def record_key(self) -> dict[str, Any]:
    """What determines the records, except the data.

    The records have the digests of the data themselves.

    Flags that have their default are left out: one that is added later is no
    reason to run again.
    """
    return not_default(self.planned.spec.identity) | {
      "report_seeds": self.planned.design.report_seeds,
      "most_extensions": self.most_extensions,
      "streams": STREAMS,
    }

  @property
  def file(self) -> pathlib.Path:
    """Its records in a folder of records: named by what runs, not its label."""
    spec = self.planned.spec
    words = f"{spec.algorithm.name}-{spec.client.name}"
    name = store.folder_name(words, self.record_key)
    return pathlib.Path(self.condition.name, f"{name}.jsonl.gz")


@fields.checked(
  title=fields.NAME,
  settings=fields.integer(1),
  report_seeds=fields.integer(1),
  most_extensions=fields.integer(0),
)
class Reference(NamedTuple):
  """A reference comparison.

  Attributes:
    name: the name of its file.
    records: folder of its published records, beside the file.
    title: a title for people.
    settings: that each tuned method tries under each condition.
    report_seeds: how many fresh seeds.
    most_extensions: how often a grid may be extended.
    conditions: the conditions, in the order in which they run.
    methods: for each its flags as text, `label` and perhaps `conditions`.
    flags: the flags of all runs, as text.
  """

  name: str
  records: pathlib.Path
  title: str
  settings: int
  report_seeds: int
  most_extensions: int
  conditions: list[Condition]
  methods: list[dict[str, Any]]
  flags: dict[str, Any]

  def cells(
    self,
    methods: Sequence[Mapping[str, Any]],
    data_dir: str | None = None,
    budget: str = "equal",
  ) -> list[ReferenceCell]:
    """The cells of some methods, condition after condition.

    Args:
      methods: which; each runs under the conditions that it names, or under
        all that are not for named methods only.
      data_dir: folder of the data.
      budget: 'equal' or 'unequal' numbers of settings.

    Raises:
      ValueError: naming the invalid flag.
    """
    cells = []
    for condition in self.conditions:
      entrants = [_scaled(m, condition) for m in methods if _runs(m, condition)]
      flags = {**self.flags, **condition.flags}
      fixed_names = {*flags}
      if not fixed_names.isdisjoint(_LOCAL_WORK):
        fixed_names.update(_LOCAL_WORK)
      task = CHOICE_FLAGS["task"].entry(flags.setdefault("task", _TASK))
      if data_dir and "data_dir" in task.takes:
        flags["data_dir"] = data_dir
      # Metrics are those of the server's model, and all train on the same data.
      if planned_cells.any_personal(entrants):
        flags.setdefault("select_on", task.splits[0])
        flags.setdefault("client_test_fraction", 0.0)
      request = Request(
        methods=tuple(entrants),
        flags=flags,
        report_seeds=self.report_seeds,
        budget=budget,
      )
      cells_here = planned_cells.plan(request, fixed_names) if entrants else ()
      for planned in cells_here:
        if budget == "equal":
          number = tuning.num_settings(planned.grid)
          sizes = {planned.method: number, "the reference": self.settings}
          tuning.check_equal(sizes, "--budget=unequal")
        cells.append(ReferenceCell(condition, planned, self.most_extensions))
    return cells


def _runs(method: Mapping[str, Any], condition: Condition) -> bool:
  """Whether a method runs under a condition."""
  named = method.get("conditions")
  if named is None:
    return not condition.named_only
  return condition.name in named.split(",")


def _scaled(method: Mapping[str, Any], condition: Condition) -> dict[str, Any]:
  """The method's flags, its grids in the size that the condition needs."""
  flags = {name: v for name, v in method.items() if name != "conditions"}
  for name, factor in condition.scale.items():
    if name in flags:
      # What is no number is refused as it is, where cells are planned.
      with contextlib.suppress(ValueError):
        values = [float(v) * factor for v in str(flags[name]).split(",")]
        flags[name] = ",".join(f"{value:.6g}" for value in values)
  return flags


def read(name: str) -> Reference:
  """Reads the file of a reference.

  Args:
    name: a file of this folder, without its ending; or the path of another.

  Raises:
    ValueError: if there is none, or it is not as it must be.
  """
  named_file = FOLDER / f"{name}.toml"
  file = named_file if named_file.exists() else pathlib.Path(name)
  if not file.exists():
    names = ", ".join(sorted(path.stem for path in FOLDER.glob("*.toml")))
    raise ValueError(
      f"reference={name!r}: must be one of {names}, or the path of a TOML file"
    )
  content = content_of("reference", str(file))
  texts = lambda table: texts_of("reference", str(file), table)
  try:
    conditions = [
      _made(Condition, {"title": table["name"]} | table, texts)
      for table in _tables(content, "condition", "name")
    ]
    methods = [texts(item) for item in _tables(content, "method", "algorithm")]
    attributes = {"name": file.stem, "records": file.with_suffix("")}
    attributes |= {"conditions": conditions, "methods": methods}
    reference = _made(Reference, content, texts, **attributes)
  except (ValueError, TypeError) as error:
    raise ValueError(f"reference={name!r}: {error}") from None
  return named(reference)


def _tables(
  content: dict[str, Any], name: str, needed: str
) -> list[dict[str, Any]]:
  """Takes the tables of a name, which must have an entry, out of a file."""
  tables = content.pop(name, None)
  is_list = isinstance(tables, list) and len(tables)
  if not is_list or not all(isinstance(table, dict) for table in tables):
    raise ValueError("must have tables [[condition]] and [[method]]")
  for table in tables:
    if needed not in table:
      raise ValueError(f"{needed} is missing")
  return tables


def _made(
  kind: type[Any],
  table: Mapping[str, Any],
  texts: Callable[[Mapping[str, Any]], dict[str, Any]],
  **attributes: Any,
) -> Any:
  """A record made of a table; entries that are no fields of it are flags."""
  names = {*kind._fields} - {"flags", *attributes}
  entries = {name: value for name, value in table.items() if name in names}
  if lacking := sorted(names - {*entries, *kind._field_defaults}):
    raise ValueError(f"{lacking[0]} is missing")
  flags = texts({name: v for name, v in table.items() if name not in entries})
  return kind(**entries, **attributes, flags=flags)


def named(reference: Reference) -> Reference:
  """The reference, in which each method has its label.

  A label then is the same under all conditions, and whoever runs beside it.

  Raises:
    ValueError: if a name is there twice, or is that of no condition.
  """
  labels = labels_of(reference.methods)
  names = [condition.name for condition in reference.conditions]
  for name in names:
    if names.count(name) > 1:
      raise ValueError(f"reference={reference.name!r}: {name!r} is there twice")
  for method in reference.methods:
    for name in method.get("conditions", names[0]).split(","):
      if name not in names:
        raise ValueError(
          f"reference={reference.name!r}: method {method['algorithm']}: "
          f"conditions={name}: must be among {', '.join(names)}"
        )
  methods = [
    {**method, "label": label}
    for method, label in zip(reference.methods, labels, strict=True)
  ]
  return reference._replace(methods=methods)
