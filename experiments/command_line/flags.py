"""The flags of a run, made from the fields of `Spec` and the registries."""

import functools
from collections.abc import Mapping
from typing import Any

from absl import flags

from experiments.command_line import mistakes, texts
from experiments.specification import spec
from experiments.specification.choice_flags import names_of_entries
from experiments.specification.spec import Spec

_DEFINE = {
  str: flags.DEFINE_string,
  list: flags.DEFINE_string,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  bool: flags.DEFINE_bool,
}


def defined() -> flags.FlagValues:
  """All flags, without values; made again if a registry got a new entry."""
  return _defined(names_of_entries())


@functools.lru_cache(maxsize=2)
def _defined(entries: tuple[tuple[str, ...], ...]) -> flags.FlagValues:
  del entries
  values, names = flags.FlagValues(), texts.names_in_helps()
  for name, flag in spec.all_flags().items():
    help = texts.of_flag(name, flag, names)
    _DEFINE[flag.type](name, flag.default, help, flag_values=values)
  return values


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
  """The values of all flags; some are given, as text or in their own type.

  Args:
    values: flag -> value; all others have their defaults.

  Raises:
    ValueError: one line, for an unknown flag or an invalid value.
  """
  definitions = defined()
  typed_values = {name: flag.default for name, flag in spec.all_flags().items()}
  for name, value in values.items():
    if name not in typed_values:
      raise ValueError(mistakes.no_such_flag(name, definitions))
    if isinstance(value, bool) and not definitions[name].boolean:
      raise ValueError(
        f"--{name}: has no value; give --{name}=VALUE"
        if value
        else mistakes.no_such_flag(f"no{name}", definitions)
      )
    if not isinstance(value, bool):
      try:
        value = definitions[name].parser.parse(str(value))
      except (ValueError, TypeError):
        raise ValueError(
          mistakes.wrong_value(name, str(value), definitions[name])
        ) from None
    typed_values[name] = value
  return typed_values


def argument(name: str, value: Any) -> str:
  """A flag with its value as a command line has it."""
  if isinstance(value, bool):
    return f"--{name}" if value else f"--no{name}"
  if isinstance(value, list):
    value = ",".join(map(str, value))
  return f"--{name}={value}"


def arguments(run_spec: Spec) -> list[str]:
  """The flags that reproduce a specification, in the order of the help."""
  return [
    argument(name, run_spec.user_flags[name])
    for name, flag in spec.all_flags().items()
    if name in run_spec.user_flags and not flag.is_of_process
  ]
