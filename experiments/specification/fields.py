"""How a field of the specification is declared: as a command-line flag."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.specification.kinds import Kind
from fedjax_opt.registry import Hyperparameter, check_choice


class Group(NamedTuple):
  """Flags that stand under one title in the help.

  Attributes:
    key: one word for it, as in `--help=KEY`.
    title: in the help.
  """

  key: str
  title: str

  def text(self, default: str | None, help: Any, **about: Any) -> Any:
    """A field whose value is text."""
    return self._field("text", default, help, about)

  def whole(self, default: int | None, help: Any, **about: Any) -> Any:
    """A field whose value is a whole number."""
    return self._field("whole", default, help, about)

  def number(self, default: float | None, help: Any, **about: Any) -> Any:
    """A field whose value is a number."""
    return self._field("number", default, help, about)

  def switch(self, default: bool, help: Any, **about: Any) -> Any:
    """A field that is given as --name or --noname."""
    return self._field("switch", default, help, about)

  def choice(
    self, kind: Kind, default: str | None, help: Any, **about: Any
  ) -> Any:
    """A field that is an entry of a registry, with flags of its own."""
    return self._field("text", default, help, about | {"choice": kind})

  def _field(self, type, default, help, about):
    flag = Flag(self, type, default, help, **about)
    return dataclasses.field(metadata={"flag": flag})


class Flag(NamedTuple):
  """The flag of a field.

  Attributes:
    group: under whose title it stands.
    type: 'text', 'whole', 'number' or 'switch'.
    default: on the command line.
    help: what it means, with its unit and what is not obvious of its default;
      a function if that depends on the registries.
    choice: of what it is an entry; None for a plain value.
    interval: values allowed, such as "[1, inf)"; "" where `resolve` checks.
    accepted: words allowed; () for any text.
    is_identity: whether results depend on it. What does not may differ when a
      run is resumed.
    is_of_process: whether it says how one process runs, so that a file of
      flags that repeats the run lacks it.
    is_condition: whether methods can be compared under several values.
  """

  group: Group
  type: str
  default: Any
  help: str | Callable[[], str]
  choice: Kind | None = None
  interval: str = ""
  accepted: tuple[str, ...] = ()
  is_identity: bool = True
  is_of_process: bool = False
  is_condition: bool = False

  @property
  def text(self) -> str:
    """The help."""
    return self.help() if callable(self.help) else self.help

  def check(self, name: str, value: Any) -> None:
    """Raises ValueError if the flag of this name cannot have a value."""
    if value is None:
      return
    if self.accepted:
      check_choice(name, value, self.accepted)
    if self.interval:
      default = 0 if self.type == "whole" else 0.0
      Hyperparameter(name, default, name, self.interval).check(value)
