"""What can be chosen by name, and what it can be tuned by.

A registry is a dictionary from names to choices: `rules.RULES`,
`algorithms.ALGORITHMS`, `prox.registry.REGULARIZERS`, `partition.SCHEMES`. A
choice says what its factory takes and what people call it. The flags of the
command line, their checks, the names in reports, the tables of the site and the
tests that go over all names are made from the registries, so that a new entry
is all they need; `tests/test_choices.py` compares what each choice says with
the signature of its factory.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from fedjax_opt.checks import values as checks
from fedjax_opt.checks.values import check_choice as check_choice
from fedjax_opt.checks.values import nearest as nearest


class Hyperparameter(NamedTuple):
  """A numeric argument of a factory.

  Attributes:
    name: name of the argument.
    default: default on the command line. An int marks a whole number, a bool a
      switch. None leaves the value to the factory.
    help: meaning and unit, for the help.
    interval: values allowed, such as "(0, inf)" or "[0, 1)".
    is_static: whether it is a whole number that shapes the program, so that it
      cannot be tuned in a grid.
    takes_range: whether the command line also takes LOW-HIGH, such as 100-500.
    flag: its name on the command line, where another choice has a flag of its
      name; None for the usual one.
    label: its name for people, such as "largest step size"; plain words if
      None.
  """

  name: str
  default: float | bool | None
  help: str
  interval: str = "(-inf, inf)"
  is_static: bool = False
  takes_range: bool = False
  flag: str | None = None
  label: str | None = None

  @property
  def is_tuned(self) -> bool:
    """Whether a grid can have several values of it."""
    return not (self.is_static or isinstance(self.default, bool))

  def check(self, value: float, flag: str | None = None) -> None:
    """Checks that a value is allowed.

    Args:
      value: value to be checked.
      flag: what to call the hyperparameter in the message; its name if None.

    Raises:
      TypeError: if it is no number, no whole one where it must be, or neither
        True nor False where it is a switch.
      ValueError: if it is outside of the interval.
    """
    name = flag or self.name
    if isinstance(self.default, bool):
      checks.switch(name, value)
      return
    if getattr(value, "shape", None) == ():  # An array that is one number.
      value = value.item()
    checks.number(name, value)
    whole = self.is_static or isinstance(self.default, int)
    # An infinite value is allowed only where the interval is closed there.
    if not checks.is_in(value, self.interval) or (whole and value % 1):
      shown = value if isinstance(value, int) else f"{value:g}"
      wanted = "a whole number in" if whole else "in"
      raise ValueError(f"{name}={shown}: must be {wanted} {self.interval}")
    if whole:
      checks.whole(name, value)
    if whole and value > checks.LARGEST and self.interval.endswith("inf)"):
      raise ValueError(f"{name}={value}: must be at most {checks.LARGEST}")


def arguments(
  factory: Callable[..., Any],
  flags: Mapping[str, str] | None = None,
  /,
  **helps: str,
) -> tuple[Hyperparameter, ...]:
  """Hyperparameters of a factory that says what its arguments may be.

  Defaults and intervals are the factory's own.

  Args:
    factory: one with `fields`, see `checks.fields`.
    flags: argument -> its name on the command line, where it is another.
    **helps: meaning and unit of each.
  """
  parameters = inspect.signature(factory).parameters
  return tuple(
    Hyperparameter(
      name,
      parameters[name].default,
      help,
      factory.fields[name].interval,
      is_static=parameters[name].annotation in (int, int | None),
      flag=(flags or {}).get(name),
    )
    for name, help in helps.items()
  )


class Option(NamedTuple):
  """An argument of a factory that is one of a few words.

  Attributes:
    name: name of the argument.
    default: default on the command line.
    help: meaning, for the help; it may go on with a list, one entry a line.
    accepted: words allowed.
    refusal: message for a choice that does not have the option, after
      "NAME=VALUE: ", with "{chosen}" for the name of that choice; "" for the
      message of `check_belongs`.
    may_differ: of a task, whether methods that are compared on it may differ
      in the option.
    label: its name for people; plain words if None.
  """

  name: str
  default: str
  help: str
  accepted: tuple[str, ...]
  refusal: str = ""
  may_differ: bool = False
  label: str | None = None

  @property
  def is_tuned(self) -> bool:
    """Whether a grid can have several values of it: words are not tuned."""
    return False

  def check(self, value: str, flag: str | None = None) -> None:
    """Raises ValueError if the value is not allowed."""
    check_choice(flag or self.name, value, self.accepted)


class Paths(NamedTuple):
  """An argument of a factory that names leaves of the model.

  Attributes:
    name: name of the argument.
    default: default on the command line, paths between commas; None if there
      is none.
    help: meaning, for the help.
    label: its name for people; plain words if None.
  """

  name: str
  default: str | None
  help: str
  label: str | None = None

  @property
  def is_tuned(self) -> bool:
    """Whether a grid can have several values of it: paths are not tuned."""
    return False

  def check(self, value: str, flag: str | None = None) -> None:
    """Raises ValueError if a path is empty."""
    if not all(self.of(value)):
      raise ValueError(
        f"{flag or self.name}={value!r}: must be paths of leaves between "
        "commas, such as output or layers_1,output/kernel"
      )

  def of(self, value: str) -> tuple[str, ...]:
    """The paths, as the factory takes them."""
    return tuple(path.strip().strip("/") for path in value.split(","))


Parameter = Hyperparameter | Option | Paths


@dataclasses.dataclass(frozen=True)
class Choice:
  """An entry of a registry.

  Attributes:
    factory: function that makes the rule, the algorithm, ...
    help: one line.
    hyperparameters: arguments of the factory that can be set by name.
    label: its name for people, such as "FedAvg"; plain words if None.
  """

  factory: Callable[..., Any]
  help: str
  hyperparameters: tuple[Parameter, ...] = ()
  label: str | None = dataclasses.field(default=None, kw_only=True)


@dataclasses.dataclass(frozen=True)
class RuleChoice(Choice):
  """A client or server rule; its factory takes nothing but hyperparameters.

  Attributes:
    is_plain: whether it is gradient descent with nothing else, the rule of
      algorithms that are made of plain steps.
    fits_server: whether it can be a server rule, which has neither the loss
      nor the gradient at another point.
    server_learning_rate: default of `learning_rate` at the server; that of the
      hyperparameter if None.
    own_names: hyperparameters that keep the paper's own name on the command
      line; the others get `client_` or `server_` in front. Only for rules that
      do not fit the server.
    traced: fields of the rule's state that `--trace` records.
  """

  is_plain: bool = False
  fits_server: bool = True
  server_learning_rate: float | None = None
  own_names: tuple[str, ...] = ()
  traced: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class AlgorithmChoice(Choice):
  """A federated algorithm. Every factory takes `loss_fn`.

  Attributes:
    client: "rule" if the factory takes `client`, any client rule; "plain" if
      it takes `learning_rate` instead, because local steps are plain ones.
    why_plain: why they are, after "algorithm NAME".
    rate_may_drop: whether the clients' rate may be a function of the round.
    server: "rule" if the factory takes `server`, any server rule; "rate" if it
      takes `server_learning_rate`; "none" if it takes neither.
    server_rule: name of the server rule, if the name of the algorithm implies
      it; None if it can be chosen.
    server_interval: values allowed for the server's rate; those of the rule if
      None.
    default_client: name of the client rule where none is chosen; None for that
      of the command line.
    default_server: likewise of the server rule.
    takes_regularizer: whether the factory takes `psi`.
    needs_penalty: whether psi must be finite everywhere, that is, no
      constraint.
    takes_features: whether the factory takes `features_fn`.
    is_personal: whether the clients' own models are what it is for, so that
      they are measured.
    cohort: "sampled" for any number of clients; "all" if all clients must be
      in the cohort; "first" if only the first client takes part.
    is_exact: whether a round is one step along exact gradients, so that there
      are neither batches nor local steps.
  """

  client: Literal["rule", "plain"] = "rule"
  why_plain: str = "is made of plain steps"
  rate_may_drop: bool = True
  server: Literal["rule", "rate", "none"] = "rule"
  server_rule: str | None = None
  server_interval: str | None = None
  default_client: str | None = None
  default_server: str | None = None
  takes_regularizer: bool = False
  needs_penalty: bool = False
  takes_features: bool = False
  is_personal: bool = False
  cohort: Literal["sampled", "all", "first"] = "sampled"
  is_exact: bool = False


@dataclasses.dataclass(frozen=True)
class RegularizerChoice(Choice):
  """A regularizer.

  Attributes:
    is_finite: whether it is finite everywhere: a penalty, no constraint.
  """

  is_finite: bool = True


@dataclasses.dataclass(frozen=True)
class PartitionChoice(Choice):
  """A way to divide examples among clients.

  Attributes:
    takes_ids: whether the factory takes the client of each example instead of
      labels, so that there is nothing to choose.
  """

  takes_ids: bool = False


_REGISTRIES: list[Mapping[str, Choice]] = []


def register(registry: Mapping[str, Choice]) -> None:
  """Makes known the labels of a registry, also of entries that come later."""
  _REGISTRIES.append(registry)


def label_of_choice(name: str) -> str | None:
  """The name for people of an entry of a registry, if it has one."""
  found = (each[name].label for each in _REGISTRIES if name in each)
  return next(filter(None, found), None)


def label_of_hyperparameter(name: str) -> str | None:
  """The name for people of an argument of some entry, if it has one."""
  found = (
    parameter.label
    for registry in _REGISTRIES
    for choice in registry.values()
    for parameter in choice.hyperparameters
    if name in (parameter.name, getattr(parameter, "flag", None))
  )
  return next(filter(None, found), None)


def owners(registry: Mapping[str, Choice], parameter: str) -> list[str]:
  """The names of a registry that have a hyperparameter of this name."""
  return [
    name
    for name, choice in registry.items()
    if parameter in {p.name for p in choice.hyperparameters}
  ]


def check_belongs(
  name: str,
  value: Any,
  kind: str,
  chosen: str,
  owners: Iterable[str],
  hint: str = "",
) -> None:
  """Raises ValueError if a hyperparameter is none of what was chosen.

  Args:
    name: name of the hyperparameter.
    value: its value.
    kind: kind of choice: "client", "partition", ...
    chosen: name that was chosen.
    owners: all names of that kind that have the hyperparameter.
    hint: end of the message.
  """
  owners = list(owners)
  if chosen in owners:
    return
  belongs = f"belongs to {kind} {', '.join(owners)}" if owners else "unknown"
  raise ValueError(f"{name}={value}: {belongs}, not to {kind} {chosen}{hint}")
