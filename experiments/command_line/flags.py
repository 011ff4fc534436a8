"""The flags of a run, made from the fields of `Spec` and the registries."""

import functools
from collections.abc import Mapping
from typing import Any

from absl import flags

from experiments.command_line import mistakes
from experiments.specification import spec
from experiments.specification.kinds import KINDS, Kind, help_of
from experiments.specification.spec import FLAGS, Spec
from fedjax_opt.registry import Hyperparameter

_DEFINE = {
  "text": flags.DEFINE_string,
  "whole": flags.DEFINE_integer,
  "number": flags.DEFINE_float,
  "switch": flags.DEFINE_bool,
}


def defined() -> flags.FlagValues:
  """All flags, without values; anew if a registry has got another entry."""
  return _defined(tuple((f, *kind.entries) for f, kind in KINDS.items()))


@functools.lru_cache(maxsize=2)
def _defined(entries: tuple[tuple[str, ...], ...]) -> flags.FlagValues:
  del entries
  values = flags.FlagValues()
  notes = _notes()
  for name, flag in FLAGS.items():
    _DEFINE[flag.type](name, flag.default, flag.text, flag_values=values)
    if flag.choice is not None:
      _define(flag.choice, notes, values)
  return values


def _define(
  kind: Kind, notes: Mapping[str, str], values: flags.FlagValues
) -> None:
  """Defines one flag for each hyperparameter of the entries of a kind."""
  for flag, owners in kind.owners().items():
    parameter, help = next(iter(owners.values())), help_of(owners)
    help += notes.get(flag, "")
    is_number = isinstance(parameter, Hyperparameter)
    type = "number"
    if not is_number or parameter.takes_range:
      type = "text"
    elif isinstance(parameter.default, bool):
      type = "switch"
    elif kind.has_lists and parameter.is_tuned:
      type, help = "text", f"[list] {help}"
    elif parameter.is_static or isinstance(parameter.default, int):
      type = "whole"
    _DEFINE[type](flag, None, help, flag_values=values)


def _notes() -> dict[str, str]:
  """What the help says of flags for which tasks have a default of their own."""
  of_flag: dict[str, list[str]] = {}
  for name, task in FLAGS["task"].choice.registry.items():
    for flag, value in task.defaults.items():
      of_flag.setdefault(flag, []).append(f"{name} {value:g}")
  return {
    flag: f" Tasks with a default of their own: {', '.join(tasks)}."
    for flag, tasks in of_flag.items()
  }


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
  """The values of all flags, of which some are given as text or by type.

  Args:
    values: flag -> value; all others have their defaults.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
  """
  known = defined()
  found = {name: known[name].default for name in spec.names()}
  for name, value in values.items():
    if name not in found:
      raise ValueError(mistakes.no_such_flag(name, known))
    if isinstance(value, bool) and not known[name].boolean:
      raise ValueError(
        f"--{name}: has no value; give --{name}=VALUE"
        if value
        else mistakes.no_such_flag(f"no{name}", known)
      )
    if not isinstance(value, bool):
      try:
        value = known[name].parser.parse(str(value))
      except (ValueError, TypeError):
        raise ValueError(
          mistakes.wrong_value(name, str(value), known[name])
        ) from None
    found[name] = value
  return found


def argument(name: str, value: Any) -> str:
  """A flag with its value as a command line has it."""
  if isinstance(value, bool):
    return f"--{name}" if value else f"--no{name}"
  if isinstance(value, list):
    value = ",".join(map(str, value))
  return f"--{name}={value}"


def arguments(found: Spec) -> list[str]:
  """The flags that give a specification again, in the order of the help."""
  values = []
  for name in spec.names():
    of_process = name in FLAGS and FLAGS[name].is_of_process
    if name in found.given and not of_process:
      values.append(argument(name, found.given[name]))
  return values
