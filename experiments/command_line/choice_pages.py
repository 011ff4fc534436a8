"""Choices by name: their list, and a page of help for each."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments import tasks
from experiments.command_line import layout
from experiments.command_line.texts import describe, shown_default
from experiments.specification import choice_flags, spec
from experiments.specification.choice_flags import ChoiceFlag
from experiments.specification.method import default_client
from experiments.tasks import images
from fedjax_opt.registry import FILE, Entry, Hyperparameter

_RUN = "python -m experiments.run"
_GROUPS = 5  # of sampler cyclic, in its example

Flags = dict[str, Hyperparameter]  # Flags of a choice: ranges and defaults.
# What a choice can be combined with, and the flags of an example run.
Usage = tuple[dict[str, str], str]


def _algorithm_flags(name: str) -> Flags:
  """The flags of an algorithm and of the rules that it implies."""
  entry = choice_flags.ALGORITHM.registry[name]
  flags = dict(choice_flags.ALGORITHM.parameters(name))
  for part in (choice_flags.CLIENT, choice_flags.SERVER):
    for flag, own in part.own_rate(entry).items():
      flags[flag] = part.parameters("sgd")[flag]._replace(**own)
  if entry.server_rule is not None:
    flags |= choice_flags.SERVER.parameters(entry.server_rule)
  return flags


def _algorithm(name: str, entry: Any, flags: Flags) -> Usage:
  fits = {
    "client": f"any rule; default {default_client(entry)}",
    "server": "any rule; default sgd with step size 1, plain averaging",
    "regularizer": "none",
  }
  if entry.client_takes == "rate":
    fits["client"] = "sgd only: it takes plain steps, not those of another rule"
  if entry.server_takes == "none":
    fits["server"] = "none"
  elif entry.server_takes == "rate":
    fits["server"] = "sgd only, with step size server_lr"
  elif entry.server_rule is not None:
    fits["server"] = f"{entry.server_rule}, always"
  elif entry.default_server is not None:
    fits["server"] = f"any rule; default {entry.default_server}"
  if entry.takes("psi"):
    which = "penalty" if entry.needs_penalty else "penalty or constraint"
    fits["regularizer"] = f"any {which}; it needs one, or a task that has one"
  if entry.cohort != "sampled":
    whom = "all clients" if entry.cohort == "all" else "the first client"
    fits["cohort"] = f"{whom}, in each round"
  if entry.is_exact:
    fits["local work"] = "one step a round, along the exact gradient"
  if entry.takes("features_fn"):
    fits["task"] = "those of images, whose models have features"
  example = f"--algorithm={name}"
  if entry.takes("paths"):
    owners = choice_flags.TASK.owners()["lora_rank"]
    fits["task"] = f"{', '.join(owners)}, with lora_rank"
    example = f"--task={next(iter(owners))} {example} --lora_rank=8"
  if entry.takes("psi"):
    example = f"--task=lasso {example} --client_lr=0.0003,0.001"
  elif entry.client_takes == "rate":
    flag = choice_flags.CLIENT.rate_flag
    rate = flags[flag].default
    example += f" --{flag}={rate / 10:g},{rate:g}"
  elif entry.server_rule is not None:
    example += " --server_lr=0.01,0.1"
  return fits, example


def _client(name: str, entry: Any, flags: Flags) -> Usage:
  takes = lambda algorithm: entry.is_plain or algorithm.client_takes == "rule"
  which = "all" if entry.is_plain else choice_flags.ALGORITHM.names(takes)
  return {"algorithm": which}, f"--client={name}{_tried(flags)}"


def _server(name: str, entry: Any, flags: Flags) -> Usage:
  takes = lambda algorithm: (
    entry.is_plain
    if algorithm.server_takes == "rate"
    else algorithm.server_takes == "rule"
    and algorithm.server_rule in (None, name)
  )
  fits = {"algorithm": choice_flags.ALGORITHM.names(takes)}
  return fits, f"--server={name}{_tried(flags)}"


def _regularizer(name: str, entry: Any, flags: Flags) -> Usage:
  takes = lambda algorithm: (
    algorithm.takes("psi") and (entry.is_finite or not algorithm.needs_penalty)
  )
  users = [n for n, task in tasks.TASKS.items() if task.regularizer == name]
  fits = {
    "algorithm": choice_flags.ALGORITHM.names(takes),
    "task": "all" + (f"; of {', '.join(users)} it is the own" if users else ""),
  }
  without_data = [n for n in users if "data_dir" not in tasks.TASKS[n].takes]
  example = (
    f"--task={next(iter(without_data), 'lasso')} --algorithm=fed_dual_avg "
    f"--regularizer={name}{'' if users else _tried(flags)}"
  )
  return fits, example


def _tried(flags: Flags) -> str:
  """The first flag with a file or numbers: two for a rate, else its default."""
  for flag, parameter in flags.items():
    value = parameter.default
    if parameter.accepts is FILE:
      return f" --{flag}=FILE.csv"
    if flag.endswith("_lr"):
      return f" --{flag}={value / 10:g},{value:g}"
    if isinstance(value, int | float):
      return f" --{flag}={value:g}"
  return ""


def _partition(name: str, entry: Any, flags: Flags) -> Usage:
  fits = {"task": "those whose clients do not come with the data"}
  return fits, f"--partition={name} --num_clients=10{_tried(flags)}"


def _sampler(name: str, entry: Any, flags: Flags) -> Usage:
  cohorts = choice_flags.ALGORITHM.names(lambda item: item.cohort != "sampled")
  words = "".join(f" --{flag}={_GROUPS}" for flag in flags)
  return {"algorithm": f"all but {cohorts}"}, f"--sampler={name}{words}"


def _upload(name: str, entry: Any, flags: Flags) -> Usage:
  fits = {"algorithm": "those that send differences of models, in one phase"}
  return fits, f"--upload={name}{_tried(flags)}"


def _aggregator(name: str, entry: Any, flags: Flags) -> Usage:
  if name == "mean":
    return {"algorithm": "all"}, "--aggregator=mean"
  fits = {"algorithm": "all that average", "weighting": "uniform"}
  return fits, f"--weighting=uniform --aggregator={name}{_tried(flags)}"


def _fault(name: str, entry: Any, flags: Flags) -> Usage:
  fits, _ = _upload(name, entry, flags)
  return fits, f"--fault={name}{_tried(flags)} --faulty_fraction=0.1"


def _privacy(name: str, entry: Any, flags: Flags) -> Usage:
  fits = {
    "algorithm": "those that send one difference of models and nothing else",
    "weighting": "uniform",
    "sampler": "poisson or uniform",
  }
  example = (
    "--weighting=uniform --sampler=poisson --sampler_expected=20 "
    f"--cohort_size=40 --privacy={name}"
  )
  return fits, example


def _system(name: str, entry: Any, flags: Flags) -> Usage:
  schedules = choice_flags.SCHEDULE.names(
    lambda entry: "durations" in entry.arguments
  )
  return {"schedule": schedules}, f"--system={name}{_tried(flags)}"


def _availability(name: str, entry: Any, flags: Flags) -> Usage:
  words = _tried(flags)
  return {"system": "any"}, f"--system=lognormal --availability={name}{words}"


def _schedule(name: str, entry: Any, flags: Flags) -> Usage:
  example = f"--schedule={name}{_tried(flags)}"
  if "durations" in entry.arguments:
    return {"system": "any; it needs one"}, f"--system=lognormal {example}"
  return {"system": "none: the file says when clients arrive"}, example


def _task(name: str, entry: Any, flags: Flags) -> Usage:
  fits = {"partition": "any"}
  if entry.has_clients is True:
    fits["partition"] = "none: its clients come with the data"
  elif "client_column" in entry.takes:
    fits["partition"] = "any, without client_column"
  elif entry.has_clients:
    fits["partition"] = "any, if the file has no client_ids"
  if entry.regularizer is not None:
    fits["regularizer"] = f"any; its own is {entry.regularizer}"
  defaults = [f"{flag} {value:g}" for flag, value in entry.defaults.items()]
  if defaults:
    fits["own defaults"] = ", ".join(defaults)
  if "pretrained" in entry.takes:
    is_needed = "pretrained" in entry.needs
    fits["pretrained"] = "a folder of BERT or DistilBERT"
    fits["pretrained"] += "; it needs one" if is_needed else ", or none"
  if entry.is_convex:
    fits["optimum"] = "yes: the loss is convex"
  ending = "csv" if "label_column" in entry.takes else "npz"
  data = {
    "data_dir": " --data_dir=DIR",
    "pretrained": " --pretrained=DIR",
    "data_file": f" --data_file=FILE.{ending}",
    "label_column": " --label_column=COLUMN",
  }
  inputs = {"data_dir", *entry.needs}
  words = "".join(data[field] for field in entry.takes if field in inputs)
  return fits, f"--task={name}{words}"


def _tasks_of_model(name: str) -> list[str]:
  pairs = (f"{data}_{name}" for data in (*images.DATASETS, "npz", "images"))
  return [task for task in pairs if task in tasks.TASKS]


def _model(name: str, entry: Any, flags: Flags) -> Usage:
  task_names = _tasks_of_model(name)
  data = "" if task_names[0].startswith("digits") else " --data_dir=DIR"
  return {"task": ", ".join(task_names)}, f"--task={task_names[0]}{data}"


class _ChoicePage(NamedTuple):
  """A kind of choice.

  Attributes:
    title: name of one choice of this kind.
    choice_flag: that chooses it; None for models, which are a part of
      a task's name.
    usage: `(name, choice, flags) -> Usage`.
  """

  title: str
  choice_flag: ChoiceFlag | None
  usage: Callable[[str, Any, Flags], Usage]

  @property
  def registry(self) -> Mapping[str, Any]:
    """name -> entry."""
    flag = self.choice_flag
    return images.MODELS if flag is None else flag.registry

  def flags(self, name: str) -> Flags:
    """The flags of an entry."""
    if self.choice_flag is None:
      return choice_flags.TASK.parameters(_tasks_of_model(name)[0])
    if self.choice_flag is choice_flags.ALGORITHM:
      return _algorithm_flags(name)
    return self.choice_flag.parameters(name)


CHOICE_PAGES: dict[str, _ChoicePage] = {
  "algorithms": _ChoicePage("algorithm", choice_flags.ALGORITHM, _algorithm),
  "client rules": _ChoicePage("client rule", choice_flags.CLIENT, _client),
  "server rules": _ChoicePage("server rule", choice_flags.SERVER, _server),
  "regularizers": _ChoicePage(
    "regularizer", choice_flags.REGULARIZER, _regularizer
  ),
  "partitions": _ChoicePage("partition", choice_flags.PARTITION, _partition),
  "samplers": _ChoicePage("sampler", choice_flags.SAMPLER, _sampler),
  "uploads": _ChoicePage("upload", choice_flags.UPLOAD, _upload),
  "aggregators": _ChoicePage(
    "aggregator", choice_flags.AGGREGATOR, _aggregator
  ),
  "faults": _ChoicePage("fault", choice_flags.FAULT, _fault),
  "privacy": _ChoicePage(
    "mechanism of privacy", choice_flags.PRIVACY, _privacy
  ),
  "systems": _ChoicePage("system of devices", choice_flags.SYSTEM, _system),
  "availabilities": _ChoicePage(
    "availability", choice_flags.AVAILABILITY, _availability
  ),
  "schedules": _ChoicePage("schedule", choice_flags.SCHEDULE, _schedule),
  "tasks": _ChoicePage("task", choice_flags.TASK, _task),
  "models": _ChoicePage("model", None, _model),
}


def names() -> list[str]:
  """All names of choices, each once."""
  return list(
    dict.fromkeys(n for kind in CHOICE_PAGES.values() for n in kind.registry)
  )


def page(name: str) -> str:
  """The help of a choice; if several kinds have that name, of each."""
  pages = [
    _page(kind, name) for kind in CHOICE_PAGES.values() if name in kind.registry
  ]
  return "\n\n".join(pages)


def _page(kind: _ChoicePage, name: str) -> str:
  entry, flags = kind.registry[name], kind.flags(name)
  fits, example = kind.usage(name, entry, flags)
  lines = [f"{name} ({kind.title})", layout.paragraph(f"{entry.help}.")]
  source = source_of(entry)
  if source:
    lines.append(layout.paragraph(f"Source: {source}"))
  if flags:
    lines += ["", "Its flags:", *(_entry(f, flags[f]) for f in flags)]
  lines += ["", "It goes with:", layout.pairs(fits)]
  lines += ["", "Example:", layout.command(f"{_RUN} {example}")]
  return "\n".join(lines)


def example(kind: str, name: str) -> str:
  """The flags of a choice's example."""
  choices = CHOICE_PAGES[kind]
  return choices.usage(name, choices.registry[name], choices.flags(name))[1]


def _entry(name: str, parameter: Hyperparameter) -> str:
  """A flag, with its meaning with this choice."""
  flag = spec.all_flags()[name]
  first, *lines = describe(parameter).split("\n")
  first = f"{'[list] ' if flag.type is list else ''}{first}."
  default = shown_default(parameter.default)
  if default:
    first += f" Default: {default}."
  return layout.entry(name, flag, "\n".join([first, *lines]))


def source_of(entry: Entry) -> str:
  """The paper that the docstring of a choice's factory names, or ""."""
  factory = getattr(entry, "factory", None)
  factory = getattr(factory, "func", factory)  # Of a `functools.partial`.
  if not getattr(factory, "__module__", "").startswith("fedjax_opt."):
    return ""
  text = inspect.getdoc(factory) or ""
  section = r"^(?:References|Source):\s+(.+?)(?:\n\n|\Z)"
  match = re.search(section, text, re.MULTILINE | re.DOTALL)
  return " ".join(match[1].split()) if match else ""


# The list.


def listed(word: str | None) -> str:
  """What `--list` or `--list=KIND` prints: a line for each choice.

  Raises:
    ValueError: if there is no such kind.
  """
  stem = re.sub(r"[^a-z]", "", (word or "").lower())
  stem = stem.removesuffix("s") or stem
  words = lambda kind: (kind.replace(" ", ""), *kind.split())
  kinds = [
    kind
    for kind in CHOICE_PAGES
    if word is None or (stem and any(w.startswith(stem) for w in words(kind)))
  ]
  if not kinds:
    raise ValueError(
      f"list={word!r}: no such kind; must be one of {', '.join(CHOICE_PAGES)}"
    )
  return "\n\n".join(map(_lines, kinds))


def _lines(kind: str) -> str:
  registry = CHOICE_PAGES[kind].registry
  width = max(map(len, registry))
  lines = [
    layout.one_line(name, entry.help.partition(";")[0], width)
    for name, entry in registry.items()
  ]
  return "\n".join([f"{kind[0].upper()}{kind[1:]}:", *lines])
