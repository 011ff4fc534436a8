"""Flags that choose by name, and an entry that was chosen.

A `ChoiceFlag` ties a flag such as --client to its registry. Its flag and those
of all hyperparameters are made from the registry's entries.
"""

import dataclasses
import decimal
import functools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from experiments.tasks import TASKS
from fedjax_opt import privacy
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.checks.fields import Field
from fedjax_opt.checks.values import check_choice, check_fits_float, listed
from fedjax_opt.data.partition import SCHEMES
from fedjax_opt.prox import REGULARIZERS
from fedjax_opt.registry import AlgorithmEntry, Entry, Hyperparameter
from fedjax_opt.results.names import format_value
from fedjax_opt.rules import RULES
from fedjax_opt.samplers import SAMPLERS
from fedjax_opt.schedules import SCHEDULES
from fedjax_opt.systems import AVAILABILITIES, SYSTEMS
from fedjax_opt.transforms import UPLOADS
from fedjax_opt.transforms.aggregators import AGGREGATORS
from fedjax_opt.transforms.faults import FAULTS

# With more owners than this, a message names only the first ones. With more
# entries, it says where they are listed.
_MAX_SHOWN, _MAX_LISTED = 8, 20

# The most items of a comma list.
MAX_ITEMS = 10_000

_COMPARE = "python -m experiments.compare"

T = TypeVar("T")
# Flag -> value, of all flags; None if it was not given.
FlagValues = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class ChosenEntry:
  """An entry of a registry by its name, with the values of its flags.

  Attributes:
    flag: that chose it, such as "client".
    name: the entry's name.
    grid: flag -> values, of hyperparameters that may be tuned.
    static: flag -> value, of those that may not.
  """

  flag: str
  name: str
  grid: Mapping[str, list[float]]
  static: Mapping[str, Any]

  @property
  def entry(self) -> Any:
    """The entry."""
    return CHOICE_FLAGS[self.flag].registry[self.name]

  @property
  def parameters(self) -> dict[str, Hyperparameter]:
    """flag -> argument of the factory."""
    return CHOICE_FLAGS[self.flag].parameters(self.name)

  def with_point(self, point: Mapping[str, float]) -> "ChosenEntry":
    """The choice with one value for each flag that a point has."""
    grid = {f: [point[f]] if f in point else v for f, v in self.grid.items()}
    return dataclasses.replace(self, grid=grid)

  def arguments(self, point: Mapping[str, Any]) -> dict[str, Any]:
    """The factory's arguments, by name, at a point of the grid.

    Args:
      point: flag -> value, for each flag of `grid`; other flags are ignored.
    """
    values, arguments = {**point, **self.static}, {}
    for flag, parameter in self.parameters.items():
      value = values[flag]
      if parameter.reads is not None:
        value = parameter.reads(flag, str(value))
      arguments[parameter.name] = value
    return arguments

  def make(self, point: Mapping[str, Any], **others: Any) -> Any:
    """What the factory makes at a point of the grid.

    Args:
      point: see `arguments`.
      **others: arguments of the factory that have no flag.
    """
    return self.entry.factory(**self.arguments(point), **others)


@dataclasses.dataclass(frozen=True, eq=False)
class ChoiceFlag:
  """A flag that chooses from a registry by name.

  Attributes:
    flag: name of the flag, such as "client".
    entries: the choices.
    prefix: beginning of the flags of hyperparameters, such as "client_".
    has_lists: whether its numbers may be lists, which make a grid.
    rate: for rules, the argument of an algorithm that takes the rate of their
      plain steps instead.
    fits: says whether an entry can be chosen.
    is_condition: whether methods can be compared under several entries.
    numbers_are_conditions: whether methods can be compared under several values
      of its hyperparameters.
  """

  flag: str
  entries: Mapping[str, Entry]
  prefix: str = ""
  has_lists: bool = False
  rate: str = ""
  fits: Callable[[Any], bool] = lambda entry: True
  is_condition: bool = False
  numbers_are_conditions: bool = False

  @property
  def registry(self) -> dict[str, Any]:
    """name -> entry."""
    return {n: entry for n, entry in self.entries.items() if self.fits(entry)}

  def names(self, has: Callable[[Any], bool]) -> str:
    """The names of the entries with a property, separated by commas."""
    return ", ".join(n for n, entry in self.registry.items() if has(entry))

  def flag_of(self, parameter: Hyperparameter) -> str:
    """The flag of a hyperparameter of an entry."""
    if parameter.flag is not None:
      return parameter.flag
    if self.rate and parameter.name == "learning_rate":
      return self.rate_flag
    return f"{self.prefix}{parameter.name}"

  @property
  def rate_flag(self) -> str:
    """The flag of the learning rate of a rule: client_lr or server_lr."""
    return f"{self.prefix}lr"

  def own_rate(self, algorithm: AlgorithmEntry) -> dict[str, dict[str, Any]]:
    """`rate_flag` -> what an algorithm that takes this rate says of it."""
    rates = algorithm.rates
    return {self.rate_flag: rates[self.rate]} if self.rate in rates else {}

  def parameters(self, name: str) -> dict[str, Hyperparameter]:
    """The hyperparameters of an entry, by flag."""
    entry = self.entries[name]
    by_flag = {self.flag_of(p): p for p in entry.hyperparameters}
    if self.flag == "server" and entry.server_learning_rate is not None:
      rate, default = by_flag[self.rate_flag], entry.server_learning_rate
      by_flag[self.rate_flag] = rate._replace(default=default)
    return by_flag

  def owners(self) -> dict[str, dict[str, Hyperparameter]]:
    """Flag -> entries that have it -> the hyperparameter that it is there."""
    return _owners(self, tuple(self.registry))

  def type_of(self, parameter: Hyperparameter) -> type:
    """The type of the flag of a hyperparameter; list if it makes a grid."""
    if self.has_lists and parameter.is_tunable:
      return list
    return parameter.field.value_type

  def choose(
    self,
    flag_values: FlagValues,
    name: str | None,
    *,
    has_choice: bool = True,
    defaults: Mapping[str, Any] = types.MappingProxyType({}),
    rates: Mapping[str, Mapping] = types.MappingProxyType({}),
  ) -> ChosenEntry | None:
    """The entry of a name, with the values of its flags; None for None.

    Args:
      flag_values: the values of all flags.
      name: what is chosen.
      has_choice: whether something else could be chosen.
      defaults: flag -> default, where it is not that of the registry.
      rates: see `own_rate`; their defaults come first.

    Raises:
      ValueError: for an unknown name, a flag of another entry, or a value that
        is not allowed.
    """
    if name is not None:
      self.entry(name)
    for flag, owners in self.owners().items():
      value = flag_values[flag]
      if value is not None and name not in owners:
        parameter = next(iter(owners.values()))
        if self.has_lists and parameter.is_tunable:
          parse_numbers(parameter.field, value, flag)
        self.refuse(flag, value, owners, name, has_choice)
    if name is None:
      return None
    grid, static = {}, {}
    for flag, parameter in self.parameters(name).items():
      default = defaults.get(flag, parameter.default)
      parameter = parameter._replace(default=default)
      parameter = parameter._replace(**rates.get(flag, {}))
      value = flag_values[flag]
      value = parameter.default if value is None else value
      if value is not None and self.has_lists and parameter.is_tunable:
        grid[flag] = parse_numbers(parameter.field, value, flag)
        continue
      if value is None and parameter.is_required:
        raise ValueError(
          f"{self.flag}={name!r}: needs {flag}, {parameter.help}"
        )
      static[flag] = value  # The factory decides what None means.
      if value is not None:
        parameter.check(flag, value)
    return ChosenEntry(self.flag, name, grid, static)

  def entry(self, name: str) -> Any:
    """The entry of a name.

    Raises:
      ValueError: if there is none.
    """
    registry = self.registry
    if is_list(name, lambda item: item in registry):
      raise ValueError(one_only(self.flag, name, self.is_condition))
    if name in registry:
      return registry[name]
    for flag, other in CHOICE_FLAGS.items():
      if name in other.registry:
        raise ValueError(
          f"{self.flag}={name!r}: is no {self.flag}; give --{flag}={name}"
        )
    is_long = len(registry) > _MAX_LISTED
    listing = f"those that --list={self.flag}s shows" if is_long else None
    check_choice(self.flag, name, registry, listing)

  def refuse(
    self,
    flag: str,
    value: Any,
    owners: Iterable[str],
    name: str | None,
    has_choice: bool = True,
  ) -> NoReturn:
    """Refuses a flag that belongs to other entries than the chosen one.

    Args:
      flag: name of the flag.
      value: its value.
      owners: entries that have it.
      name: what is chosen; None for nothing.
      has_choice: whether something else could be chosen.

    Raises:
      ValueError: always.
    """
    first, *more = owners
    names = [first, *more]
    if len(names) > _MAX_SHOWN:
      names = [*names[:3], "others"]
    belongs = f"belongs to {self.flag} {listed(names, 'or')}"
    if name is not None:
      belongs += f", not to {self.flag} {name}"
    offers = [first]
    if self.flag == "task":  # Two models of the same data, if there are.
      data = first.rpartition("_")[0] + "_"
      offers = [n for n in names if n.startswith(data)][:2] or offers
    offer = f"give --{self.flag}={listed(offers, 'or')}, or "
    hint = offer if has_choice else ""
    raise ValueError(f"{flag}={value}: {belongs}; {hint}leave {flag} out")


@functools.lru_cache(maxsize=64)
def _owners(choice_flag: ChoiceFlag, names: tuple[str, ...]) -> dict[str, dict]:
  """See `ChoiceFlag.owners`; computed again when a registry changes."""
  owners: dict[str, dict[str, Hyperparameter]] = {}
  for name in names:
    for flag, parameter in choice_flag.parameters(name).items():
      owners.setdefault(flag, {})[name] = parameter
  return owners


TASK = ChoiceFlag("task", TASKS, is_condition=True, numbers_are_conditions=True)
PARTITION = ChoiceFlag(
  "partition",
  SCHEMES,
  fits=lambda entry: not entry.takes("client_ids"),
  is_condition=True,
  numbers_are_conditions=True,
)
ALGORITHM = ChoiceFlag("algorithm", ALGORITHMS, has_lists=True)
CLIENT = ChoiceFlag(
  "client", RULES, "client_", has_lists=True, rate="learning_rate"
)
SERVER = ChoiceFlag(
  "server",
  RULES,
  "server_",
  has_lists=True,
  rate="server_learning_rate",
  fits=lambda entry: entry.fits_server,
)
REGULARIZER = ChoiceFlag("regularizer", REGULARIZERS, has_lists=True)
PRIVACY = ChoiceFlag("privacy", privacy.MECHANISMS, "dp_", has_lists=True)
UPLOAD = ChoiceFlag("upload", UPLOADS, "upload_")
AGGREGATOR = ChoiceFlag("aggregator", AGGREGATORS)
FAULT = ChoiceFlag("fault", FAULTS, "fault_")
SAMPLER = ChoiceFlag("sampler", SAMPLERS, "sampler_", is_condition=True)
SYSTEM = ChoiceFlag(
  "system", SYSTEMS, "system_", is_condition=True, numbers_are_conditions=True
)
AVAILABILITY = ChoiceFlag(
  "availability",
  AVAILABILITIES,
  "availability_",
  is_condition=True,
  numbers_are_conditions=True,
)
SCHEDULE = ChoiceFlag("schedule", SCHEDULES)
CHOICE_FLAGS = {
  choice_flag.flag: choice_flag
  for choice_flag in (
    TASK, PARTITION, ALGORITHM, CLIENT, SERVER, REGULARIZER, PRIVACY, UPLOAD,
    AGGREGATOR, FAULT, SAMPLER, SYSTEM, AVAILABILITY,
    SCHEDULE,
  )
}  # fmt: skip


def made_of_registries(make: Callable[[], T]) -> Callable[[], T]:
  """A function that is called once, and again if a registry got an entry."""

  @functools.lru_cache(maxsize=2)
  def made(entries):
    del entries
    return make()

  return functools.wraps(make)(
    lambda: made(tuple(tuple(flag.entries) for flag in CHOICE_FLAGS.values()))
  )


# The rule of plain steps: only gradient descent.
PLAIN_RULE = CLIENT.names(lambda rule: rule.is_plain)


def parse_numbers(field: Field, text: Any, flag: str) -> list[Any]:
  """The numbers of a comma list.

  Args:
    field: says which numbers are allowed.
    text: the list.
    flag: its name in messages.

  Raises:
    ValueError: naming the item that is not a number, not allowed or repeated.
  """
  noun, example = "numbers", "0.01,0.1"
  if field.value_type is int:
    noun, example = "whole numbers", "0,1,2"
  items, values = str(text).split(","), []
  if len(items) > MAX_ITEMS:
    raise ValueError(
      f"{flag}: has {len(items)} values; must have at most {MAX_ITEMS}"
    )
  for item in items:
    try:
      value = field.value_type(item)
    except ValueError:
      raise ValueError(
        f"{flag}={text}: {item!r} is not a number; must be {noun} between "
        f"commas, such as {example}"
      ) from None
    if field.value_type is float:
      # Python reads 1e-400 as 0.
      exact = value or decimal.Decimal(item.strip())
      check_fits_float(flag, exact)
    if value in values:
      raise ValueError(f"{flag}={text}: {item} is repeated; give it once")
    values.append(value)
  for value in values:
    field.check(flag, value)
  return values


def check_absent(
  given: FlagValues, why: str, *flags: str, hint: str = "leave {} out"
) -> None:
  """Checks that none of some flags is given.

  Args:
    given: flag -> value; None, or no value, if it is not given.
    why: why they cannot be given.
    *flags: which.
    hint: what to do; {} stands for the flag.

  Raises:
    ValueError: naming the first one that is given.
  """
  for flag in flags:
    value = given.get(flag)
    if value is not None:
      text = repr(value) if flag in CHOICE_FLAGS else format_value(value)
      raise ValueError(f"{flag}={text}: {why}; {hint.format(flag)}")


# Lists for flags with one value.


def is_list(value: str, check: Callable[[str], Any]) -> bool:
  """Whether a text is a list of several values with commas.

  Args:
    value: a flag's value.
    check: function that is false, or raises ValueError, for all but a single
      value.
  """
  try:
    return "," in value and all(
      check(item.strip()) is not False for item in value.split(",")
    )
  except ValueError:
    return False


def one_only(name: str, value: str, is_condition: bool) -> str:
  """The message for a list where a run has one value, and what to do instead.

  Args:
    name: the flag's name.
    value: its text.
    is_condition: whether methods can be compared under several values.
  """
  flag = CHOICE_FLAGS.get(name)
  why = f"{name}={value}: a run has one {name if flag else f'value of {name}'}"
  if is_condition:
    return f"{why}; {_COMPARE} takes this list"
  if flag is None or not flag.has_lists:
    return f"{why}; give one of them"
  algorithm = "fed_mid" if name == "regularizer" else "fed_avg"
  methods = [item.strip() for item in value.split(",")][:2]
  if name != "algorithm":
    methods = [f"'{algorithm} {name}={method}'" for method in methods]
  arguments = " ".join(f"--method={method}" for method in methods)
  return f"{why}; compare several: {_COMPARE} {arguments}"
