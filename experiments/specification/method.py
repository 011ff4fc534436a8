"""The part of a specification that says what a method is made of."""

from collections.abc import Collection

from experiments.specification import spec as specs
from experiments.specification.choice_flags import (
  ALGORITHM,
  CHOICE_FLAGS,
  CLIENT,
  PLAIN_RULE,
  PRIVACY,
  REGULARIZER,
  SCHEDULE,
  SERVER,
  TASK,
  ChoiceFlag,
  ChosenEntry,
  FlagValues,
  check_absent,
)
from experiments.tasks import TaskEntry
from fedjax_opt.registry import AlgorithmEntry

# Flags of the schedule of the clients' learning rate.
_OF_RATE = ("client_schedule", "client_milestones", "client_decay")


def parts_of(
  flag_values: FlagValues, task: TaskEntry
) -> dict[str, ChosenEntry | None]:
  """Algorithm, rules, regularizer and privacy, by flag.

  Args:
    flag_values: the values of all flags; None for a hyperparameter not given.
    task: the task, which may have a regularizer and defaults of its own. Its
      defaults for a regularizer's flags apply only to its own regularizer.

  Raises:
    ValueError: naming the invalid flag.
  """
  algorithm = ALGORITHM.choose(flag_values, flag_values["algorithm"])
  return {
    "algorithm": algorithm,
    "client": _client(flag_values, algorithm, task),
    "server": _server(flag_values, algorithm),
    "regularizer": _regularizer(flag_values, algorithm, task),
    "privacy": PRIVACY.choose(flag_values, flag_values["privacy"]),
  }


def unused_flags(flag_values: FlagValues, flags: Collection[str]) -> set[str]:
  """The flags, among some, that do nothing with the given method.

  DOMO has no rule of the clients, for instance, and a rule without a learning
  rate has no schedule of it. A method has all flags that are of no part of it.

  Args:
    flag_values: the values of all flags.
    flags: the flags to judge; all other flags are the method's own.

  Raises:
    ValueError: naming the invalid flag, if the method's own do not fit.
  """
  entry = ALGORITHM.entry(flag_values["algorithm"])
  takes = rules_taken(entry) | {"privacy": True}
  left_out = dict.fromkeys(name for name in flags if not takes.get(name))
  task = TASK.entry(flag_values["task"])
  method = parts_of({**flag_values, **left_out}, task)
  parts = [part for part in method.values() if part is not None]
  used_flags = {flag for part in parts for flag in part.parameters}
  schedule = flag_values["schedule"] or "synchronous"
  if schedule in SCHEDULE.registry:
    used_flags |= {*SCHEDULE.parameters(schedule)}
  choice_flags = [CHOICE_FLAGS[flag] for flag in (*method, "schedule")]
  of_any = {flag for part in choice_flags for flag in part.owners()}
  client = method["client"]
  takes |= dict.fromkeys(_OF_RATE, CLIENT.rate_flag in client.parameters)
  takes["trace"] = bool(client.entry.traced)

  def belongs(name: str) -> bool:
    needs = specs.FLAGS[name].needs if name in specs.FLAGS else ""
    if name in of_any:
      return name in used_flags
    if needs in method:
      return method[needs] is not None
    return takes.get(name, True)

  return {name for name in flags if not belongs(name)}


def rules_taken(entry: AlgorithmEntry) -> dict[str, bool]:
  """Flag -> whether an algorithm takes what it chooses."""
  return {
    "client": entry.client_takes == "rule",
    "server": entry.server_takes == "rule" and entry.server_rule is None,
    "regularizer": entry.takes("psi"),
  }


def default_client(entry: AlgorithmEntry) -> str:
  """The clients' rule of an algorithm if none is chosen."""
  fallback = (
    specs.CLIENT_DEFAULT if entry.client_takes == "rule" else PLAIN_RULE
  )
  return entry.default_client or fallback


def _client(
  flag_values: FlagValues, algorithm: ChosenEntry, task: TaskEntry
) -> ChosenEntry:
  """The clients' rule; some algorithms take plain steps only."""
  name, entry = flag_values["client"], algorithm.entry
  name = default_client(entry) if name is None else name
  has_choice = entry.client_takes == "rule"
  if not has_choice:
    _check_plain(CLIENT, name, algorithm)
  return CLIENT.choose(
    flag_values,
    name,
    has_choice=has_choice,
    defaults=task.defaults,
    rates=CLIENT.own_rate(entry),
  )


def _server(
  flag_values: FlagValues, algorithm: ChosenEntry
) -> ChosenEntry | None:
  """The server's rule, which some algorithms are named after."""
  name, entry = flag_values["server"], algorithm.entry
  fixed_rule = entry.server_rule
  if entry.server_takes == "none":
    why = f"algorithm {algorithm.name} has no server"
    return check_absent(flag_values, why, "server", *SERVER.owners())
  if name is not None and fixed_rule is not None:
    general = next(
      other_name
      for other_name, other in ALGORITHM.registry.items()
      if other.factory is entry.factory and other.server_rule is None
    )
    raise ValueError(
      f"server={name!r}: algorithm {algorithm.name} is {general} with server "
      f"{fixed_rule}; give --algorithm={general} to choose another"
    )
  if name is None:
    name = fixed_rule or entry.default_server or specs.SERVER_DEFAULT
  if entry.server_takes == "rate":
    _check_plain(SERVER, name, algorithm)
  has_choice = entry.server_takes == "rule" and fixed_rule is None
  rates = SERVER.own_rate(entry)
  return SERVER.choose(flag_values, name, has_choice=has_choice, rates=rates)


def _check_plain(part: ChoiceFlag, rule: str, algorithm: ChosenEntry) -> None:
  """Checks that steps are plain if the algorithm relies on it."""
  if not part.entry(rule).is_plain:
    raise ValueError(
      f"{part.flag}={rule!r}: algorithm {algorithm.name} takes plain steps, "
      f"not those of another rule; must be {PLAIN_RULE}"
    )


def _regularizer(
  flag_values: FlagValues, algorithm: ChosenEntry, task: TaskEntry
) -> ChosenEntry | None:
  """The regularizer, which some algorithms need."""
  entry, name = algorithm.entry, flag_values["regularizer"]
  if not entry.takes("psi"):  # Few algorithms have one.
    names = ALGORITHM.names(lambda entry: entry.takes("psi"))
    hint = f"those that have one are {names}"
    why = f"algorithm {algorithm.name} has no regularizer"
    flags = ("regularizer", *REGULARIZER.owners())
    return check_absent(flag_values, why, *flags, hint=hint)
  name = task.regularizer if name is None else name
  if name is None:
    raise ValueError(
      f"regularizer: algorithm {algorithm.name} needs one and task "
      f"{flag_values['task']} has none of its own; must be one of "
      f"{', '.join(REGULARIZER.registry)}"
    )
  if entry.needs_penalty and not REGULARIZER.entry(name).is_finite:
    raise ValueError(
      f"regularizer={name!r}: algorithm {algorithm.name} cannot keep to a "
      "constraint; must be one of "
      f"{REGULARIZER.names(lambda entry: entry.is_finite)}"
    )
  defaults = task.defaults if name == task.regularizer else {}
  return REGULARIZER.choose(flag_values, name, defaults=defaults)
