"""The cells of a study: for each a command line of the runner, checked."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments import job, once, tasks
from experiments.flags import command_line, methods, mistakes, privacy
from experiments.flags.conditions import CONDITIONS
from experiments.studies.request import Request
from fedjax_opt.comparison import budgets
from fedjax_opt.results.names import name_of, value_of
from fedjax_opt.results.selection import format_value
from fedjax_opt.study import words

# Groups of flags that say on what, and on which clients, methods are compared.
_OF_DATA = ("data", "selection")
_SAME_FOR_ALL = (
  "task", "data_dir", "data_file", "test_fraction", "variant", "zeta", "seed",
  "eval_every",
)  # fmt: skip
# Flags that choose what a method is made of.
_CHOICES = ("algorithm", "client", "server", "regularizer")
# Flags that some methods cannot have, although they belong to no choice.
_has_rate = lambda setup: "client_lr" in setup.client.arguments
_HAVE = {
  "trace": lambda setup: bool(setup.client.choice.traced),
  "optimum": lambda setup: setup.regularizer is not None,
  "client_schedule": _has_rate,
  "client_milestones": _has_rate,
  "client_decay": _has_rate,
}


class Planned(NamedTuple):
  """A cell that is to run.

  Attributes:
    method: its label.
    condition: flag -> value, of what differs between conditions.
    flags: its flags: the tuning grid and the seeds of tuning.
    grid: flag -> values, of what is tuned; {} if there is one setting only.
    seeds: of tuning.
    report_seeds: of the report.
    name: of its folder.
    resolved: every flag with its value, as far as that needs no data.
  """

  method: str
  condition: dict[str, Any]
  flags: dict[str, Any]
  grid: dict[str, list[float]]
  seeds: list[int]
  report_seeds: list[int]
  name: str
  resolved: dict[str, Any]

  @property
  def tuning(self) -> list[str]:
    """The arguments of the runner for the grid."""
    return arguments(self.flags)

  def report(self, setting: Mapping[str, Any]) -> list[str]:
    """The arguments of the runner for one setting with fresh seeds."""
    chosen = {name: f"{setting[name]!r}" for name in self.grid}
    seeds = {"seed": ",".join(map(str, self.report_seeds))}
    return arguments(self.flags | chosen | seeds)


def plan(request: Request) -> list[Planned]:
  """The cells of a study, method after method.

  Raises:
    ValueError: naming the flag that cannot be, before anything runs.
  """
  if not request.methods:
    raise ValueError(
      "method: give at least one, such as --method='scaffold client_lr=0.1,1' "
      "--method='fed_avg client=delta_sgd'; or --study=FILE, or --runs=FOLDERS"
    )
  labels = labels_of(request.methods)
  conditions = _conditions(request.flags)
  for label, method in zip(labels, request.methods, strict=True):
    _check_own(label, method, conditions[0])
  found = []
  for label, method in zip(labels, request.methods, strict=True):
    for condition in conditions:
      try:
        found.append(_cell(request, label, method, condition))
      except ValueError as error:
        raise ValueError(f"method {label}: {error}") from None
  _check_used(request, found)
  sizes = {cell.method: budgets.num_settings(cell.grid) for cell in found}
  if request.own.budget == "equal":
    budgets.check_equal(sizes, "--budget=unequal")
  return found


def arguments(flags: Mapping[str, Any]) -> list[str]:
  """Flags as the runner's command line has them, in the order of its help."""
  given = [n for n in command_line.names() if flags.get(n) is not None]
  return [command_line.argument(name, flags[name]) for name in given]


def _cell(
  request: Request,
  label: str,
  method: Mapping[str, Any],
  condition: Mapping[str, Any],
) -> Planned:
  """One cell, resolved as the runner resolves it."""
  own = {name: value for name, value in method.items() if name != "label"}
  shared = {n: v for n, v in request.flags.items() if n not in CONDITIONS}
  flags = {**_fixed(request.flags), **condition}
  flags |= _that_belong(shared, own, flags) | own
  unknown = [name for name in flags if name not in command_line.names()]
  if unknown:
    known = {name: command_line.flag(name) for name in command_line.names()}
    raise ValueError(mistakes.no_such_flag(unknown[0], known))
  resolved = job.resolve(command_line.parse(["run", *arguments(flags)], ""))
  grid = {n: v for n, v in resolved.setup.grid.items() if len(v) > 1}
  identity = {**resolved.flags, "seed": resolved.seeds}
  fresh = budgets.fresh_seeds(resolved.seeds, request.own.report_seeds)
  name = _folder(label, condition, identity)
  cell = Planned(
    label,
    dict(condition),
    flags,
    grid,
    resolved.seeds,
    fresh,
    name,
    resolved.flags,
  )
  first = {flag: values[0] for flag, values in grid.items()}
  job.resolve(command_line.parse(["run", *cell.report(first)], ""))
  return cell


def _check_own(
  label: str, method: Mapping[str, Any], condition: Mapping[str, Any]
) -> None:
  """Checks that a method changes nothing that must be the same for all."""
  of_data = [g.names for g in command_line.GROUPS if g.key in _OF_DATA]
  for name, value in method.items():
    if name in condition:
      raise ValueError(
        f"method {label}: {name}={value}: the conditions of the study say it; "
        f"leave {name} out of the method"
      )
    if name in itertools.chain(_SAME_FOR_ALL, *of_data):
      raise ValueError(
        f"method {label}: {name}={value}: must be the same for all methods; "
        "give it outside of method"
      )
    if name in CONDITIONS and "," in str(value):
      raise ValueError(
        f"method {label}: {name}={value}: a method has one value; give the "
        "list outside of method, where each value is a condition"
      )


def _that_belong(
  shared: Mapping[str, Any], own: Mapping[str, Any], others: Mapping[str, Any]
) -> dict[str, Any]:
  """Of the shared flags those that a method has: DOMO has no step-size rule."""
  choice = methods.ALGORITHM.registry.get(own["algorithm"])
  methods.ALGORITHM.check(own["algorithm"])
  has = {
    "client": choice.client == "rule",
    "server": choice.server == "rule" and choice.server_rule is None,
    "regularizer": choice.takes_regularizer,
  }
  chosen = {
    n: shared[n] for n, is_free in has.items() if is_free and n in shared
  }
  chosen |= {name: own[name] for name in _CHOICES if name in own}
  blank = command_line.parse(["run"], "")
  task = tasks.TASKS.get(others.get("task", blank["task"]))
  if task is None:  # The runner says so.
    return dict(shared)
  setup = methods.resolve(
    blank | {"task": others.get("task", blank["task"])} | chosen,
    task.regularizer,
    task.defaults,
  )
  belongs = {flag for each in setup.chosen for flag in each.arguments}
  if own.get("privacy", shared.get("privacy")) is not None:
    belongs |= {*privacy.PRIVACY.owners(), *privacy.OTHERS}
  hyperparameters = {f for kind in methods.KINDS for f in kind.owners()}
  hyperparameters |= set(privacy.OTHERS)
  return {
    name: value
    for name, value in shared.items()
    if name in chosen
    or name in belongs
    or (
      name not in hyperparameters | set(_CHOICES)
      and _HAVE.get(name, lambda setup: True)(setup)
    )
  }


def _check_used(request: Request, cells: Sequence[Planned]) -> None:
  """Checks that each shared flag is one of some method."""
  for name, value in request.flags.items():
    if name == "algorithm":
      raise ValueError(
        f"algorithm={value}: each method has its own; give --method={value}"
      )
    if name not in CONDITIONS and not any(name in c.flags for c in cells):
      raise ValueError(
        f"{name}={value}: belongs to none of the methods; leave {name} out, "
        "or give a method that has it"
      )


def unlike(planned: Sequence[Planned]) -> list[str]:
  """Sentences on the flags of `CONDITIONS` that differ between methods.

  A method may have its own cohort or local steps; then it works more or less
  than the others in a round.
  """
  here = [c for c in planned if c.condition == planned[0].condition]
  lines = []
  for name in CONDITIONS:
    labels: dict[str, list[str]] = {}
    for cell in here:
      value = value_of(cell.resolved.get(name))
      labels.setdefault(value, []).append(words.name(cell.method))
    if len(labels) > 1:
      each = "; ".join(f"{v} for {words.listed(m)}" for v, m in labels.items())
      lines.append(f"Methods differ in {name_of(name)}: {each}.")
  return lines


def not_private(planned: Sequence[Planned]) -> list[str]:
  """The sentence on methods whose noise can be made again, if there are any."""
  seeded = [c for c in planned if c.resolved.get(privacy.SEED) is not None]
  labels = dict.fromkeys(words.name(cell.method) for cell in seeded)
  if not labels:
    return []
  return [
    f"NOT private: {words.listed(list(labels))}, whose noise is that of "
    f"{privacy.SEED}, so that it can be made again and taken away."
  ]


# Conditions.


def _values(flags: Mapping[str, Any]) -> dict[str, list[str]]:
  """Of each flag that may differ between conditions, its values."""
  found = {}
  for name in CONDITIONS:
    if name in flags:
      values = [item.strip() for item in str(flags[name]).split(",")]
      if len(set(map(_number, values))) < len(values):
        raise ValueError(f"{name}={flags[name]}: a value is repeated")
      found[name] = values
  return found


def _fixed(flags: Mapping[str, Any]) -> dict[str, Any]:
  return {n: _number(v[0]) for n, v in _values(flags).items() if len(v) == 1}


def _conditions(flags: Mapping[str, Any]) -> list[dict[str, Any]]:
  """All combinations of what has several values."""
  varied = {n: v for n, v in _values(flags).items() if len(v) > 1}
  return [
    dict(zip(varied, map(_number, values), strict=True))
    for values in itertools.product(*varied.values())
  ]


def _number(text: str) -> Any:
  """The number that a text is, or the text."""
  for kind in (int, float):
    try:
      return kind(text)
    except ValueError:
      continue
  return text


# Names.


def labels_of(given: Sequence[Mapping[str, Any]]) -> list[str]:
  """A label for each method: its own, or its names and what else differs.

  Raises:
    ValueError: if two methods are the same.
  """
  short = [_label(method) for method in given]
  labels = list(short)
  for i, method in enumerate(given):
    alike = [j for j, label in enumerate(short) if label == short[i]]
    if len(alike) > 1 and "label" not in method:
      others = {
        name: value
        for name, value in method.items()
        if name not in _CHOICES
        and any(given[j].get(name) != value for j in alike)
      }
      if others:
        shown = ", ".join(f"{name_of(n)} {v}" for n, v in others.items())
        labels[i] = f"{labels[i]} ({shown})"
  for label in labels:
    if labels.count(label) > 1:
      raise ValueError(
        f"method: two methods are {label!r}; give each a label=NAME of its own"
      )
  return labels


def _label(method: Mapping[str, Any]) -> str:
  if method.get("label"):
    return str(method["label"])
  parts = [name_of(method["algorithm"])]
  parts += [
    name_of(str(method[name])) for name in _CHOICES[1:] if name in method
  ]
  return ", ".join(parts)


def _folder(
  label: str, condition: Mapping[str, Any], identity: Mapping[str, Any]
) -> str:
  """The folder of a cell: words for people, and a digest of all its flags."""
  names = [f"{n}={format_value(v)}" for n, v in condition.items()]
  same = {
    name: value
    for name, value in identity.items()
    if name not in job.MAY_DIFFER
  }
  return once.folder_name(",".join([label, *names]), same)
