"""From flags to grid and algorithm.

The flags of rules and algorithms come from their registries: a new entry there
is a new flag here.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from absl import flags

from fedjax_opt.algorithms import ALGORITHMS, SERVER_RULES
from fedjax_opt.base import Algorithm
from fedjax_opt.hyperparameters import Choice, Hyperparameter
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


class Part(NamedTuple):
  """A rule or an algorithm that was chosen by name, with its flags."""

  kind: str  # "client", "server" or "algorithm"
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


def all_parts() -> list[Part]:
  """Everything that can be chosen by name."""
  return [
    *(Part("client", name, choice) for name, choice in RULES.items()),
    *(Part("server", name, choice) for name, choice in SERVERS.items()),
    *(Part("algorithm", name, choice) for name, choice in ALGORITHMS.items()),
  ]


def define_hyperparameters() -> None:
  """Defines one flag for each hyperparameter of the registries."""
  users: dict[str, list[str]] = {}
  helps: dict[str, tuple[str, bool]] = {}
  for part in all_parts():
    for flag, parameter in part.flags().items():
      users.setdefault(flag, []).append(f"{part.name} {parameter.default:g}")
      helps[flag] = (parameter.help, isinstance(parameter.default, bool))
  for flag, (text, switch) in helps.items():
    if switch:
      names = ", ".join(user.rsplit(" ", 1)[0] for user in users[flag])
      flags.DEFINE_bool(flag, None, f"{text}. For {names}.")
    else:
      defaults = ", ".join(users[flag])
      flags.DEFINE_string(
        flag, None, f"{text}; list allowed. Defaults: {defaults}."
      )


def chosen(kind: str, name: str, registry: Mapping[str, Choice]) -> Part:
  """An entry of a registry, by name.

  Raises:
    ValueError: if there is none of this name.
  """
  if name not in registry:
    raise ValueError(
      f"{kind}={name!r}: must be one of {', '.join(sorted(registry))}"
    )
  return Part(kind, name, registry[name])


class Setup(NamedTuple):
  """What was chosen, and the numbers it runs with."""

  client: Part
  server: Part
  algorithm: Part
  grid: dict[str, list[float]]  # flag -> values, what is tuned
  switches: dict[str, bool]  # flag -> value
  decay: bool  # whether the clients' learning rate drops over rounds

  def resolved(self) -> dict[str, Any]:
    """The value of every flag of the rules and the algorithm."""
    single = lambda values: values[0] if len(values) == 1 else values
    grid = {flag: single(values) for flag, values in self.grid.items()}
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
  algorithm, client, server = (
    flag["algorithm"], flag["client"], flag["server"]
  )  # fmt: skip
  schedule = flag["client_schedule"]
  if schedule not in ("constant", "step_decay"):
    raise ValueError(
      f"client_schedule={schedule!r}: must be constant or step_decay"
    )
  decay = schedule == "step_decay"
  fixed = SERVER_RULES.get(algorithm)
  if server is not None and fixed is not None:
    raise ValueError(
      f"server={server!r}: {algorithm} is fed_avg with server {fixed}; give "
      "--algorithm=fed_avg to choose another"
    )
  parts = [
    chosen("algorithm", algorithm, ALGORITHMS),
    chosen("client", client, RULES),
    chosen("server", server or fixed or "sgd", SERVERS),
  ]
  taken = {}
  for part in parts:
    taken |= part.flags()
  for part in all_parts():
    for name in part.flags().keys() - taken.keys():
      if flag[name] is not None:
        takers = sorted({p.name for p in all_parts() if name in p.flags()})
        raise ValueError(
          f"{name}={flag[name]}: not a flag of "
          f"{' + '.join(part.name for part in parts)}; it belongs to "
          f"{', '.join(takers)}"
        )
  if decay and "client_lr" not in taken:
    raise ValueError(
      f"client_schedule: {client} has no learning rate that could drop"
    )
  grid, switches = {}, {}
  for name, parameter in taken.items():
    value = parameter.default if flag[name] is None else flag[name]
    if isinstance(parameter.default, bool):
      switches[name] = value
      continue
    grid[name] = numbers(name, value)
    for number in grid[name]:
      parameter.check(number, name)
  return Setup(parts[1], parts[2], parts[0], grid, switches, decay)


def numbers(flag: str, text: Any, kind: type = float) -> list[Any]:
  """The numbers of a comma list.

  Raises:
    ValueError: naming the item that is not a number.
  """
  if not isinstance(text, str):
    return [kind(text)]
  values = []
  for item in text.split(","):
    try:
      values.append(kind(item))
    except ValueError:
      wanted = "whole numbers" if kind is int else "numbers"
      raise ValueError(
        f"{flag}={text}: {item!r} is not one of {wanted} between commas, such "
        f"as {flag}={'0,1,2' if kind is int else '0.01,0.1'}"
      ) from None
  repeated = {value for value in values if values.count(value) > 1}
  if repeated:
    raise ValueError(f"{flag}={text}: {min(repeated)} is there twice")
  return values
