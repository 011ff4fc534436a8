"""A flag, as a field of a record says it."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.specification import choice_flags
from experiments.specification.choice_flags import ChoiceFlag
from fedjax_opt.checks.fields import ANYTHING, Field
from fedjax_opt.engine.run_options import GRID_DEFAULTS, PLAIN_EXECUTION
from fedjax_opt.registry import Hyperparameter


class Group(NamedTuple):
  """Flags that stand under one title in the help.

  Attributes:
    key: one word for it, as in `--help=KEY`.
    title: in the help.
    purpose: what a user can do with them.
  """

  key: str
  title: str
  purpose: str

  def flag(self, *default: Any, **attributes: Any) -> Any:
    """A field of `Spec` whose flag is of this group; see `Flag`.

    Args:
      *default: of the flag, if it is not that of the engine's option.
      **attributes: others of the flag.
    """
    if default:
      (attributes["default"],) = default
    return dataclasses.field(metadata={"group": self, **attributes})

  def option(self, default: Any = None, **attributes: Any) -> Any:
    """A field of another record, with a default, whose flag is of this group.

    Args:
      default: of the field, and of the flag if it is not empty.
      **attributes: others of the flag.
    """
    metadata = {"group": self, "default": default or None, **attributes}
    return dataclasses.field(default=default, metadata=metadata)


class Flag(NamedTuple):
  """The flag of a field, or of a hyperparameter.

  Attributes:
    group: the group under whose title it stands.
    default: its default on the command line.
    type: of its values: str, int, float, bool for --name and --noname, or list
      for numbers with commas, which make a grid.
    help: its meaning, with its unit and whatever is not obvious about its
      default. Names in braces stand for text that depends on the registries. ''
      for hyperparameters, whose registry entries have the help.
    choice_flag: of a flag that chooses from a registry; None for others.
    owners: for a hyperparameter, the entries that have it, and the
      hyperparameter that it is there.
    field: what a value may be, as far as others do not check it.
    needs: flag, or flag=value, without which it must not be given.
    counts_zero: whether a flag that needs this one accepts it with the value 0.
    excludes: flags that must not be given with it -> why.
    is_identity: whether results depend on it, but for rounding. If not, it may
      differ when a run is resumed, and a stored run counts as the same.
    is_of_process: whether it says how one process runs, so that a file of
      flags that repeats the run lacks it.
    is_condition: whether methods can be compared under several values.
    form: of its value, as the help has it, such as '=N'.
  """

  group: Group
  default: Any
  type: type
  help: str = ""
  choice_flag: ChoiceFlag | None = None
  owners: Mapping[str, Hyperparameter] = types.MappingProxyType({})
  field: Field = ANYTHING
  needs: str = ""
  counts_zero: bool = False
  excludes: Mapping[str, str] = types.MappingProxyType({})
  is_identity: bool = True
  is_of_process: bool = False
  is_condition: bool = False
  form: str = ""

  @property
  def words(self) -> list[str]:
    """The words that it accepts; [] if it also accepts other values."""
    if self.choice_flag is not None:
      return list(self.choice_flag.registry)
    fields = [self.field, *(param.field for param in self.owners.values())]
    return list(
      dict.fromkeys(word for field in fields for word in field.choices)
    )

  def is_there(self, value: Any) -> bool:
    """Whether a value is enough for a flag that needs this one."""
    return value is not None if self.counts_zero else bool(value)


def flags_of(record: type, helps: Mapping[str, str]) -> dict[str, Flag]:
  """Name of a field -> its flag, of those fields that a `Group` made.

  Args:
    record: a dataclass.
    helps: name of a field -> the help of its flag.
  """
  flags = {}
  for field in dataclasses.fields(record):
    if field.metadata:
      is_union = isinstance(field.type, types.UnionType)
      kind = typing.get_args(field.type)[0] if is_union else field.type
      kind = kind if kind in (int, float, bool) else str
      choice_flag = choice_flags.CHOICE_FLAGS.get(field.name)
      attributes = {
        "default": GRID_DEFAULTS.get(field.name),
        "type": kind,
        "help": helps[field.name],
        "is_identity": field.name not in PLAIN_EXECUTION,
        "is_condition": choice_flag is not None and choice_flag.is_condition,
      } | field.metadata
      flags[field.name] = Flag(choice_flag=choice_flag, **attributes)
  return flags


def kinds_of(flags: Mapping[str, Flag]) -> dict[str, Any]:
  """The types of the values of flags, by name."""
  return {name: flag.type for name, flag in flags.items()}


def check_fields(record: Any, flags: Mapping[str, Flag]) -> None:
  """Checks the values that a record has for flags, None excepted.

  Raises:
    ValueError: naming the flag whose value is not allowed.
  """
  for name, flag in flags.items():
    value = getattr(record, name, None)
    if value is not None:
      flag.field.check(name, value)
