"""What can be chosen by name: the list, and a page of help for each choice."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments import tasks
from experiments.command_line import layout
from experiments.command_line.flags import defined
from experiments.command_line.texts import describe, shown_default
from experiments.specification import kinds
from experiments.specification import method as of_method
from experiments.specification.kinds import Kind
from experiments.tasks import images
from fedjax_opt.registry import Choice, Parameter

_RUN = "python -m experiments.run"
_GROUPS = 5  # of sampler cyclic, in its example


class _Page(NamedTuple):
  """What the help says of a choice.

  Attributes:
    flags: flag -> its hyperparameter here, with range and default.
    fits: what it goes with: kind -> which of them.
    example: flags of a run.
  """

  flags: dict[str, Parameter]
  fits: dict[str, str]
  example: str


# Algorithms.


def _algorithm(name: str) -> _Page:
  choice = kinds.ALGORITHM.registry[name]
  flags = dict(kinds.ALGORITHM.parameters(name))
  fits = {"client": f"any rule; default {of_method.default_client(choice)}"}
  if choice.client == "plain":
    flags |= kinds.CLIENT.parameters("sgd")
    fits["client"] = "sgd only: it takes plain steps, not those of another rule"
  fits["server"] = "any rule; default sgd with step size 1, plain averaging"
  if choice.default_server is not None:
    fits["server"] = f"any rule; default {choice.default_server}"
  if choice.server == "none":
    fits["server"] = "none"
  elif choice.server == "rate":
    rate = kinds.SERVER.parameters("sgd")["server_lr"]
    interval = choice.server_interval or rate.interval
    flags["server_lr"] = rate._replace(interval=interval)
    fits["server"] = "sgd only, with step size server_lr"
  elif choice.server_rule is not None:
    flags |= kinds.SERVER.parameters(choice.server_rule)
    fits["server"] = f"{choice.server_rule}, always"
  fits["regularizer"] = "none"
  if choice.takes_regularizer:
    which = "penalty" if choice.needs_penalty else "penalty or constraint"
    fits["regularizer"] = f"any {which}; it needs one, or a task that has one"
  if choice.cohort != "sampled":
    whom = "all clients" if choice.cohort == "all" else "the first client"
    fits["cohort"] = f"{whom}, in each round"
  if choice.is_exact:
    fits["local work"] = "one step a round, along the exact gradient"
  if choice.takes_features:
    fits["task"] = "those of images, whose models have features"
  example = f"--algorithm={name}"
  if choice.takes_regularizer:
    example = f"--task=lasso {example} --client_lr=0.0003,0.001"
  elif choice.client == "plain":
    example += " --client_lr=0.01,0.1"
  elif choice.server_rule is not None:
    example += " --server_lr=0.01,0.1"
  return _Page(flags, fits, example)


# Rules.


def _client(name: str) -> _Page:
  choice = kinds.CLIENT.registry[name]
  flags = kinds.CLIENT.parameters(name)
  fits = {
    "algorithm": kinds.ALGORITHM.names(lambda each: each.client == "rule")
  }
  if choice.is_plain:
    fits["algorithm"] = "all"
  return _Page(flags, fits, f"--client={name}{_tried(flags)}")


def _server(name: str) -> _Page:
  choice = kinds.SERVER.registry[name]
  flags = kinds.SERVER.parameters(name)

  def takes(each: Any) -> bool:
    if each.server == "rate":
      return choice.is_plain
    return each.server == "rule" and each.server_rule in (None, name)

  fits = {"algorithm": kinds.ALGORITHM.names(takes)}
  return _Page(flags, fits, f"--server={name}{_tried(flags)}")


def _regularizer(name: str) -> _Page:
  choice = kinds.REGULARIZER.registry[name]
  flags = kinds.REGULARIZER.parameters(name)
  fits = {
    "algorithm": kinds.ALGORITHM.names(
      lambda each: (
        each.takes_regularizer and (choice.is_finite or not each.needs_penalty)
      )
    )
  }
  own = [task for task, each in tasks.TASKS.items() if each.regularizer == name]
  fits["task"] = "all" + (f"; of {', '.join(own)} it is the own" if own else "")
  task = next(
    (n for n in own if "data_dir" not in tasks.TASKS[n].takes), "lasso"
  )
  return _Page(
    flags,
    fits,
    f"--task={task} --algorithm=fed_dual_avg --regularizer={name}"
    f"{'' if own else _tried(flags)}",
  )


def _tried(flags: Mapping[str, Parameter]) -> str:
  """The first flag with values: two of a rate, else its default."""
  for flag, parameter in flags.items():
    value = parameter.default
    if flag.endswith("_lr"):
      return f" --{flag}={value / 10:g},{value:g}"
    if value is not None:
      return f" --{flag}={value:g}"
  return ""


# Clients, tasks, models.


def _partition(name: str) -> _Page:
  flags = kinds.PARTITION.parameters(name)
  fits = {"task": "those whose clients do not come with the data"}
  example = f"--partition={name} --num_clients=10{_tried(flags)}"
  return _Page(flags, fits, example)


def _sampler(name: str) -> _Page:
  flags = kinds.SAMPLER.parameters(name)
  given = "".join(f" --{flag}={_GROUPS}" for flag in flags)
  cohorts = kinds.ALGORITHM.names(lambda each: each.cohort != "sampled")
  fits = {"algorithm": f"all but {cohorts}"}
  return _Page(flags, fits, f"--sampler={name}{given}")


def _message(kind: Kind, name: str) -> _Page:
  flags = kind.parameters(name)
  fits = {"algorithm": "those that send differences of models, in one phase"}
  example = f"--{kind.flag}={name}{_tried(flags)}"
  if kind is kinds.AGGREGATOR:
    fits = {"algorithm": "all that average", "weighting": "uniform"}
    example = f"--weighting=uniform {example}"
    if name == "mean":
      fits, example = {"algorithm": "all"}, f"--aggregator={name}"
  elif kind is kinds.FAULT:
    example += " --faulty_fraction=0.1"
  return _Page(flags, fits, example)


def _privacy(name: str) -> _Page:
  flags = kinds.PRIVACY.parameters(name)
  fits = {
    "algorithm": "those that send one difference of models and nothing else",
    "weighting": "uniform",
    "sampler": "poisson or uniform",
  }
  example = (
    "--weighting=uniform --sampler=poisson --sampler_expected=20 "
    f"--cohort_size=40 --privacy={name}"
  )
  return _Page(flags, fits, example)


def _task(name: str) -> _Page:
  choice = tasks.TASKS[name]
  flags = kinds.TASK.parameters(name)
  fits = {"partition": "any"}
  if "data_file" in choice.takes:
    fits["partition"] = "any, if the file has no client_ids"
  elif choice.has_clients:
    fits["partition"] = "none: its clients come with the data"
  if choice.regularizer is not None:
    fits["regularizer"] = f"any; its own is {choice.regularizer}"
  defaults = [f"{flag} {value:g}" for flag, value in choice.defaults.items()]
  if defaults:
    fits["own defaults"] = ", ".join(defaults)
  if "pretrained" in choice.takes:
    fits["pretrained"] = "a folder of BERT or DistilBERT, or none"
  if choice.is_convex:
    fits["optimum"] = "yes: the loss is convex"
  data = " --data_dir=DIR" if "data_dir" in choice.takes else ""
  if name.partition("_")[0] == "digits":
    data = ""
  if "data_file" in choice.takes:
    data = " --data_file=FILE.npz"
  return _Page(flags, fits, f"--task={name}{data}")


def _model(name: str) -> _Page:
  of = [task for task in tasks.TASKS if task.endswith(f"_{name}")]
  data_sets = (*images.DATASETS, "npz")
  of = [task for task in of if task.removesuffix(f"_{name}") in data_sets]
  flags = kinds.TASK.parameters(of[0])
  data = "" if of[0].startswith("digits") else " --data_dir=DIR"
  return _Page(flags, {"task": ", ".join(of)}, f"--task={of[0]}{data}")


# All of them.


class _Of(NamedTuple):
  """A kind of choice: what one is called, all of them, and the page of one."""

  title: str
  kind: Any
  page: Callable[[str], _Page]

  @property
  def registry(self) -> Mapping[str, Any]:
    """name -> entry."""
    return getattr(self.kind, "registry", self.kind)


KINDS: dict[str, _Of] = {
  "algorithms": _Of("algorithm", kinds.ALGORITHM, _algorithm),
  "client rules": _Of("client rule", kinds.CLIENT, _client),
  "server rules": _Of("server rule", kinds.SERVER, _server),
  "regularizers": _Of("regularizer", kinds.REGULARIZER, _regularizer),
  "partitions": _Of("partition", kinds.PARTITION, _partition),
  "samplers": _Of("sampler", kinds.SAMPLER, _sampler),
  **{
    f"{kind.flag}s": _Of(kind.flag, kind, functools.partial(_message, kind))
    for kind in (kinds.UPLOAD, kinds.AGGREGATOR, kinds.FAULT)
  },
  "privacy": _Of("mechanism of privacy", kinds.PRIVACY, _privacy),
  "tasks": _Of("task", kinds.TASK, _task),
  "models": _Of("model", images.MODELS, _model),
}


def names() -> list[str]:
  """Every name that there is, once."""
  return list(dict.fromkeys(n for of in KINDS.values() for n in of.registry))


def page(name: str) -> str:
  """The help of a choice; of each, if several kinds have that name."""
  pages = [_page(of, name) for of in KINDS.values() if name in of.registry]
  return "\n\n".join(pages)


def _page(of: _Of, name: str) -> str:
  choice, about = of.registry[name], of.page(name)
  lines = [f"{name} ({of.title})", layout.paragraph(f"{choice.help}.")]
  source = source_of(choice)
  if source:
    lines.append(layout.paragraph(f"Source: {source}"))
  if about.flags:
    entries = (
      layout.entry(flag, _of_flag(flag, parameter))
      for flag, parameter in about.flags.items()
    )
    lines += ["", "Its flags:", *entries]
  lines += ["", "It goes with:", layout.pairs(about.fits)]
  lines += ["", "Example:", layout.command(f"{_RUN} {about.example}")]
  return "\n".join(lines)


def example(kind: str, name: str) -> str:
  """The flags of a choice's example."""
  return KINDS[kind].page(name).example


def _of_flag(flag: str, parameter: Parameter) -> str:
  """What a flag is with this choice alone."""
  is_list = defined()[flag].help.startswith("[list]")
  first, *lines = describe(parameter).split("\n")
  first = f"{'[list] ' if is_list else ''}{first}."
  default = shown_default(parameter.default)
  if default:
    first += f" Default: {default}."
  return "\n".join([first, *lines])


def source_of(choice: Choice) -> str:
  """The paper in the docstring of what a choice makes, if it names one."""
  factory = getattr(choice, "factory", None)
  while isinstance(factory, functools.partial):
    factory = factory.func
  if not getattr(factory, "__module__", "").startswith("fedjax_opt."):
    return ""
  text = inspect.getdoc(factory) or ""
  section = r"^(?:References|Source):\s+(.+?)(?:\n\n|\Z)"
  found = re.search(section, text, re.MULTILINE | re.DOTALL)
  return " ".join(found[1].split()) if found else ""


# The list.


def listed(word: str | None, intro: str = "") -> str:
  """What `--list` or `--list=KIND` prints: a line for each choice.

  Raises:
    ValueError: if there is no such kind.
  """
  del intro
  kinds = list(KINDS)
  if word is not None:
    wanted = re.sub(r"[^a-z]", "", word.lower())
    forms = {wanted, wanted.removesuffix("s")} - {""}
    kinds = [kind for kind in KINDS if _is_called(kind, forms)]
    if not kinds:
      raise ValueError(
        f"list={word!r}: no such kind; must be one of {', '.join(KINDS)}"
      )
  return "\n\n".join(map(_lines, kinds))


def _is_called(kind: str, forms: set[str]) -> bool:
  words = [kind.replace(" ", ""), *kind.split()]
  return any(word.startswith(form) for word in words for form in forms)


def _lines(kind: str) -> str:
  registry = KINDS[kind].registry
  width = max(map(len, registry))
  lines = [
    layout.one_line(name, choice.help.partition(";")[0], width)
    for name, choice in registry.items()
  ]
  return "\n".join([f"{kind[0].upper()}{kind[1:]}:", *lines])
