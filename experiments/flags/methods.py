"""The flags of algorithm, rules and regularizer, and what they make.

All of them come from the registries. The way of a value, such as that of
`--client_lr=0.1,1` with `--client=sgd`:

1. `RULES["sgd"]` has a hyperparameter `learning_rate`; `_client_flag` names its
   flag `client_lr`, and `define` defines it.
2. `resolve` reads it: `Setup.client` is the choice `sgd`, whose grid is
   `{"client_lr": [0.1, 1.0]}`.
3. `Setup.grid` joins the grids of all choices; `sweep` goes over its points.
4. `Setup.make` is called at each point, as in `make(client_lr=0.1)`, where the
   numbers are traced. `Setup.client.make` calls `optax.sgd(learning_rate=0.1)`,
   and `Setup.algorithm.make` gets that rule as `client`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments.flags import command_line, privacy, schedule
from experiments.flags.registries import (
  Chosen,
  Flags,
  Kind,
  numbers,
  single_or_list,
)
from experiments.flags.schedule import Schedule
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.base import Algorithm
from fedjax_opt.prox.registry import REGULARIZERS
from fedjax_opt.registry import (
  AlgorithmChoice,
  Hyperparameter,
  Parameter,
  RuleChoice,
)
from fedjax_opt.rules import RULES

# The rules where none is given; averaging is a server step of size 1.
_CLIENT, _SERVER = "delta_sgd", "sgd"
_CLIENT_RATE, _SERVER_RATE = "client_lr", "server_lr"


# Hyperparameters of algorithms that others have flags of, too.
_PREFIXED = ("alpha", "eps", "momentum")


def _algorithm_flag(
  name: str, choice: AlgorithmChoice, parameter: Parameter
) -> tuple[str, Parameter]:
  del name, choice
  is_prefixed = parameter.name in _PREFIXED
  prefix = "algorithm_" if is_prefixed else ""
  return f"{prefix}{parameter.name}", parameter


def _client_flag(
  name: str, choice: RuleChoice, parameter: Parameter
) -> tuple[str, Parameter]:
  del name
  if parameter.name in choice.own_names:
    return parameter.name, parameter
  return f"client_{_short(parameter.name)}", parameter


def _server_flag(
  name: str, choice: RuleChoice, parameter: Parameter
) -> tuple[str, Parameter]:
  del name
  flag = f"server_{_short(parameter.name)}"
  if flag == _SERVER_RATE and choice.server_learning_rate is not None:
    parameter = parameter._replace(default=choice.server_learning_rate)
  return flag, parameter


def _short(name: str) -> str:
  return "lr" if name == "learning_rate" else name


ALGORITHM = Kind(
  "algorithm",
  ALGORITHMS,
  has_lists=True,
  named=_algorithm_flag,
  listing="those that --list=algorithms shows",
)
CLIENT = Kind("client", RULES, has_lists=True, named=_client_flag)
SERVER = Kind(
  "server",
  {name: rule for name, rule in RULES.items() if rule.fits_server},
  has_lists=True,
  named=_server_flag,
)
REGULARIZER = Kind("regularizer", REGULARIZERS, has_lists=True)
KINDS = (ALGORITHM, CLIENT, SERVER, REGULARIZER, privacy.PRIVACY)

_PLAIN_RULES = [name for name, rule in RULES.items() if rule.is_plain]


def _algorithms(has: Callable[[AlgorithmChoice], bool]) -> str:
  """The names of the algorithms that have something."""
  return ", ".join(name for name, each in ALGORITHMS.items() if has(each))


def _own_defaults(field: str) -> str:
  """Which algorithms have a default of their own, for the help."""
  of_rule: dict[str, list[str]] = {}
  for name, choice in ALGORITHMS.items():
    rule = getattr(choice, field)
    if rule is not None:
      of_rule.setdefault(rule, []).append(name)
  parts = [f"; {rule} of {', '.join(of)}" for rule, of in of_rule.items()]
  return "".join(parts)


# Flags.


def define(task_defaults: Mapping[str, Mapping[str, float]]) -> None:
  """Defines the choices, and one flag for each of their hyperparameters.

  Args:
    task_defaults: task -> flag -> default, where a task has its own.
  """
  notes = _notes(task_defaults)
  with command_line.group("Algorithm", "algorithm"):
    command_line.text(
      "algorithm",
      "fed_avg",
      f"What a round does.{command_line.listed(ALGORITHMS)}",
    )
    ALGORITHM.define(notes)
  with command_line.group("Clients' rule", "client"):
    plain = _algorithms(lambda choice: choice.client == "plain")
    command_line.text(
      "client",
      None,
      f"How a client takes a local step. Default: {_CLIENT}; "
      f"{_PLAIN_RULES[0]} for the algorithms that take no other: {plain}"
      f"{_own_defaults('default_client')}."
      f"{command_line.listed(RULES)}",
    )
    schedule.define()
    CLIENT.define(notes)
  with command_line.group("Server's rule", "server"):
    command_line.text(
      "server",
      None,
      "How the server uses the mean of the clients' differences as a gradient: "
      f"{', '.join(SERVER.registry)}. Default: {_SERVER} with step size 1, "
      "which is plain averaging, or what the algorithm's name says"
      f"{_own_defaults('default_server')}; algorithms of plain steps take only "
      f"{_PLAIN_RULES[0]}, some any, some have none.",
    )
    SERVER.define(notes)
  composite = _algorithms(lambda choice: choice.takes_regularizer)
  with command_line.group("Regularizer", "regularizer"):
    command_line.text(
      "regularizer",
      None,
      f"What {composite} add to the loss: a penalty, "
      "or a constraint on the radius or sign. w is each kernel by itself, "
      "without biases. Default: the task's own."
      f"{command_line.listed(REGULARIZERS)}",
    )
    REGULARIZER.define(notes)
  privacy.define()


def _notes(
  task_defaults: Mapping[str, Mapping[str, float]],
) -> dict[str, str]:
  """What the help says of flags for which tasks have a default of their own."""
  of_flag: dict[str, list[str]] = {}
  for task, defaults in task_defaults.items():
    for flag, value in defaults.items():
      of_flag.setdefault(flag, []).append(f"{task} {value:g}")
  return {
    flag: f" Tasks with a default of their own: {', '.join(tasks)}."
    for flag, tasks in of_flag.items()
  }


# From flags to what was chosen.


class Setup(NamedTuple):
  """What was chosen, and the numbers it runs with."""

  algorithm: Chosen
  client: Chosen
  server: Chosen | None
  regularizer: Chosen | None
  privacy: Chosen | None = None
  schedule: Schedule = Schedule()  # Of the clients' learning rate.
  noise_seed: int | None = None  # Of the noise of privacy.

  @property
  def chosen(self) -> list[Chosen]:
    """Every choice that there is."""
    every = (
      self.algorithm,
      self.client,
      self.server,
      self.regularizer,
      self.privacy,
    )
    return [chosen for chosen in every if chosen is not None]

  @property
  def grid(self) -> dict[str, list[float]]:
    """Flag -> values, of all that may be tuned."""
    return {f: v for chosen in self.chosen for f, v in chosen.grid.items()}

  def resolved(self) -> dict[str, Any]:
    """The value of every flag of what was chosen, but for `--algorithm`."""
    values: dict[str, Any] = {c.kind: c.name for c in self.chosen[1:]}
    for chosen in self.chosen:
      values |= {f: single_or_list(v) for f, v in chosen.grid.items()}
      values |= chosen.static
    return values | self.schedule.resolved()

  def make(self, loss_fn, features_fn, rounds: int) -> Callable[..., Algorithm]:
    """`(**point) -> Algorithm`, where a point is {flag: number}, for `sweep`.

    Args:
      loss_fn: loss of the task.
      features_fn: features of the task.
      rounds: R.
    """
    choice = self.algorithm.choice

    def make(**point: Any) -> Algorithm:
      arguments = {"loss_fn": loss_fn}
      if choice.takes_features:
        arguments["features_fn"] = features_fn
      if choice.takes_regularizer:
        arguments["psi"] = self.regularizer.make(point)
      if choice.client == "rule":
        arguments["client"] = self.client_rule(point, rounds)
      else:
        arguments["learning_rate"] = self._rate(point, rounds)
      if choice.server == "rule":
        arguments["server"] = self.server.make(point)
      elif choice.server == "rate":
        arguments["server_learning_rate"] = point[_SERVER_RATE]
      algorithm = self.algorithm.make(point, **arguments)
      if self.privacy is None:
        return algorithm
      return self.privacy.make(
        point, algorithm=algorithm, noise_seed=self.noise_seed
      )

    return make

  def client_rule(self, point: Mapping[str, Any], rounds: int) -> Any:
    """The clients' rule at a point, or the function from a round to it."""
    if self.schedule.is_constant:
      return self.client.make(point)
    rate = self._rate(point, rounds)
    of_rate = lambda rate: self.client.make({**point, _CLIENT_RATE: rate})
    return lambda round: of_rate(rate(round))

  def _rate(self, point: Mapping[str, Any], rounds: int) -> Any:
    """The clients' learning rate, or the function from a round to it."""
    rate = point[_CLIENT_RATE]
    if self.schedule.is_constant:
      return rate
    return lambda round: rate * self.schedule.factor(round, rounds)


def resolve(
  flags: Flags,
  regularizer: str | None = None,
  defaults: Mapping[str, float] | None = None,
) -> Setup:
  """Checks the flags of rules and algorithm, and fills in their defaults.

  Args:
    flags: values of all flags; a hyperparameter that was not given is None.
    regularizer: the task's own.
    defaults: flag -> default of the task; those of a regularizer are for the
      task's own.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  name = flags["algorithm"]
  ALGORITHM.check(name)
  choice = ALGORITHMS[name]
  names = [
    _client(flags, name, choice),
    _server(flags, name, choice),
    _regularizer(flags, regularizer, name, choice),
    privacy.name(flags),
  ]
  # First that flags belong to what was chosen, then what their values are.
  is_free = (
    True,
    choice.client == "rule",
    choice.server == "rule" and choice.server_rule is None,
    True,
    True,
  )
  for kind, of_kind, free in zip(KINDS, [name, *names], is_free, strict=True):
    if of_kind is not None:
      kind.check_others(flags, of_kind, free)
  if names[2] != regularizer:
    of_other = REGULARIZER.owners()
    defaults = {f: v for f, v in (defaults or {}).items() if f not in of_other}
  intervals = {}
  if choice.server_interval is not None:
    intervals[_SERVER_RATE] = choice.server_interval

  def read(kind: Kind, of_kind: str | None) -> Chosen | None:
    if of_kind is None:
      return None
    return kind.read(flags, of_kind, defaults, intervals)

  of_rate = schedule.read(flags)
  has_rate = _CLIENT_RATE in CLIENT.parameters(names[0])
  schedule.check(flags["client_schedule"], name, names[0], has_rate)
  chosen = map(read, KINDS, [name, *names])
  return Setup(*chosen, of_rate, flags[privacy.SEED])


def default_client(choice: AlgorithmChoice) -> str:
  """The clients' rule of an algorithm where none is chosen."""
  free = _CLIENT if choice.client == "rule" else _PLAIN_RULES[0]
  return choice.default_client or free


def default_server(choice: AlgorithmChoice) -> str:
  """The server's rule of an algorithm that has one, where none is chosen."""
  return choice.server_rule or choice.default_server or _SERVER


def _client(flags: Flags, name: str, choice: AlgorithmChoice) -> str:
  """The name of the clients' rule; some algorithms take plain steps only."""
  default = default_client(choice)
  client = default if flags["client"] is None else flags["client"]
  CLIENT.check(client)
  if choice.client == "plain":
    _check_plain("client", client, name, choice)
  return client


def _server(flags: Flags, name: str, choice: AlgorithmChoice) -> str | None:
  """The name of the server's rule, which some algorithms are named after."""
  if choice.server == "none":
    return _check_absent(flags, SERVER, name)
  given, fixed = flags["server"], choice.server_rule
  if given is not None and fixed is not None:
    free = next(
      other
      for other, each in ALGORITHMS.items()
      if each.factory is choice.factory and each.server_rule is None
    )
    raise ValueError(
      f"server={given!r}: algorithm {name} is {free} with server {fixed}; "
      f"give --algorithm={free} to choose another"
    )
  server = default_server(choice) if given is None else given
  SERVER.check(server)
  if choice.server == "rate":
    _check_plain("server", server, name, choice)
  return server


def _check_plain(
  kind: str, rule: str, name: str, choice: AlgorithmChoice
) -> None:
  """Checks that the steps are plain ones where an algorithm relies on it."""
  if not RULES[rule].is_plain:
    raise ValueError(
      f"{kind}={rule!r}: algorithm {name} {choice.why_plain}; must be "
      f"{', '.join(_PLAIN_RULES)}"
    )


def _regularizer(
  flags: Flags, default: str | None, name: str, choice: AlgorithmChoice
) -> str | None:
  """The name of the regularizer, which some algorithms need."""
  if not choice.takes_regularizer:
    return _check_absent(flags, REGULARIZER, name)
  chosen = default if flags["regularizer"] is None else flags["regularizer"]
  if chosen is None:
    raise ValueError(
      f"regularizer: algorithm {name} needs one and task {flags['task']} has "
      f"none of its own; must be one of {', '.join(REGULARIZERS)}"
    )
  REGULARIZER.check(chosen)
  if choice.needs_penalty and not REGULARIZERS[chosen].is_finite:
    penalties = [n for n, each in REGULARIZERS.items() if each.is_finite]
    raise ValueError(
      f"regularizer={chosen!r}: algorithm {name} cannot keep to a constraint; "
      f"must be one of {', '.join(penalties)}"
    )
  return chosen


def _check_absent(flags: Flags, kind: Kind, algorithm: str) -> None:
  """Checks that no flag was given for what an algorithm does not have."""
  for flag in (kind.flag, *kind.owners()):
    if flags[flag] is not None:
      shown = repr(flags[flag]) if flag == kind.flag else flags[flag]
      hint = f"leave {flag} out"
      if kind is REGULARIZER:  # Few have one.
        have = _algorithms(lambda choice: choice.takes_regularizer)
        hint = f"those that have one are {have}"
      raise ValueError(
        f"{flag}={shown}: algorithm {algorithm} has no {kind.flag}; {hint}"
      )


_SEED = Hyperparameter("seed", 0, "seed", "[0, 4294967295]")


def seeds(flags: Flags) -> list[int]:
  """The seeds of the runs.

  Raises:
    ValueError: if they are not whole numbers of 32 bits, or one is repeated.
  """
  values = numbers("seed", flags["seed"], int)
  for value in values:
    _SEED.check(value)
  return values
