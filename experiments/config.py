"""From flags to grid and algorithm.

The flags of rules and algorithms come from their registries: a new entry there
is a new flag here.
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
from fedjax_opt.rules import RULES, step_decay

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

# Averaging is a server step of size 1; the others as in FedOpt's experiments.
_SERVER_DEFAULTS = {"sgd": 1.0, "sgdm": 1.0, "adagrad": 0.1}

_SEED = Hyperparameter("seed", 0, "of everything random", "[0, 4294967295]")


class Part(NamedTuple):
  """A rule or an algorithm that was chosen by name, with its flags."""

  kind: str  # "algorithm", "client" or "server"
  name: str
  choice: Choice

  def flags(self) -> dict[str, Hyperparameter]:
    """Its hyperparameters by flag name, with the defaults on this side."""
    named = {}
    for parameter in self.choice.hyperparameters:
      flag = parameter.name
      if self.kind != "algorithm" and flag in _SHARED:
        flag = f"{self.kind}_{_SHARED[flag]}"
      if flag == "server_lr" and self.name in _SERVER_DEFAULTS:
        parameter = parameter._replace(default=_SERVER_DEFAULTS[self.name])
      named[flag] = parameter
    return named

  def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of its factory, from values by flag name."""
    return {p.name: values[flag] for flag, p in self.flags().items()}


_REGISTRIES = {"algorithm": ALGORITHMS, "client": RULES, "server": SERVERS}


def parts(kind: str) -> list[Part]:
  """Everything of a kind that can be chosen by name."""
  return [Part(kind, *entry) for entry in _REGISTRIES[kind].items()]


def define_flags() -> None:
  """Defines the choices, and one flag for each of their hyperparameters."""
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
      "delta_sgd",
      f"How a client takes a local step.{command_line.listed(RULES)}",
    )
    flags.DEFINE_string(
      "client_schedule",
      "constant",
      "Clients' learning rate over rounds: constant, or step_decay, divided by "
      "10 after 50 % and again after 75 % of the rounds.",
    )
    _define_hyperparameters("client")
  with command_line.group("Server's rule"):
    flags.DEFINE_string(
      "server",
      None,
      "How the server uses the mean of the clients' differences as a gradient: "
      f"{', '.join(SERVERS)}. Default: sgd with step size 1, which is plain "
      "averaging, or what the algorithm's name says.",
    )
    _define_hyperparameters("server")


def _define_hyperparameters(kind: str) -> None:
  """Defines one flag for each hyperparameter of the parts of a kind."""
  meanings: dict[str, dict[str, list[str]]] = {}
  switches = set()
  for part in parts(kind):
    for flag, parameter in part.flags().items():
      default = f"{part.name} {parameter.default:g}"
      if isinstance(parameter.default, bool):
        switches.add(flag)
        default = part.name
      text = f"{parameter.help[0].upper()}{parameter.help[1:]}"
      if parameter.interval != "(-inf, inf)":
        text += f", in {parameter.interval}"
      meanings.setdefault(flag, {}).setdefault(text, []).append(default)
  for flag, uses in meanings.items():
    text = " ".join(f"{use} ({', '.join(of)})." for use, of in uses.items())
    if flag in switches:
      flags.DEFINE_bool(flag, None, text)
    else:
      flags.DEFINE_string(flag, None, f"[list] {text}")


class Setup(NamedTuple):
  """What was chosen, and the numbers it runs with."""

  algorithm: Part
  client: Part
  server: Part
  grid: dict[str, list[float]]  # flag -> values, what is tuned
  switches: dict[str, bool]  # flag -> value
  decay: bool  # whether the clients' learning rate drops over rounds

  def resolved(self) -> dict[str, Any]:
    """The value of every flag of the rules and the algorithm."""
    grid = {flag: single_or_list(values) for flag, values in self.grid.items()}
    return {"server": self.server.name} | grid | self.switches

  def make(self, loss_fn, features_fn, rounds: int) -> Callable[..., Algorithm]:
    """`(**hyperparameters by flag) -> Algorithm`, for `sweep`."""

    def make(**values: Any) -> Algorithm:
      values = {**values, **self.switches}
      client = self.client.arguments(values)
      rule = self.client.choice.factory(**client)
      if self.decay:
        rate = client.pop("learning_rate")
        rule = lambda round: self.client.choice.factory(
          learning_rate=rate * step_decay(round, rounds), **client
        )
      factory = self.algorithm.choice.factory
      arguments = self.algorithm.arguments(values)
      if "features_fn" in inspect.signature(factory).parameters:
        arguments["features_fn"] = features_fn
      server = self.server.choice.factory(**self.server.arguments(values))
      return factory(loss_fn=loss_fn, client=rule, server=server, **arguments)

    return make


def resolve(flag: Mapping[str, Any]) -> Setup:
  """Checks the flags of rules and algorithm, and fills in their defaults.

  Args:
    flag: values of all flags; a hyperparameter that was not given is None.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  chosen = [
    _part("algorithm", flag["algorithm"]),
    _part("client", flag["client"]),
    _part("server", _server(flag["server"], flag["algorithm"])),
  ]
  for part in chosen:
    _check_no_others(flag, part)
  taken: dict[str, Hyperparameter] = {}
  for part in chosen:
    taken |= part.flags()

  check_choice(
    "client_schedule", flag["client_schedule"], ["constant", "step_decay"]
  )
  decay = flag["client_schedule"] == "step_decay"
  if decay and "client_lr" not in taken:
    raise ValueError(
      f"client_schedule='step_decay': client {flag['client']} has no learning "
      "rate that could drop; must be constant"
    )

  grid, switches = {}, {}
  for name, parameter in taken.items():
    value = parameter.default if flag[name] is None else flag[name]
    if isinstance(parameter.default, bool):
      switches[name] = value
    else:
      grid[name] = numbers(name, value)
      for number in grid[name]:
        parameter.check(number, name)
  return Setup(*chosen, grid, switches, decay)


def _part(kind: str, name: str) -> Part:
  check_choice(kind, name, _REGISTRIES[kind])
  return Part(kind, name, _REGISTRIES[kind][name])


def _server(name: str | None, algorithm: str) -> str:
  """The server's rule, which some algorithms are named after."""
  fixed = SERVER_RULES.get(algorithm)
  if name is not None and fixed is not None:
    raise ValueError(
      f"server={name!r}: algorithm {algorithm} is fed_avg with server {fixed}; "
      "give --algorithm=fed_avg to choose another"
    )
  return name or fixed or "sgd"


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
