"""What the help says of flags, from the specification and the registries."""

import math
from collections.abc import Mapping
from typing import Any

from experiments import tasks
from experiments.specification import spec as specs
from experiments.specification.choice_flags import (
  ALGORITHM,
  CLIENT,
  SERVER,
  TASK,
  made_of_registries,
)
from experiments.specification.flag import Flag
from experiments.tasks import images
from fedjax_opt.checks.values import in_words
from fedjax_opt.data import example_parts
from fedjax_opt.registry import Hyperparameter
from fedjax_opt.scores import SCORES

# If more owners than this share a default, the help does not name them.
_MAX_OWNERS = 12


def of_flag(name: str, flag: Flag) -> str:
  """The help of a flag of this name.

  If the flag is a choice from a list, further lines have the list.
  """
  if flag.owners:
    text = _of_hyperparameter(name, flag.owners)
    return f"[list] {text}" if flag.type is list else text
  text = flag.help.format_map(names_in_helps())
  entries: Mapping[str, str] = {}
  if name == "task":
    entries = _tasks()
  elif flag.choice_flag is not None and flag.choice_flag is not SERVER:
    entries = {n: entry.help for n, entry in flag.choice_flag.registry.items()}
  width = max(map(len, entries), default=0)
  return text + "".join(f"\n{n:{width}}  {h}" for n, h in entries.items())


@made_of_registries
def names_in_helps() -> dict[str, Any]:
  """The values of the names in braces in the docstring of `Spec`."""
  own_tasks = tasks.by_own_name()
  return {
    **{
      name: value
      for module in (specs, example_parts)
      for name, value in vars(module).items()
      if name.isupper()
    },
    "scores": ", ".join(SCORES),
    "tasks_with_clients": ", ".join(
      n for n in own_tasks if own_tasks[n].has_clients is True
    ),
    "plain_algorithms": ALGORITHM.names(
      lambda entry: entry.client_takes == "rate"
    ),
    "own_clients": _own_defaults("default_client"),
    "servers": ", ".join(SERVER.registry),
    "own_servers": _own_defaults("default_server"),
    "composite": ALGORITHM.names(lambda entry: entry.takes("psi")),
    "all_clients": ALGORITHM.names(lambda entry: entry.cohort == "all"),
    "first_client": ALGORITHM.names(lambda entry: entry.cohort == "first"),
    "traced": CLIENT.names(lambda rule: rule.traced),
  }


def _own_defaults(field: str) -> str:
  """The algorithms that have a default rule of their own, in words."""
  rules: dict[str, list[str]] = {}
  for name, entry in ALGORITHM.registry.items():
    rule = getattr(entry, field)
    if rule is not None:
      rules.setdefault(rule, []).append(name)
  parts = [f"; {rule} for {', '.join(names)}" for rule, names in rules.items()]
  return "".join(parts)


def _tasks() -> dict[str, str]:
  """Data sets, models, and tasks with a name of their own."""
  helps = {name: dataset.help for name, dataset in images.DATASETS.items()}
  helps["npz"] = "your own data, see data_file"
  helps["images"] = "your own images, a folder in data_dir for each class"
  helps |= {f"..._{name}": model.help for name, model in images.MODELS.items()}
  task_helps = {name: task.help for name, task in tasks.by_own_name().items()}
  return helps | task_helps | {"digits": helps["digits"]}


# Hyperparameters.


def _of_hyperparameter(flag: str, owners: Mapping[str, Hyperparameter]) -> str:
  """The help of a flag: its meanings, and the default of each owner."""
  meanings: dict[str, dict[str, str]] = {}
  lines: list[str] = []
  for name, parameter in owners.items():
    text, *lines = describe(parameter).split("\n")
    meanings.setdefault(text, {})[name] = shown_default(parameter.default)
  parts = []
  for text, defaults in meanings.items():
    if len(defaults) > _MAX_OWNERS and len(set(defaults.values())) == 1:
      parts.append(f"{text}. Default: {next(iter(defaults.values()))}.")
    else:
      named = _in_short(defaults).items()
      words = [f"{name} {value}".strip() for name, value in named]
      parts.append(f"{text} ({', '.join(words)}).")
  own = [
    f"{name} {task.defaults[flag]:g}"
    for name, task in TASK.registry.items()
    if flag in task.defaults
  ]
  note = f" Tasks with a default of their own: {', '.join(own)}." if own else ""
  return "\n".join([" ".join(parts), *lines]) + note


def _in_short(defaults: Mapping[str, str]) -> dict[str, str]:
  """The defaults of tasks; those of data with all models are one: npz_... ."""
  short: dict[str, str] = {}
  for name, value in defaults.items():
    data = name.partition("_")[0]
    tasks_of_data = [f"{data}_{model}" for model in images.MODELS]
    if {defaults.get(task) for task in tasks_of_data} == {value}:
      name = f"{data}_..."
    short[name] = value
  return short


def describe(parameter: Hyperparameter) -> str:
  """The meaning of a parameter, with its range; then its list, if any."""
  first, *lines = parameter.help.split("\n")
  text = first[0].upper() + first[1:]
  if parameter.is_required:
    text += "; must be given"
  if parameter.field.interval != "(-inf, inf)":
    interval = in_words(parameter.field.interval)
    text += f", {interval}" if interval.startswith("in ") else f"; {interval}"
  return "\n".join([text, *lines])


def shown_default(default: Any) -> str:
  """A default as the help has it; "" if it is off or left out."""
  if default is None or default is False:
    return ""
  if isinstance(default, str):
    return default
  if default is True:
    return "true"
  text = f"{default:g}".replace("e-0", "e-")
  is_part = len(text) > 7 and math.isclose(1 / default, round(1 / default))
  return f"1/{round(1 / default)}" if is_part else text
