"""What a docstring says of arguments or attributes, for the help of flags."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from fedjax_opt.registry import Hyperparameter, from_factory


def meanings(of: Callable[..., Any]) -> dict[str, str]:
  """Name -> what the docstring of a function or class says of it.

  Lines that begin with `- word: ` are a list, each entry a line.
  """
  docstring = inspect.getdoc(of) or ""
  _, *parts = re.split(r"^  (\w+): ", docstring, flags=re.MULTILINE)
  texts = (text.partition("\n\n")[0] for text in parts[1::2])
  return dict(zip(parts[::2], map(_in_lines, texts), strict=True))


def _in_lines(text: str) -> str:
  """A text in one line, and a line for each entry of its list."""
  first, *items = (
    " ".join(part.split()) for part in re.split(r"\n +- (?=\w+: )", text)
  )
  entries = dict(item.split(": ", 1) for item in items)
  width = max(map(len, entries), default=0)
  return "\n".join([first, *(f"{n:{width}}  {t}" for n, t in entries.items())])


def options(
  factory: Callable[..., Any], *names: str, **overrides: Any
) -> tuple[Hyperparameter, ...]:
  """Hyperparameters of a factory, with all that its docstring says of them.

  Args:
    factory: see `from_factory`.
    *names: see `from_factory`.
    **overrides: see `from_factory`.
  """
  helps = meanings(factory)
  return tuple(
    parameter._replace(help=helps[parameter.name].removesuffix("."))
    for parameter in from_factory(factory, *names, **overrides)
  )
