"""From flags to grid and algorithm.

The flags of rules, algorithms and regularizers come from their registries: a
new entry there is a new flag here.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from absl import flags

from experiments import command_line
from fedjax_opt.algorithms import ALGORITHMS, SERVER_RULES
from fedjax_opt.base import Algorithm
from fedjax_opt.hyperparameters import (
  Choice,
  Hyperparameter,
  check_belongs,
  check_choice,
)
from fedjax_opt.models import statistics
from fedjax_opt.prox.registry import REGULARIZERS
from fedjax_opt.rules import RULES, step_decay

FLAGS = flags.FLAGS

# Names that many rules share get their side as a prefix. The papers' own names
# (gamma, delta, eta_0, mu, ...) stay as they are.
_SHARED = {
  "learning_rate": "lr",
  "momentum": "momentum",
  "b1": "b1",
  "b2": "b2",
  "eps": "eps",
  "initial_accumulator": "initial_accumulator",
  "c": "c",
  "f_min": "f_min",
  "max_step": "max_step",
}

# The server has neither the loss nor the gradient at another point.
SERVERS = {
  name: rule for name, rule in RULES.items() if name not in ("sps", "delta_sgd")
}

# Averaging is a server step of size 1. The others are as at clients, which for
# Adam is how the Delta-SGD paper ran it; Adagrad's steps only get shorter.
_SERVER_DEFAULTS = {"sgd": 1.0, "sgdm": 1.0, "adagrad": 0.1}

_SEED = Hyperparameter("seed", 0, "of everything random", "[0, 4294967295]")

# For the algorithms that have none.
_NONE = Choice(lambda: None, "none")


class Part(NamedTuple):
  """Something that was chosen by name, with its flags."""

  kind: str  # "algorithm", "client", "server" or "regularizer"
  name: str
  choice: Choice

  def flags(self) -> dict[str, Hyperparameter]:
    """Its hyperparameters by flag name, with the defaults on this side."""
    named = {}
    for parameter in self.choice.hyperparameters:
      flag = parameter.name
      if self.kind in ("client", "server") and flag in _SHARED:
        flag = f"{self.kind}_{_SHARED[flag]}"
      if flag == "server_lr" and self.name in _SERVER_DEFAULTS:
        parameter = parameter._replace(default=_SERVER_DEFAULTS[self.name])
      named[flag] = parameter
    return named

  def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of its factory, from values by flag name."""
    return {p.name: values[flag] for flag, p in self.flags().items()}

  def takes(self, argument: str) -> bool:
    """Whether its factory has this argument."""
    return argument in inspect.signature(self.choice.factory).parameters

  def has(self, kind: str) -> bool:
    """Whether an algorithm has a part of this kind."""
    if kind == "regularizer":
      return self.takes("psi")
    if kind == "server":
      return self.takes("server") or self.takes("server_learning_rate")
    return True

  @property
  def is_plain(self) -> bool:
    """Whether an algorithm is made of plain steps, not of a client's rule."""
    return self.takes("learning_rate")

  def make(self, values: Mapping[str, Any], **others: Any) -> Any:
    """What its factory makes of values by flag name, and other arguments."""
    return self.choice.factory(**self.arguments(values), **others)


_REGISTRIES = {
  "algorithm": ALGORITHMS,
  "client": RULES,
  "server": SERVERS,
  "regularizer": REGULARIZERS,
}


def parts(kind: str) -> list[Part]:
  """Everything of a kind that can be chosen by name."""
  return [Part(kind, *entry) for entry in _REGISTRIES[kind].items()]


def define_flags(client_lr: Mapping[str, float]) -> None:
  """Defines the choices, and one flag for each of their hyperparameters.

  Args:
    client_lr: the tasks that have a default of their own.
  """
  with command_line.group("Algorithm"):
    flags.DEFINE_string(
      "algorithm",
      "fed_avg",
      f"What a round does.{command_line.listed(ALGORITHMS)}",
    )
    _define_hyperparameters("algorithm")
  with command_line.group("Clients' rule"):
    flags.DEFINE_string(
      "client",
      None,
      "How a client takes a local step. Default: delta_sgd; sgd for the "
      f"algorithms that take no other: {_those_that_are_plain()}."
      f"{command_line.listed(RULES)}",
    )
    flags.DEFINE_string(
      "client_schedule",
      "constant",
      "Clients' learning rate over rounds: constant, or step_decay, divided by "
      "10 at each of client_milestones.",
    )
    flags.DEFINE_string(
      "client_milestones",
      None,
      "Fractions of the rounds after which step_decay divides the rate, "
      "between commas. Default: 0.5,0.75.",
    )
    _define_hyperparameters("client")
    own = ", ".join(f"{task} {rate:g}" for task, rate in client_lr.items())
    FLAGS["client_lr"].help += f" Tasks with a default of their own: {own}."
  with command_line.group("Server's rule"):
    flags.DEFINE_string(
      "server",
      None,
      "How the server uses the mean of the clients' differences as a gradient: "
      f"{', '.join(SERVERS)}. Default: sgd with step size 1, which is plain "
      "averaging, or what the algorithm's name says; algorithms of plain steps "
      "take only sgd, some have none.",
    )
    _define_hyperparameters("server")
  with command_line.group("Regularizer"):
    flags.DEFINE_string(
      "regularizer",
      None,
      f"What {_those_with('regularizer')} add to the loss: a penalty, or a "
      "constraint on the radius or sign. w is each kernel by itself, without "
      f"biases. Default: the task's own.{command_line.listed(REGULARIZERS)}",
    )
    _define_hyperparameters("regularizer")


def _those_with(kind: str) -> str:
  return ", ".join(part.name for part in parts("algorithm") if part.has(kind))


def _those_that_are_plain() -> str:
  return ", ".join(p.name for p in parts("algorithm") if p.is_plain)


def _define_hyperparameters(kind: str) -> None:
  """Defines one flag for each hyperparameter of the parts of a kind."""
  meanings: dict[str, dict[str, list[str]]] = {}
  defined: dict[str, Hyperparameter] = {}
  for part in parts(kind):
    for flag, parameter in part.flags().items():
      defined[flag] = parameter
      default = part.name
      if parameter.default is True:
        default += " true"
      elif parameter.default not in (None, False):
        default += f" {parameter.default:g}"
      text = f"{parameter.help[0].upper()}{parameter.help[1:]}"
      if parameter.interval != "(-inf, inf)":
        text += f", in {parameter.interval}"
      meanings.setdefault(flag, {}).setdefault(text, []).append(default)
  for flag, uses in meanings.items():
    text = " ".join(f"{use} ({', '.join(of)})." for use, of in uses.items())
    if isinstance(defined[flag].default, bool):
      flags.DEFINE_bool(flag, None, text)
    elif defined[flag].is_static:
      flags.DEFINE_integer(flag, None, text)
    else:
      flags.DEFINE_string(flag, None, f"[list] {text}")


class Setup(NamedTuple):
  """What was chosen, and the numbers it runs with."""

  algorithm: Part
  client: Part
  server: Part
  regularizer: Part
  grid: dict[str, list[float]]  # flag -> values, what is tuned
  static: dict[str, Any]  # flag -> value, what is not
  # The fractions of the rounds after which the clients' learning rate drops.
  milestones: tuple[float, ...]

  def resolved(self) -> dict[str, Any]:
    """The value of every flag of the rules and the algorithm."""
    grid = {flag: single_or_list(values) for flag, values in self.grid.items()}
    parts = (self.client, self.server, self.regularizer)
    names = {p.kind: p.name for p in parts if self.algorithm.has(p.kind)}
    if self.milestones:
      fractions = ",".join(f"{fraction:g}" for fraction in self.milestones)
      names["client_milestones"] = fractions
    return names | grid | self.static

  def make(
    self, loss_fn, features_fn, rounds: int, has_statistics: bool = False
  ) -> Callable[..., Algorithm]:
    """`(**hyperparameters by flag) -> Algorithm`, for `sweep`.

    Args:
      loss_fn: of the task.
      features_fn: of the task.
      rounds: R.
      has_statistics: whether its model has running statistics.
    """
    of_model = statistics.follow if has_statistics else lambda rule: rule

    def rate(values: Mapping[str, Any]) -> Any:
      """The clients' learning rate, or the function from a round to it."""
      if not self.milestones:
        return values["client_lr"]
      return lambda round: (
        values["client_lr"] * step_decay(round, rounds, self.milestones)
      )

    def rule(values: Mapping[str, Any]) -> Any:
      if not self.milestones:
        return of_model(self.client.make(values))
      return lambda round: of_model(
        self.client.make(values | {"client_lr": rate(values)(round)})
      )

    def make(**values: Any) -> Algorithm:
      values = {**values, **self.static}
      others = {"loss_fn": loss_fn}
      if self.algorithm.takes("features_fn"):
        others["features_fn"] = features_fn
      if self.algorithm.takes("psi"):
        others["psi"] = self.regularizer.make(values)
      if self.algorithm.is_plain:
        others["learning_rate"] = rate(values)
        if self.algorithm.has("server"):
          others["server_learning_rate"] = values["server_lr"]
      else:
        others["client"] = rule(values)
        others["server"] = of_model(self.server.make(values))
      return self.algorithm.make(values, **others)

    return make


def resolve(
  flag: Mapping[str, Any],
  regularizer: str | None = None,
  client_lr: float | None = None,
) -> Setup:
  """Checks the flags of rules and algorithm, and fills in their defaults.

  Args:
    flag: values of all flags; a hyperparameter that was not given is None.
    regularizer: the task's own.
    client_lr: the task's own.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  algorithm = _part("algorithm", flag["algorithm"])
  chosen = [
    algorithm,
    _client(flag, algorithm),
    _server(flag, algorithm),
    _regularizer(flag, regularizer, algorithm),
  ]
  for part in chosen:
    _check_no_others(flag, part)
  taken: dict[str, Hyperparameter] = {}
  for part in chosen:
    taken |= part.flags()

  milestones = _milestones(flag)
  if milestones and "client_lr" not in taken:
    raise ValueError(
      f"client_schedule='step_decay': client {chosen[1].name} has no learning "
      "rate that could drop; must be constant"
    )
  if milestones and algorithm.name in ("centralized", "local"):
    raise ValueError(
      f"client_schedule='step_decay': algorithm {algorithm.name} has one rate "
      "for all rounds; must be constant"
    )

  grid, static = {}, {}
  for name, parameter in taken.items():
    default = parameter.default
    if name == "client_lr" and client_lr is not None:
      default = client_lr
    if name == "server_lr" and algorithm.takes("mu_s"):
      # alpha: what clients infer of the server's momentum is divided by it.
      parameter = parameter._replace(interval="(0, inf)")
    value = _given(flag[name], default)
    if not parameter.is_tuned:
      static[name] = value
      if value is not None and parameter.is_static:
        parameter.check(value, name)
    else:
      grid[name] = numbers(name, value)
      for number in grid[name]:
        parameter.check(number, name)
  return Setup(*chosen, grid, static, milestones)


_FRACTION = Hyperparameter(
  "client_milestones", 0.5, "of the rounds, where the rate drops", "(0, 1)"
)


def _milestones(flag: Mapping[str, Any]) -> tuple[float, ...]:
  """The fractions of the rounds after which the rate drops; () for never."""
  schedule, given = flag["client_schedule"], flag["client_milestones"]
  check_choice("client_schedule", schedule, ["constant", "step_decay"])
  if schedule == "constant":
    if given is not None:
      raise ValueError(
        f"client_milestones={given}: belongs to client_schedule step_decay, "
        "not to constant"
      )
    return ()
  fractions = numbers("client_milestones", _given(given, "0.5,0.75"))
  for fraction in fractions:
    _FRACTION.check(fraction)
  return tuple(fractions)


def _part(kind: str, name: str) -> Part:
  check_choice(kind, name, _REGISTRIES[kind])
  return Part(kind, name, _REGISTRIES[kind][name])


def _client(flag: Mapping[str, Any], algorithm: Part) -> Part:
  """The clients' rule; some algorithms take plain steps only."""
  default = "sgd" if algorithm.is_plain else "delta_sgd"
  client = _part("client", _given(flag["client"], default))
  _check_plain(client, algorithm)
  return client


def _server(flag: Mapping[str, Any], algorithm: Part) -> Part:
  """The server's rule, which some algorithms are named after."""
  name, fixed = flag["server"], SERVER_RULES.get(algorithm.name)
  if not algorithm.has("server"):
    return _absent(flag, "server", algorithm)
  if name is not None and fixed is not None:
    raise ValueError(
      f"server={name!r}: algorithm {algorithm.name} is fed_avg with server "
      f"{fixed}; give --algorithm=fed_avg to choose another"
    )
  server = _part("server", _given(name, fixed or "sgd"))
  _check_plain(server, algorithm)
  return server


def _check_plain(rule: Part, algorithm: Part) -> None:
  """That the steps are plain ones where an algorithm relies on it."""
  if not algorithm.is_plain or rule.name == "sgd":
    return
  reason = "is made of plain steps"
  if algorithm.has("regularizer"):
    reason = "weighs the regularizer with the sizes of plain steps"
  elif algorithm.name == "scaffold":
    reason = "corrects plain steps, not those of another rule"
  raise ValueError(
    f"{rule.kind}={rule.name!r}: algorithm {algorithm.name} {reason}; must be "
    "sgd"
  )


# It moves along subgradients, which a constraint has none of where it is
# violated.
_NEEDS_PENALTY = "fed_avg_subgradient"


def _regularizer(
  flag: Mapping[str, Any], default: str | None, algorithm: Part
) -> Part:
  """The regularizer, which composite algorithms need and no others take."""
  if not algorithm.has("regularizer"):
    return _absent(flag, "regularizer", algorithm)
  name = _given(flag["regularizer"], default)
  if name is None:
    raise ValueError(
      f"regularizer: algorithm {algorithm.name} needs one and task "
      f"{flag['task']} has none of its own; must be one of "
      f"{', '.join(REGULARIZERS)}"
    )
  chosen = _part("regularizer", name)
  if algorithm.name == _NEEDS_PENALTY:
    penalties = [
      p.name for p in parts("regularizer") if "strength" in p.flags()
    ]
    if name not in penalties:
      raise ValueError(
        f"regularizer={name!r}: algorithm {algorithm.name} cannot keep to a "
        f"constraint; must be one of {', '.join(penalties)}"
      )
  return chosen


def _absent(flag: Mapping[str, Any], kind: str, algorithm: Part) -> Part:
  """No part; and no flag may have been given for it."""
  for name in (kind, *(n for part in parts(kind) for n in part.flags())):
    if flag[name] is not None:
      shown = repr(flag[name]) if name == kind else flag[name]
      raise ValueError(
        f"{name}={shown}: algorithm {algorithm.name} has no {kind}; those "
        f"that have one are {_those_with(kind)}"
      )
  return Part(kind, "none", _NONE)


def _given(value: Any, default: Any) -> Any:
  return default if value is None else value


def _check_no_others(flag: Mapping[str, Any], part: Part) -> None:
  """That no hyperparameter was given which this part does not have."""
  owners: dict[str, list[str]] = {}
  for other in parts(part.kind):
    for name in other.flags():
      owners.setdefault(name, []).append(other.name)
  for name, names in owners.items():
    if flag[name] is not None:
      check_belongs(name, flag[name], part.kind, part.name, names)


def seeds(flag: Mapping[str, Any]) -> list[int]:
  """The seeds of the runs.

  Raises:
    ValueError: if they are not whole numbers of 32 bits, or one is repeated.
  """
  values = numbers("seed", flag["seed"], int)
  for value in values:
    _SEED.check(value)
  return values


def numbers(flag: str, text: Any, kind: type = float) -> list[Any]:
  """The numbers of a comma list.

  Raises:
    ValueError: naming the item that is not a number, or is repeated.
  """
  values = []
  for item in str(text).split(","):
    try:
      values.append(kind(item))
    except ValueError:
      wanted = "whole numbers" if kind is int else "numbers"
      example = "0,1,2" if kind is int else "0.01,0.1"
      raise ValueError(
        f"{flag}={text}: {item!r} is not a number; must be {wanted} between "
        f"commas, such as {example}"
      ) from None
  for item, value in zip(str(text).split(","), values, strict=True):
    if values.count(value) > 1:
      raise ValueError(f"{flag}={text}: {item} is repeated; give it once")
  return values


def single_or_list(values: list[Any]) -> Any:
  """A list as a flag has it: one value stands alone."""
  return values[0] if len(values) == 1 else values
