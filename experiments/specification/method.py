"""The part of a specification that says what a method is made of."""

from typing import Any

from experiments.specification.kinds import (
  ALGORITHM,
  CLIENT,
  PRIVACY,
  REGULARIZER,
  SERVER,
  Given,
  numbers,
)
from experiments.specification.spec import (
  CLIENT_DEFAULT,
  DECAY,
  FLAGS,
  MILESTONES,
  SERVER_DEFAULT,
  algorithms,
  plain_rules,
)
from experiments.tasks import TaskChoice
from fedjax_opt import privacy
from fedjax_opt.registry import AlgorithmChoice, Hyperparameter

_SEED = Hyperparameter("seed", 0, "seed", "[0, 4294967295]")
_FRACTION = Hyperparameter(
  "client_milestones", 0.5, "fraction of the rounds", "(0, 1)"
)
_OPTIONS = {"step_decay": "client_milestones", "exponential": "client_decay"}
# Flag -> where it leaves messages as they are.
_CHANGES_MESSAGES = {"upload": None, "aggregator": "mean", "fault": None}


def resolve(given: Given, task: TaskChoice) -> dict[str, Any]:
  """Algorithm, rules, regularizer, privacy and schedule, by field.

  Args:
    given: values of all flags; a hyperparameter that was not given is None.
    task: the task, which may have a regularizer and defaults of its own; those
      of a regularizer are for its own.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  name = given["algorithm"]
  ALGORITHM.check(name)
  choice = ALGORITHM.registry[name]
  names = {
    ALGORITHM: name,
    CLIENT: _client(given, name, choice),
    SERVER: _server(given, name, choice),
    REGULARIZER: _regularizer(given, task.regularizer, name, choice),
    PRIVACY: _privacy(given),
  }
  is_free = {
    CLIENT: choice.client == "rule",
    SERVER: choice.server == "rule" and choice.server_rule is None,
  }
  # First that flags belong to what was chosen, then what their values are.
  for kind, chosen in names.items():
    if chosen is not None:
      kind.check_others(given, chosen, is_free.get(kind, True))
  defaults = task.defaults
  if names[REGULARIZER] != task.regularizer:
    of_other = REGULARIZER.owners()
    defaults = {f: v for f, v in defaults.items() if f not in of_other}
  intervals = {}
  if choice.server_interval is not None:
    intervals["server_lr"] = choice.server_interval
  found: dict[str, Any] = {
    kind.flag: chosen and kind.read(given, chosen, defaults, intervals)
    for kind, chosen in names.items()
  }
  return found | _schedule(given, name, names[CLIENT])


def default_client(choice: AlgorithmChoice) -> str:
  """The clients' rule of an algorithm where none is chosen."""
  free = CLIENT_DEFAULT if choice.client == "rule" else plain_rules()[0]
  return choice.default_client or free


def _client(given: Given, name: str, choice: AlgorithmChoice) -> str:
  """The name of the clients' rule; some algorithms take plain steps only."""
  client = given["client"]
  client = default_client(choice) if client is None else client
  CLIENT.check(client)
  if choice.client == "plain":
    _check_plain("client", client, name)
  return client


def _server(given: Given, name: str, choice: AlgorithmChoice) -> str | None:
  """The name of the server's rule, which some algorithms are named after."""
  if choice.server == "none":
    return _check_absent(given, SERVER, name)
  server, fixed = given["server"], choice.server_rule
  if server is not None and fixed is not None:
    free = next(
      other
      for other, each in ALGORITHM.registry.items()
      if each.factory is choice.factory and each.server_rule is None
    )
    raise ValueError(
      f"server={server!r}: algorithm {name} is {free} with server {fixed}; "
      f"give --algorithm={free} to choose another"
    )
  if server is None:
    server = fixed or choice.default_server or SERVER_DEFAULT
  SERVER.check(server)
  if choice.server == "rate":
    _check_plain("server", server, name)
  return server


def _check_plain(kind: str, rule: str, name: str) -> None:
  """Checks that the steps are plain ones where an algorithm relies on it."""
  if rule not in plain_rules():
    raise ValueError(
      f"{kind}={rule!r}: algorithm {name} takes plain steps, not those of "
      f"another rule; must be {', '.join(plain_rules())}"
    )


def _regularizer(
  given: Given, default: str | None, name: str, choice: AlgorithmChoice
) -> str | None:
  """The name of the regularizer, which some algorithms need."""
  if not choice.takes_regularizer:
    return _check_absent(given, REGULARIZER, name)
  chosen = default if given["regularizer"] is None else given["regularizer"]
  known = REGULARIZER.registry
  if chosen is None:
    raise ValueError(
      f"regularizer: algorithm {name} needs one and task {given['task']} has "
      f"none of its own; must be one of {', '.join(known)}"
    )
  REGULARIZER.check(chosen)
  if choice.needs_penalty and not known[chosen].is_finite:
    penalties = [n for n, each in known.items() if each.is_finite]
    raise ValueError(
      f"regularizer={chosen!r}: algorithm {name} cannot keep to a constraint; "
      f"must be one of {', '.join(penalties)}"
    )
  return chosen


def _check_absent(given: Given, kind: Any, algorithm: str) -> None:
  """Checks that no flag was given for what an algorithm does not have."""
  for flag in (kind.flag, *kind.owners()):
    if given[flag] is not None:
      shown = repr(given[flag]) if flag == kind.flag else given[flag]
      hint = f"leave {flag} out"
      if kind is REGULARIZER:  # Few have one.
        have = algorithms(lambda choice: choice.takes_regularizer)
        hint = f"those that have one are {have}"
      raise ValueError(
        f"{flag}={shown}: algorithm {algorithm} has no {kind.flag}; {hint}"
      )


def _privacy(given: Given) -> str | None:
  """The name of the mechanism, and checks of what it goes with."""
  chosen = given["privacy"]
  own = [n for n, f in FLAGS.items() if f.group.key == "privacy"][1:]
  if chosen is None:
    for flag in (*PRIVACY.owners(), *own):
      if given[flag] is not None:
        raise ValueError(
          f"{flag}={given[flag]}: belongs to privacy; give "
          f"--privacy=gaussian, or leave {flag} out"
        )
    return None
  PRIVACY.check(chosen)
  FLAGS["dp_delta"].check("dp_delta", given["dp_delta"])
  if given["dp_seed"] is not None:
    privacy.check_noise_seed("dp_seed", given["dp_seed"])
  if given["weighting"] != "uniform":
    raise ValueError(
      f"privacy={chosen!r}: counts all clients alike, and weighting is "
      f"{given['weighting']!r}; give --weighting=uniform"
    )
  if given["sampler"] not in ("uniform", "poisson"):
    raise ValueError(
      f"privacy={chosen!r}: nobody accounts for sampler {given['sampler']!r}; "
      "must be poisson or uniform"
    )
  for flag, none in _CHANGES_MESSAGES.items():
    if given[flag] != none:
      raise ValueError(
        f"{flag}={given[flag]!r}: would change the clipped differences after "
        f"privacy has limited them; leave {flag} out"
      )
  return chosen


def _schedule(given: Given, algorithm: str, client: str) -> dict[str, Any]:
  """The fields of the clients' learning rate over rounds.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  name = given["client_schedule"]
  FLAGS["client_schedule"].check("client_schedule", name)
  for owner, option in _OPTIONS.items():
    if owner != name and given[option] is not None:
      raise ValueError(
        f"{option}={given[option]}: belongs to client_schedule {owner}, not to "
        f"{name}"
      )
  if name == "constant":
    return {}
  if "client_lr" not in CLIENT.parameters(client):
    raise ValueError(
      f"client_schedule={name!r}: client {client} has no learning rate that "
      "could drop; must be constant"
    )
  if not ALGORITHM.registry[algorithm].rate_may_drop:
    raise ValueError(
      f"client_schedule={name!r}: algorithm {algorithm} has one rate for all "
      "rounds; must be constant"
    )
  if name == "exponential":
    decay = given["client_decay"]
    decay = DECAY if decay is None else decay
    FLAGS["client_decay"].check("client_decay", decay)
    return {"client_decay": decay}
  asked = given["client_milestones"]
  fractions = numbers(
    "client_milestones", MILESTONES if asked is None else asked
  )
  for fraction in fractions:
    _FRACTION.check(fraction)
  return {"client_milestones": ",".join(f"{each!r}" for each in fractions)}


def seeds(given: Given) -> list[int]:
  """The seeds of the runs.

  Raises:
    ValueError: if they are not whole numbers of 32 bits, or one is repeated.
  """
  values = numbers("seed", given["seed"], int)
  for value in values:
    _SEED.check(value)
  return values
