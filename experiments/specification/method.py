"""The part of a specification that says what a method is made of."""

from experiments.specification.kinds import (
  ALGORITHM,
  CLIENT,
  PRIVACY,
  REGULARIZER,
  SERVER,
  Chosen,
  Given,
  Kind,
)
from experiments.specification.spec import CLIENT_DEFAULT, SERVER_DEFAULT
from experiments.tasks import TaskChoice
from fedjax_opt.registry import AlgorithmChoice


def resolve(given: Given, task: TaskChoice) -> dict[str, Chosen | None]:
  """Algorithm, rules, regularizer and privacy, by flag.

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
    PRIVACY: given["privacy"],
  }
  is_free = {
    CLIENT: choice.client == "rule",
    SERVER: choice.server == "rule" and choice.server_rule is None,
  }
  defaults = task.defaults
  if names[REGULARIZER] != task.regularizer:
    of_other = REGULARIZER.owners()
    defaults = {f: v for f, v in defaults.items() if f not in of_other}
  intervals = {}
  if choice.server_interval is not None:
    intervals["server_lr"] = choice.server_interval
  return {
    kind.flag: kind.choose(
      given,
      chosen,
      is_free=is_free.get(kind, True),
      defaults=defaults,
      intervals=intervals,
    )
    for kind, chosen in names.items()
  }


def plain_rules() -> list[str]:
  """The client rules that are gradient descent and nothing else."""
  return [name for name, rule in CLIENT.registry.items() if rule.is_plain]


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
    return _check_absent(given, SERVER, name, "leave {flag} out")
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
  if not choice.takes_regularizer:  # Few have one.
    have = ALGORITHM.names(lambda each: each.takes_regularizer)
    hint = f"those that have one are {have}"
    return _check_absent(given, REGULARIZER, name, hint)
  chosen = default if given["regularizer"] is None else given["regularizer"]
  if chosen is None:
    raise ValueError(
      f"regularizer: algorithm {name} needs one and task {given['task']} has "
      f"none of its own; must be one of {', '.join(REGULARIZER.registry)}"
    )
  REGULARIZER.check(chosen)
  if choice.needs_penalty and not REGULARIZER.registry[chosen].is_finite:
    raise ValueError(
      f"regularizer={chosen!r}: algorithm {name} cannot keep to a constraint; "
      f"must be one of {REGULARIZER.names(lambda each: each.is_finite)}"
    )
  return chosen


def _check_absent(given: Given, kind: Kind, algorithm: str, hint: str) -> None:
  """Checks that no flag was given for what an algorithm does not have."""
  for flag in (kind.flag, *kind.owners()):
    if given[flag] is not None:
      shown = repr(given[flag]) if flag == kind.flag else given[flag]
      raise ValueError(
        f"{flag}={shown}: algorithm {algorithm} has no {kind.flag}; "
        f"{hint.format(flag=flag)}"
      )
