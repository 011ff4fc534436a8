"""What is shown of an artefact: tables, pictures and claims."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from experiments.artefacts.claims import Claim


class Table(NamedTuple):
  """A table of an artefact.

  Attributes:
    columns: their heads.
    rows: cells, as text.
    title: a line above it, or ''.
  """

  columns: Sequence[str]
  rows: Sequence[Sequence[str]]
  title: str = ""


class Picture(NamedTuple):
  """A picture of an artefact.

  Attributes:
    name: of the file, without its ending.
    draw: `() -> figure`, one of matplotlib.
    alt: what it shows, for readers who cannot see it.
  """

  name: str
  draw: Callable[[], Any]
  alt: str


Block = Table | Picture | Claim
