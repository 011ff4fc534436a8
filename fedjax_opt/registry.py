"""What can be chosen by name, and what it can be tuned by.

A registry is a dictionary from names to entries: `rules.RULES`,
`algorithms.ALGORITHMS`, `prox.REGULARIZERS`, `partition.SCHEMES`. An entry has
a factory, what people call it, and which of the factory's arguments can be set
by name; what else the factory takes is read from its signature. The flags of
the command line, their checks, the names in reports, the tables of the site and
the tests that go over all names are made from the registries, so that a new
entry is all they need.
"""

import dataclasses
import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import Field, Rate


class Hyperparameter(NamedTuple):
  """An argument of a factory that can be set by name.

  Attributes:
    name: name of the argument.
    default: default on the command line. A bool marks a switch, and an int a
      whole number if `accepts` is an interval. None leaves the value to the
      factory.
    help: meaning and unit, for the help; it may go on with a list, one entry a
      line.
    accepts: values allowed: an interval of numbers, such as "(0, inf)" or
      "[0, 1)", or a field, such as `fields.one_of("none", "flip")`.
    reads: `(name, text) -> value`, makes what the factory takes of a text of
      the command line, or raises ValueError; None if it takes it as it is.
    is_required: whether it must be given.
    flag: its name on the command line, where another entry has a flag of its
      name; None for the usual one.
    label: its name for people, such as "largest step size"; plain words if
      None.
    may_differ: of a task, whether methods that are compared on it may differ
      in the argument.
  """

  name: str
  default: float | bool | str | None
  help: str
  accepts: str | Field = "(-inf, inf)"
  reads: Callable[[str, str], Any] | None = None
  is_required: bool = False
  flag: str | None = None
  label: str | None = None
  may_differ: bool = False

  @property
  def field(self) -> Field:
    """What it may be."""
    if isinstance(self.accepts, Field):
      return self.accepts
    if isinstance(self.default, bool):
      return fields.SWITCH
    value_type = int if isinstance(self.default, int) else float
    return fields.plain_number(self.accepts, value_type=value_type)

  @property
  def is_tunable(self) -> bool:
    """Whether a grid can have several values of it."""
    return self.field.value_type is float

  def check(self, name: str, value: Any) -> None:
    """Checks a value of the command line.

    Args:
      name: what to call the hyperparameter in messages.
      value: the value.

    Raises:
      ValueError: if it is not allowed.
      TypeError: if it is of another type.
    """
    value = value if self.reads is None else self.reads(name, str(value))
    self.field.check(name, value)


def read_leaf_paths(name: str, text: str) -> tuple[str, ...]:
  """The paths of leaves of a model, or their beginnings, between commas.

  Raises:
    ValueError: if one is empty.
  """
  paths = tuple(path.strip().strip("/") for path in text.split(","))
  if not all(paths):
    raise ValueError(
      f"{name}={text!r}: must be paths of leaves between commas, such as "
      "output or layers_1,output/kernel"
    )
  return paths


def _check_is_file(name: str, path: str) -> None:
  if not os.path.isfile(os.path.expanduser(path)):
    raise ValueError(f"{name}={path!r}: there is no such file")


FILE = Field(_check_is_file)


def file_path(help: str, flag: str) -> Hyperparameter:
  """The argument `path` of a factory, the path of a file that exists."""
  return Hyperparameter("path", None, help, FILE, is_required=True, flag=flag)


# What an algorithm shares with partitions or rules, so that its flag is longer.
_SHARED_NAMES = ("alpha", "eps", "momentum")


def from_factory(
  factory: Callable[..., Any],
  *names: str,
  has_whole_help: bool = False,
  **overrides: Any,
) -> tuple[Hyperparameter, ...]:
  """Hyperparameters of a factory that says what its arguments may be.

  All is the factory's own: order, defaults, intervals, and the help, from the
  Args section of its docstring.

  Args:
    factory: one with `checked_fields`, see `checks.fields`.
    *names: of the arguments.
    has_whole_help: whether the help is all that the docstring says, or only
      what is before a semicolon or full stop.
    **overrides: further arguments, each with another default than in the
      factory, or with a dict of attributes of `Hyperparameter`.
  """
  parameters, helps = inspect.signature(factory).parameters, meanings(factory)
  changes = {
    name: change if isinstance(change, dict) else {"default": change}
    for name, change in overrides.items()
  }

  def parameter_of(name):
    help = helps.get(name, name)
    help = help.removesuffix(".") if has_whole_help else _first_phrase(help)
    accepts = factory.checked_fields[name]
    parameter = Hyperparameter(name, parameters[name].default, help, accepts)
    parameter = parameter._replace(**changes.get(name, {}))
    if parameter.default is inspect.Parameter.empty:
      return parameter._replace(default=None, is_required=True)
    return parameter

  return tuple(
    parameter_of(name) for name in parameters if name in {*names, *overrides}
  )


# As `from_factory`, with all that the docstring says of each.
documented = functools.partial(from_factory, has_whole_help=True)


def _numbers_of(factory: Callable[..., Any]) -> tuple[Hyperparameter, ...]:
  """The keyword arguments that an algorithm has free, if they are numbers."""
  function, keywords = _unwrapped(factory), getattr(factory, "keywords", ())
  parameters = inspect.signature(function).parameters
  names = [
    name
    for name in getattr(function, "checked_fields", ())
    if parameters[name].kind == inspect.Parameter.KEYWORD_ONLY
    and function.checked_fields[name].value_type is not str
    and name not in keywords
  ]
  flags = {
    name: {"flag": f"algorithm_{name}"}
    for name in names
    if name in _SHARED_NAMES
  }
  return from_factory(function, *names, **flags)


def _unwrapped(factory: Callable[..., Any]) -> Any:
  """The function itself, where a `functools.partial` gives some arguments."""
  return getattr(factory, "func", factory)


def _summary(factory: Callable[..., Any]) -> str:
  """The first line of a docstring, as a part of a sentence."""
  text = (inspect.getdoc(_unwrapped(factory)) or "").partition("\n")[0]
  text = text.removesuffix(".").replace("`", "")
  first = text.partition(" ")[0]
  return text if first[1:] != first[1:].lower() else text[:1].lower() + text[1:]


def meanings(target: Callable[..., Any]) -> dict[str, str]:
  """Name -> what the docstring of a function or class says of it.

  These are arguments or attributes. Lines that begin with `- word: ` are a
  list, each entry a line.
  """
  docstring = inspect.getdoc(target) or ""
  _, *parts = re.split(r"^  (\w+): ", docstring, flags=re.MULTILINE)
  texts = (text.partition("\n\n")[0] for text in parts[1::2])
  return dict(zip(parts[::2], map(_in_lines, texts), strict=True))


def _in_lines(text: str) -> str:
  """A text in one line, and a line for each entry of its list."""
  first, *items = (
    " ".join(part.split()) for part in re.split(r"\n +- (?=\w+: )", text)
  )
  entries = dict(item.split(": ", 1) for item in items)
  width = max(map(len, entries), default=0)
  return "\n".join([first, *(f"{n:{width}}  {t}" for n, t in entries.items())])


def _first_phrase(text: str) -> str:
  """A text up to a semicolon or full stop, without `whether`."""
  return re.sub("^whether (to )?", "", re.split(r"; |\. |\.$", text)[0])


@dataclasses.dataclass(frozen=True)
class Entry:
  """An entry of a registry.

  Attributes:
    factory: function that makes the rule, the algorithm, ...
    help: one line; if empty, the first of the factory's docstring.
    hyperparameters: arguments of the factory that can be set by name.
    label: its name for people, such as "FedAvg"; plain words if None.
  """

  factory: Callable[..., Any]
  help: str = ""
  hyperparameters: tuple[Hyperparameter, ...] = ()
  label: str | None = dataclasses.field(default=None, kw_only=True)

  def __post_init__(self):
    if not self.help:
      object.__setattr__(self, "help", _summary(self.factory))

  @functools.cached_property
  def arguments(self) -> Mapping[str, inspect.Parameter]:
    """The arguments of the factory."""
    return fields.parameters_of(self.factory)

  def takes(self, argument: str) -> bool:
    """Whether the factory takes an argument, such as `psi`, a regularizer."""
    return argument in self.arguments


@dataclasses.dataclass(frozen=True)
class RuleEntry(Entry):
  """A client or server rule; its factory takes nothing but hyperparameters.

  Attributes:
    is_plain: whether it is gradient descent with nothing else, the rule of
      algorithms that are made of plain steps.
    fits_server: whether it can be a server rule, which has neither the loss
      nor the gradient at another point.
    server_learning_rate: default of `learning_rate` at the server; that of the
      hyperparameter if None.
    traced: fields of the rule's state that `--trace` records.
  """

  is_plain: bool = False
  fits_server: bool = True
  server_learning_rate: float | None = None
  traced: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class AlgorithmEntry(Entry):
  """A federated algorithm.

  Its factory takes what it needs by name: `loss_fn`; any rule as `client` and
  `server`, or, where steps are plain ones, `learning_rate` and
  `server_learning_rate`; a regularizer as `psi`; `features_fn`.

  Attributes:
    hyperparameters: if None, the numbers and switches among the factory's
      keyword arguments, without those that a `functools.partial` has given.
    server_rule: name of the server rule, if the name of the algorithm implies
      it; None if it can be chosen.
    default_client: name of the client rule where none is chosen; None for
      that of the command line.
    default_server: likewise of the server rule.
    needs_penalty: whether psi must be finite everywhere, that is, no
      constraint.
    is_personal: whether the clients' own models are what it is for, so that
      they are measured.
    cohort: "sampled" for any number of clients; "all" if all clients must be
      in the cohort; "first" if only the first client takes part.
    is_exact: whether a round is one step along exact gradients, so that there
      are neither batches nor local steps.
  """

  hyperparameters: tuple[Hyperparameter, ...] | None = None
  server_rule: str | None = None
  default_client: str | None = None
  default_server: str | None = None
  needs_penalty: bool = False
  is_personal: bool = False
  cohort: Literal["sampled", "all", "first"] = "sampled"
  is_exact: bool = False

  def __post_init__(self):
    super().__post_init__()
    if self.hyperparameters is None:
      hyperparameters = _numbers_of(self.factory)
      object.__setattr__(self, "hyperparameters", hyperparameters)

  @property
  def client_takes(self) -> Literal["rule", "rate"]:
    """Whether it takes any client rule, or the rate of plain local steps."""
    return "rate" if self.takes("learning_rate") else "rule"

  @property
  def server_takes(self) -> Literal["rule", "rate", "none"]:
    """Whether it takes any server rule, the rate of plain steps, or neither."""
    if self.takes("server_learning_rate"):
      return "rate"
    return "rule" if self.takes("server") else "none"

  @property
  def rate_may_drop(self) -> bool:
    """Whether the clients' rate may be a function of the round."""
    rate = self.arguments.get("learning_rate")
    return rate is None or rate.annotation == Rate

  @property
  def rates(self) -> dict[str, dict[str, Any]]:
    """What the factory says of the rates of plain steps that it takes.

    Returns:
      `learning_rate` or `server_learning_rate` -> attributes that its
      `Hyperparameter` has here: the default and the range, as far as they are
      its own.
    """
    own_fields = getattr(_unwrapped(self.factory), "checked_fields", {})
    rates = {}
    for name in ("learning_rate", "server_learning_rate"):
      if self.takes(name):
        rates[name] = {}
        default = self.arguments[name].default
        field = own_fields.get(name)
        if default is not inspect.Parameter.empty:
          rates[name]["default"] = default
        if field is not None and field.value_type is float:
          rates[name]["accepts"] = field
    return rates


@dataclasses.dataclass(frozen=True)
class RegularizerEntry(Entry):
  """A regularizer.

  Attributes:
    is_finite: whether it is finite everywhere: a penalty, no constraint.
  """

  is_finite: bool = True


_REGISTRIES: list[Mapping[str, Entry]] = []


def register(registry: Mapping[str, Entry]) -> None:
  """Makes known the labels of a registry, also of entries that come later."""
  _REGISTRIES.append(registry)


def label_of_entry(name: str) -> str | None:
  """The name for people of an entry of a registry, if it has one."""
  names = (registry[name].label for registry in _REGISTRIES if name in registry)
  return next(filter(None, names), None)


def label_of_hyperparameter(name: str) -> str | None:
  """The name for people of an argument of some entry, if it has one."""
  labels = (
    parameter.label
    for registry in _REGISTRIES
    for entry in registry.values()
    for parameter in entry.hyperparameters
    if name in (parameter.name, parameter.flag)
  )
  return next(filter(None, labels), None)


def entries_with(registry: Mapping[str, Entry], parameter: str) -> list[str]:
  """The names of a registry that have a hyperparameter of this name."""
  return [
    name
    for name, entry in registry.items()
    if parameter in {p.name for p in entry.hyperparameters}
  ]
