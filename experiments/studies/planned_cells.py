"""The cells of a study: for each a specification, checked."""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.command_line.flag_words import typed
from experiments.specification import choice_flags
from experiments.specification import spec as specs
from experiments.specification.method import unused_flags
from experiments.specification.resolve import personal_defaults, resolve
from experiments.specification.spec import FLAGS, Spec
from experiments.studies.labels import labels_of
from experiments.studies.request import OF_STUDY, ONLY_OF_A_RUN, Request
from fedjax_opt.checks.fields import SEED_OF_RUN
from fedjax_opt.files import csv_files
from fedjax_opt.study import tuning
from fedjax_opt.study.cells import Cell, PointResults

# Groups of flags that say on which data and clients methods are compared.
_GROUPS_OF_DATA = ("data", "selection")
_SAME_FOR_ALL = ("task", "data_dir", "data_file", "seed", "eval_every")


class PlannedCell(NamedTuple):
  """A cell that is to run.

  Attributes:
    method: its label.
    condition: flag -> value, of what differs between conditions.
    spec: the tuning grid with the seeds of tuning.
    design: the seeds of tuning and of the report.
    given_flags: flag -> value, of all that was given for the cell.
  """

  method: str
  condition: dict[str, Any]
  spec: Spec
  design: tuning.Design
  given_flags: dict[str, Any]

  @property
  def first_run(self) -> Spec:
    """The first run of a cell: the grid, or the only setting."""
    if self.grid and not self.design.is_nested:
      return self.spec
    return self.spec.at({}, self.design.report_seeds)

  def at(
    self,
    grid: Mapping[str, Sequence[float]],
    seeds: Sequence[int],
    is_fresh: bool,
    partition_seed: int | None = None,
  ) -> Spec:
    """The specification of one call of `run` in `tune_and_report`."""
    if partition_seed is not None:
      return self.spec.crossed(partition_seed, seeds)
    chosen = {name: v[0] for name, v in grid.items() if len(v) == 1}
    return self.spec.at(chosen, seeds) if is_fresh else self.spec

  def tune(self, run: Callable[..., PointResults]) -> Cell:
    """The cell, by `tune_and_report`; `run` has the arguments of `at`."""
    return tuning.tune_and_report(
      self.method, self.condition, run, self.grid, self.design
    )

  @property
  def grid(self) -> dict[str, list[float]]:
    """Tuned flag -> its values; {} if there is only one setting."""
    return {n: v for n, v in self.spec.grid.items() if len(v) > 1}


def plan(
  request: Request, fixed_names: Collection[str] = ()
) -> list[PlannedCell]:
  """The cells of a study, method after method.

  Args:
    request: of the study.
    fixed_names: flags of a reference, which no method may have.

  Raises:
    ValueError: naming the invalid flag, before anything runs.
  """
  if not request.methods:
    raise ValueError(
      "method: give at least one, such as --method='scaffold client_lr=0.1,1' "
      "--method='fed_avg client=delta_sgd'; or --study=FILE, or --runs=FOLDERS"
    )
  labels = labels_of(request.methods, request.flags)
  values = _values(request.flags)
  fixed = {n: v[0] for n, v in values.items() if len(v) == 1}
  varied = {n: v for n, v in values.items() if len(v) > 1}
  num_cells = len(labels) * math.prod(map(len, varied.values()))
  if num_cells > choice_flags.MAX_ITEMS:
    raise ValueError(
      f"{next(iter(varied), 'method')}: the study would have {num_cells:,} "
      f"cells; must have at most {choice_flags.MAX_ITEMS:,}"
    )
  conditions = [
    dict(zip(varied, combination, strict=True))
    for combination in itertools.product(*varied.values())
  ]
  for label, method in zip(labels, request.methods, strict=True):
    _check_own(label, method, varied, fixed_names)
  with_defaults = [
    dataclasses.replace(
      request, flags=_for_own_models(request, fixed | condition) | request.flags
    )
    for condition in conditions
  ]
  methods, cells = dict(zip(labels, request.methods, strict=True)), []
  for label in methods:
    for condition, own_request in zip(conditions, with_defaults, strict=True):
      cell_of = lambda name, own=own_request, varied=condition: _cell(
        own, name, methods[name], fixed, varied
      )
      cells.append(of_method(label, methods, cell_of))
  _check_used(request, cells)
  sizes = {cell.method: tuning.num_settings(cell.grid) for cell in cells}
  if request.budget == "equal":
    tuning.check_equal(sizes, "--budget=unequal")
  return cells


def of_method(
  label: str, methods: Mapping[str, Collection[str]], make: Callable[[str], Any]
) -> Any:
  """`make(label)`; an error that not all methods have names the method.

  Args:
    label: of the method.
    methods: label -> its own flags, for all methods; an error about one of
      these names the method, too.
    make: label -> what is wanted of a method.
  """

  def error_of(name):
    try:
      make(name)
    except ValueError as error:
      return str(error)
    return ""

  try:
    return make(label)
  except ValueError as error:
    text = str(error)
  flag = re.match(r"(\w+)[=:]", text)
  is_own = flag is None or flag[1] in methods[label]
  others = methods.keys() - {label}
  if is_own or any(error_of(name) != text for name in others):
    text = f"method {label!r}: {text}"
  raise ValueError(text)


def any_personal(methods: Sequence[Mapping[str, Any]]) -> bool:
  """Whether any method makes models of the clients' own."""
  entries = [
    choice_flags.ALGORITHM.entries.get(method["algorithm"])
    for method in methods
  ]
  return any(entry is not None and entry.is_personal for entry in entries)


def _for_own_models(
  request: Request, condition: Mapping[str, Any]
) -> dict[str, Any]:
  """Flags for all methods, if one makes models of the clients' own.

  With these, all methods are chosen and measured as that one is by default, and
  train on equally many examples. Flags that were given stay.
  """
  task = choice_flags.TASK.registry.get(
    condition.get("task", FLAGS["task"].default)
  )
  if task is None or not any_personal(request.methods):
    return {}
  flags = personal_defaults(request.flags, task)
  return {n: value for n, value in flags.items() if n not in request.flags}


def _cell(
  request: Request,
  label: str,
  method: Mapping[str, Any],
  fixed: Mapping[str, Any],
  condition: Mapping[str, Any],
) -> PlannedCell:
  """One cell, resolved as `experiments.run` would resolve it."""
  own_flags = {name: value for name, value in method.items() if name != "label"}
  all_flags, conditions = specs.all_flags(), specs.conditions()
  shared_flags = {n: v for n, v in request.flags.items() if n not in conditions}
  values = {**fixed, **condition, **shared_flags, **own_flags}
  flag_values = typed(values)
  left_out = unused_flags(flag_values, shared_flags.keys() - own_flags.keys())
  flag_values |= {name: all_flags[name].default for name in left_out}
  spec = resolve(flag_values)
  fresh = tuning.fresh_seeds(spec.seed, request.report_seeds)
  design = tuning.Design.of(spec.seed, fresh, request.nested, request.crossed)
  for seed in (*fresh, *design.crossed_seeds):
    SEED_OF_RUN.check("seed", seed)
  if request.crossed and (
    spec.partition is None or spec.partition_seed is not None
  ):
    raise ValueError(
      f"crossed={request.crossed}: needs a partition that the seed draws; here "
      "partition_seed, or the data themselves, fix it; leave crossed out"
    )
  given_flags = {
    name: flag_values[name] for name in values if name not in left_out
  }
  return PlannedCell(label, dict(condition), spec, design, given_flags)


def _check_own(
  label: str,
  method: Mapping[str, Any],
  varied: Collection[str],
  fixed_names: Collection[str],
) -> None:
  """Checks that a method changes nothing that must be the same for all."""
  flags = specs.all_flags().items()
  shared_names = {
    name for name, flag in flags if flag.group.key in _GROUPS_OF_DATA
  }
  shared_names |= {*_SAME_FOR_ALL}
  shared_names |= {
    flag
    for flag, owners in choice_flags.TASK.owners().items()
    if not any(owner.may_differ for owner in owners.values())
  }
  for name, value in method.items():
    why = None
    if name in fixed_names:
      why = f"the reference sets it; leave {name} out"
    elif name in OF_STUDY:
      why = "belongs to the whole study; give it outside of method"
    elif name in ONLY_OF_A_RUN:
      why = f"belongs to a single run; leave {name} out"
    elif name in varied:
      why = f"is one of the study's conditions; leave {name} out of the method"
    elif name in shared_names:
      why = "must be the same for all methods; give it outside of method"
    elif name in specs.conditions() and "," in str(value):
      why = (
        "a method has one value; give the list outside of method, where each "
        "value is a condition"
      )
    if why is not None:
      raise ValueError(f"method {label!r}: {name}={value}: {why}")


def _check_used(request: Request, cells: Sequence[PlannedCell]) -> None:
  """Checks that each shared flag belongs to at least one method."""
  for name, value in request.flags.items():
    if name == "algorithm":
      raise ValueError(
        f"algorithm={value}: each method has its own; give --method={value}"
      )
    is_used = any(name in cell.given_flags for cell in cells)
    if name not in specs.conditions() and not is_used:
      raise ValueError(
        f"{name}={value}: belongs to none of the methods{_rules(name, cells)}; "
        f"leave {name} out, or give a method that has it"
      )


def _rules(flag: str, cells: Sequence[PlannedCell]) -> str:
  """The clients' rules, for a flag that only other rules have."""
  if flag not in choice_flags.CLIENT.owners():
    return ""
  rules = dict.fromkeys(cell.spec.client.name for cell in cells)
  return f", whose clients step by {', '.join(rules)}"


def _values(flags: Mapping[str, Any]) -> dict[str, list[Any]]:
  """Flag -> its values, for flags that may differ between conditions."""
  by_flag = {}
  for name in specs.conditions():
    if name in flags:
      items = str(flags[name]).split(",")
      values = [csv_files.number_or_text(item.strip()) for item in items]
      if len(set(values)) < len(values):
        raise ValueError(f"{name}={flags[name]}: a value is repeated")
      by_flag[name] = values
  return by_flag
