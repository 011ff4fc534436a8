"""The request for a study: from the command line, a file, or both."""

import dataclasses
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.command_line import flag_words, parser
from experiments.specification import spec as specs
from experiments.specification.choice_flags import MAX_ITEMS
from experiments.specification.flag import (
  Flag,
  Group,
  check_fields,
  flags_of,
  kinds_of,
)
from fedjax_opt.checks import fields, memory
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.files.folders import user_path
from fedjax_opt.registry import meanings
from fedjax_opt.results.metric_names import check_has_direction
from fedjax_opt.study.tuning import BUDGETS
from fedjax_opt.study.verdicts import check_min_effect, check_target

# Flags of a run that a study sets itself, or cannot have.
ONLY_OF_A_RUN = (
  "resume", "target_accuracy", "patience",
  "cluster", "coordinator", "num_processes", "process_id",
)  # fmt: skip

_STUDY = Group("study", "Study", "the flags that only a study has")
_COUNT = fields.integer(1, most=MAX_ITEMS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
  """A study that was asked for.

  Attributes:
    methods: A method, as 'ALGORITHM [flag=value ...] [label=NAME]'; give as
      many as there are.
    flags: flags that all methods share, by name; conditions are comma lists.
    output_dir: folder of the study, or None.
    progress: whether it shows its progress.
    track: the tracker that logs its cells, or None.
    study: All of this from a TOML file: flags by name, lists for several
      values, and a table [[method]] for each method. Flags of the command line
      replace those of the file.
    runs: Folders of existing runs, separated by commas. The flags in which they
      differ make the methods and the conditions.
    reference: A reference comparison: NAME.toml of the folder
      experiments/reference, or the path of such a file. The methods run under
      its conditions, with its budget and seeds, and are placed among the
      recorded methods. Without --method, all cells without a record run. It
      takes only these other flags: --output_dir, --data_dir, --jobs, --executor
      and --budget.
    jobs: Cells at a time, each on one core.
    executor: Other machines run the cells: dask:HOST:PORT, workers of a Dask
      scheduler; or submitit:slurm,NAME=VALUE,..., jobs of Slurm with these
      parameters of submitit. All machines must see the same folders.
    report_seeds: Fresh seeds of the report. Default: 10.
    nested: Repeat tuning with each seed of the report: the whole grid runs with
      these seeds, and each seed gets the setting that is best by its own score.
      The intervals then include the luck of the choice. --seed only says which
      seeds are not used.
    crossed: Show how much of the spread of results comes from the choice of the
      setting, the partition and the seed. For this table alone, the whole grid
      also runs on N new partitions, on each with N new seeds. Default: no such
      table.
    budget: equal: all methods that are tuned must try the same number of
      settings. unequal: they need not.
    metric: The metric by which methods are compared. Default: test_accuracy, or
      the task's own metric.
    min_effect: Smallest difference of interest, in the metric's unit (0.01 is a
      point of accuracy). A method that is behind the best by less is not called
      worse. Default: 0.005 for accuracies, 0 for other metrics.
    seeds_needed: Run nothing. Say how many seeds find a difference of this
      size, in the metric's unit, with 80 % power at the level of Holm's first
      step. The spread is that of the study in --output_dir.
    target: Also report the cost of reaching this value of the metric.
    title: Title of the report.
  """

  methods: tuple[dict[str, Any], ...]
  flags: dict[str, Any]
  output_dir: str | None = None
  progress: bool = True
  track: str | None = None
  study: str | None = _STUDY.option()
  runs: Sequence[str] = _STUDY.option((), type=flag_words.names)
  reference: str | None = _STUDY.option()
  jobs: int = _STUDY.option(1, field=_COUNT)
  executor: str | None = _STUDY.option()
  report_seeds: int | None = _STUDY.option(field=_COUNT)
  nested: bool = _STUDY.option(False)
  crossed: int | None = _STUDY.option(field=fields.integer(2, most=MAX_ITEMS))
  budget: str = _STUDY.option("equal", field=fields.one_of(*BUDGETS))
  metric: str | None = _STUDY.option()
  min_effect: float | None = _STUDY.option(
    field=fields.plain_number(
      "[0, inf)", "a difference of two values of the metric, not below 0"
    )
  )
  seeds_needed: float | None = _STUDY.option(
    field=fields.plain_number(
      "(0, inf)",
      "a difference above 0, in the metric's unit, such as 0.01 for a point of "
      "accuracy",
    )
  )
  target: float | None = _STUDY.option(
    field=fields.plain_number("(-inf, inf)", "a finite number")
  )
  title: str | None = _STUDY.option()

  def __post_init__(self):
    check_fields(self, OF_STUDY)
    if self.metric:
      check_has_direction(self.metric)
    if self.seeds_needed is None:
      return
    if self.output_dir is None:
      raise ValueError(
        f"seeds_needed={self.seeds_needed:g}: needs output_dir, the stored "
        "study whose spread counts"
      )
    if self.reference is not None:
      raise ValueError(
        f"seeds_needed={self.seeds_needed:g}: is about a stored study; leave "
        "reference out"
      )

  def changed(self) -> dict[str, Any]:
    """The fields that are not at their defaults, by name."""
    return {
      field.name: value
      for field in dataclasses.fields(self)
      if (value := getattr(self, field.name)) != field.default
    }

  def check_numbers(self, metric: str) -> None:
    """Checks that the metric can have such a target and effect."""
    check_min_effect(self.min_effect, metric)
    check_target(self.target, metric)


_HELPS = meanings(Request)
# The flags of a study, beside those of a run; --method is one of `methods`.
FLAGS = {"method": Flag(_STUDY, None, str, _HELPS["methods"])}
FLAGS |= flags_of(Request, _HELPS)
# Flags of the whole study, not of one method.
OF_STUDY = FLAGS | {
  name: specs.FLAGS[name] for name in ("output_dir", "progress", "track")
}


def read_request(argv: Sequence[str], intro: str) -> Request:
  """Reads a command line, and the file that `--study` names.

  A flag of the command line replaces the same flag of the file.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
    SystemExit: after `--help`, `--list` or `--version`.
  """
  # Of a condition there may be several values, but a switch has no list.
  run_kinds = flag_words.kinds()
  lists = [name for name in specs.conditions() if run_kinds[name] is not bool]
  kinds = {name: kind for name, kind in run_kinds.items() if name not in lists}
  kinds |= dict.fromkeys(lists, str)
  kinds |= kinds_of(FLAGS)
  places = {name: place for place, name in enumerate(kinds)}
  read = lambda words: sorted(  # A report shows them in this order.
    parser.given([argv[0], *words], intro, kinds, FLAGS),
    key=lambda pair: places[pair[0]],
  )
  pairs = read(argv[1:])
  methods = [_method(text) for name, text in pairs if name == "method"]
  given = {name: value for name, value in pairs if name != "method"}
  if given.get("study"):
    in_file, methods_in_file = _read(given["study"])
    with reworded_errors(f"study={given['study']!r}"):
      given = dict(read(in_file)) | given
    methods = methods or methods_in_file
  for name in ONLY_OF_A_RUN:
    value = given.get(name)
    if value is not None and value is not False:
      raise ValueError(
        f"{name}={value}: belongs to a single run; leave {name} out"
        + ("; a study always goes on with what is there" * (name == "resume"))
      )
  study_flags = {name: given.pop(name) for name in OF_STUDY if name in given}
  return Request(methods=tuple(methods), flags=given, **study_flags)


def _method(text: str) -> dict[str, Any]:
  """The flags of `'scaffold client_lr=0.01,0.1 label=SCAFFOLD'`."""
  try:
    first, *items = shlex.split(text) or [""]
  except ValueError:
    raise ValueError(
      f"method={text!r}: a quotation mark in it is not closed"
    ) from None
  if not first:
    raise ValueError(
      f"method={text!r}: must be an algorithm, then flag=value, such as "
      "'scaffold client_lr=0.01,0.1'"
    )
  if cut := next((w for w in (first, *items[:-1]) if w.endswith(",")), None):
    raise ValueError(
      f"method={text!r}: {cut!r} ends with a comma; put a space, and no comma, "
      "between flags, and no space between values"
    )
  flags = {"algorithm": first.removeprefix("algorithm=")}
  for name, value in (_pair(text, item) for item in items):
    if name in flags:
      raise ValueError(f"method={text!r}: {name} is there twice; give it once")
    flags[name] = value
  return flags


def _pair(text: str, item: str) -> tuple[str, Any]:
  name, equals, value = item.removeprefix("--").partition("=")
  if not equals:
    flags = specs.all_flags()
    if name in flags and flags[name].type is bool:
      return name, True
    if name[:2] == "no" and name[2:] in flags:
      return name[2:], False
    raise ValueError(
      f"method={text!r}: {item!r} must be flag=value, such as client_lr=0.1; "
      'quote a value with spaces, such as label="My method"'
    )
  return name, value


# A study file.

_MAX_BYTES = 100_000
# The deepest nesting of keys: the reader's memory grows with its square.
_TOO_DEEP = re.compile(r"""(?:["'\w-]+\s*\.\s*){20}""")


def _read(file: str) -> tuple[list[str], list[dict[str, Any]]]:
  """The arguments and the methods that a study file contains."""
  content = content_of("study", file)
  methods = content.pop("method", [])
  if not isinstance(methods, list) or not all(
    isinstance(method, dict) and "algorithm" in method for method in methods
  ):
    raise ValueError(
      f"study={file!r}: methods must be tables [[method]] with an algorithm"
    )
  shared = texts_of("study", file, content)
  arguments = [flag_words.argument(n, value) for n, value in shared.items()]
  return arguments, [texts_of("study", file, method) for method in methods]


def content_of(flag: str, file: str) -> dict[str, Any]:
  """The content of a TOML file.

  Args:
    flag: that names the file.
    file: its path.

  Raises:
    ValueError: if it cannot be read, or is no TOML file.
  """
  try:
    path = user_path(file)
    text = memory.read_text(path, _MAX_BYTES)
    if _TOO_DEEP.search(text):
      raise RecursionError
    return tomllib.loads(text)
  except OSError as error:
    raise ValueError(
      f"{flag}={file!r}: cannot be read ({error.strerror}); must be a TOML file"
    ) from None
  except RecursionError:
    raise ValueError(f"{flag}={file!r}: is nested too deeply") from None
  except ValueError as error:
    raise ValueError(f"{flag}={file!r}: is no TOML file ({error})") from None


def texts_of(flag: str, file: str, table: Mapping[str, Any]) -> dict[str, Any]:
  """A table's values as the command line has them: lists between commas.

  Args:
    flag: that names the file.
    file: its path.
    table: name -> value, a table of the file.

  Raises:
    ValueError: if a value is a table.
  """
  texts = {}
  for name, value in table.items():
    if isinstance(value, Mapping):
      raise ValueError(
        f"{flag}={file!r}: {name} must be a number, a text or a list; only "
        "[[method]] is a table"
      )
    if isinstance(value, list):
      value = ",".join(str(item) for item in value)
    texts[name] = value if isinstance(value, bool) else str(value)
  return texts
