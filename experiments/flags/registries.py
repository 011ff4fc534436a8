"""Flags made from a registry: the choice, and one for each hyperparameter.

A `Kind` ties a flag such as --client to its registry. It defines the flags of
all hyperparameters, checks that those given belong to what was chosen, and
reads them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments.flags import command_line, mistakes
from fedjax_opt.registry import (
  Choice,
  Hyperparameter,
  Option,
  Parameter,
  Paths,
  check_belongs,
  check_choice,
)

# With more owners than this, that share a default, the help does not name them.
_MANY_OWNERS = 12
# Of more owners than this, a message names the first only.
_MOST_SHOWN = 8

Flags = Mapping[str, Any]  # flag -> value; None if it was not given


def _same_name(
  name: str, choice: Choice, parameter: Parameter
) -> tuple[str, Parameter]:
  del name, choice
  return parameter.name, parameter


class Chosen(NamedTuple):
  """An entry of a registry that was chosen, with the values of its flags."""

  kind: str  # the flag that chose it, such as "client"
  name: str
  choice: Choice
  arguments: dict[str, str]  # flag -> argument of the factory
  grid: dict[str, list[float]]  # flag -> values, of what may be tuned
  static: dict[str, Any]  # flag -> value, of what may not

  def make(self, point: Mapping[str, Any], **others: Any) -> Any:
    """What the factory makes at a point of the grid.

    Args:
      point: flag -> value, for each flag of `grid`; other flags are ignored.
      **others: arguments of the factory that have no flag.
    """
    values = {**point, **self.static}
    arguments = {name: values[flag] for flag, name in self.arguments.items()}
    for parameter in self.choice.hyperparameters:
      if isinstance(parameter, Paths):
        arguments[parameter.name] = parameter.of(arguments[parameter.name])
    return self.choice.factory(**arguments, **others)


class Kind(NamedTuple):
  """A flag that chooses from a registry by name.

  Attributes:
    flag: name of the flag, such as "client".
    registry: what there is to choose from.
    has_lists: whether its numbers may be lists, which make a grid.
    named: `(name, choice, hyperparameter) -> (flag, hyperparameter)`, the flag
      of a hyperparameter, and the hyperparameter with its default there.
    listing: where the names are listed, if they are too many for a message.
  """

  flag: str
  registry: Mapping[str, Choice]
  has_lists: bool = False
  named: Callable[[str, Choice, Parameter], tuple[str, Parameter]] = _same_name
  listing: str | None = None

  def parameters(self, name: str) -> dict[str, Parameter]:
    """The hyperparameters of a choice, by flag."""
    choice = self.registry[name]
    return dict(self.named(name, choice, p) for p in choice.hyperparameters)

  def owners(self) -> dict[str, dict[str, Parameter]]:
    """Of each flag, the choices that have it and what it is there."""
    found: dict[str, dict[str, Parameter]] = {}
    for name in self.registry:
      for flag, parameter in self.parameters(name).items():
        found.setdefault(flag, {})[name] = parameter
    return found

  def define(self, notes: Mapping[str, str] | None = None) -> None:
    """Defines one flag for each hyperparameter.

    Args:
      notes: flag -> text at the end of its help.
    """
    for flag, owners in self.owners().items():
      parameter = next(iter(owners.values()))
      help = _help(owners) + (notes or {}).get(flag, "")
      is_number = isinstance(parameter, Hyperparameter)
      if not is_number or parameter.takes_range:
        command_line.text(flag, None, help)
      elif isinstance(parameter.default, bool):
        command_line.switch(flag, None, help)
      elif self.has_lists and parameter.is_tuned:
        command_line.text(flag, None, f"[list] {help}")
      elif parameter.is_static or isinstance(parameter.default, int):
        command_line.integer(flag, None, help)
      else:
        command_line.number(flag, None, help)

  def check(self, name: str) -> None:
    """Raises ValueError if there is nothing of this name."""
    if mistakes.is_list(name, lambda each: each in self.registry):
      raise ValueError(mistakes.one_only(self.flag, name))
    check_choice(self.flag, name, self.registry, self.listing)

  def check_others(self, flags: Flags, name: str, is_free: bool = True) -> None:
    """Checks that the flags that are given are those of a choice.

    Args:
      flags: values of all flags.
      name: what was chosen.
      is_free: whether something else could be chosen.

    Raises:
      ValueError: naming a flag of another choice, and what to give for it.
    """
    for flag, owners in self.owners().items():
      value = flags[flag]
      if value is None or name in owners:
        continue
      parameter = next(iter(owners.values()))
      if isinstance(parameter, Option) and parameter.refusal:
        refusal = parameter.refusal.format(chosen=name)
        raise ValueError(f"{flag}={value!r}: {refusal}")
      hint = f"; leave {flag} out"
      if is_free:
        others = f"--{self.flag}={next(iter(owners))}"
        hint = f"; give {others}, or leave {flag} out"
      shown = list(owners)
      if len(shown) > _MOST_SHOWN:
        shown = [*shown[:3], "..."]
      check_belongs(flag, value, self.flag, name, shown, hint)

  def read(
    self,
    flags: Flags,
    name: str,
    defaults: Mapping[str, Any] | None = None,
    intervals: Mapping[str, str] | None = None,
  ) -> Chosen:
    """Checks the values of a choice's flags, and fills in their defaults.

    Args:
      flags: values of all flags.
      name: what was chosen, see `check` and `check_others`.
      defaults: flag -> default, where it is not that of the registry.
      intervals: flag -> values allowed, likewise.

    Raises:
      ValueError: for a value that is not allowed.
    """
    grid, static = {}, {}
    parameters = self.parameters(name)
    for flag, parameter in parameters.items():
      if flag in (intervals or {}):
        parameter = parameter._replace(interval=intervals[flag])
      default = (defaults or {}).get(flag, parameter.default)
      value = default if flags[flag] is None else flags[flag]
      if value is None:  # Left to the factory.
        static[flag] = None
      elif self.has_lists and parameter.is_tuned:
        grid[flag] = numbers(flag, value)
        for each in grid[flag]:
          parameter.check(each, flag)
      else:
        static[flag] = value
        if not isinstance(value, bool):
          parameter.check(value, flag)
    arguments = {flag: p.name for flag, p in parameters.items()}
    choice = self.registry[name]
    return Chosen(self.flag, name, choice, arguments, grid, static)


def _help(owners: Mapping[str, Parameter]) -> str:
  """The help of a flag: its meanings, and whose defaults are which."""
  meanings: dict[str, dict[str, str]] = {}
  lines: list[str] = []
  for name, parameter in owners.items():
    text, *lines = describe(parameter).split("\n")
    meanings.setdefault(text, {})[name] = shown_default(parameter.default)
  parts = []
  for text, defaults in meanings.items():
    if len(defaults) > _MANY_OWNERS and len(set(defaults.values())) == 1:
      parts.append(f"{text}. Default: {next(iter(defaults.values()))}.")
    else:
      each = [f"{name} {value}".strip() for name, value in defaults.items()]
      parts.append(f"{text} ({', '.join(each)}).")
  return "\n".join([" ".join(parts), *lines])


def describe(parameter: Parameter) -> str:
  """What a parameter is, with its range; then lines of its list, if any."""
  first, *lines = parameter.help.split("\n")
  text = first[0].upper() + first[1:]
  if isinstance(parameter, Hyperparameter):
    if parameter.takes_range:
      text += "; LOW-HIGH, such as 100-500, is a range"
    if parameter.interval != "(-inf, inf)":
      text += f", in {parameter.interval}"
  return "\n".join([text, *lines])


def shown_default(default: Any) -> str:
  """A default as the help has it; nothing for what is off or left out."""
  if default is None or default is False:
    return ""
  if isinstance(default, str):
    return default
  return "true" if default is True else f"{default:g}"


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
