"""A study: methods, the conditions under which they ran, and what they show."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedjax_opt.results.history import direction
from fedjax_opt.results.names import shown_name
from fedjax_opt.study import words
from fedjax_opt.study.cells import Cell

if TYPE_CHECKING:  # What shows a study is imported where it is shown.
  from fedjax_opt.study.verdicts import Verdict


@dataclasses.dataclass(frozen=True, repr=False)
class Study:
  """Methods compared under conditions, see `compare`.

  Printed it is its table, with what the marks mean.

  Attributes:
    cells: one for each method and condition.
    metric: by which methods are compared, such as 'test_accuracy'.
    title: of its report.
    target: value of the metric whose cost is reported, or None.
    about: name -> value of what all cells share, for the report.
    command: the command that made it, or "".
    notes: sentences on what else limits the comparison, for the report.
  """

  cells: tuple[Cell, ...]
  metric: str
  title: str = "Study"
  target: float | None = None
  about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  command: str = ""
  notes: tuple[str, ...] = ()

  @property
  def methods(self) -> list[str]:
    """The labels of the methods, in order."""
    return list(dict.fromkeys(cell.method for cell in self.cells))

  @property
  def conditions(self) -> list[dict[str, Any]]:
    """The conditions, in order."""
    found: list[dict[str, Any]] = []
    for cell in self.cells:
      if dict(cell.condition) not in found:
        found.append(dict(cell.condition))
    return found

  @property
  def labels(self) -> dict[str, str]:
    """method -> its name for people, another one for each."""
    names = [shown_name(" ".join(m.split())) for m in self.methods]
    unique = words.unique(name or "(no name)" for name in names)
    return dict(zip(self.methods, unique, strict=True))

  @property
  def is_larger_better(self) -> bool:
    """Whether larger values of the metric are better."""
    return direction(self.metric) == "max"

  def cell(self, method: str, condition: Mapping[str, Any]) -> Cell | None:
    """The cell of a method under a condition, if it is there."""
    for cell in self.cells:
      if cell.method == method and dict(cell.condition) == dict(condition):
        return cell
    return None

  def under(self, condition: Mapping[str, Any]) -> dict[str, Cell]:
    """The cells of a condition, by method."""
    found = {m: self.cell(m, condition) for m in self.methods}
    return {method: cell for method, cell in found.items() if cell is not None}

  @functools.cached_property
  def verdicts(self) -> list[Verdict]:
    """The verdict on every cell, condition after condition."""
    from fedjax_opt.study import verdicts

    return verdicts.verdicts(self)

  def table_lines(self) -> list[str]:
    """The table for a terminal, and what its marks mean."""
    from fedjax_opt.study.report import formats, study_tables

    return formats.lines(study_tables.main_table(self))

  def write(self, folder: str | os.PathLike) -> pathlib.Path:
    """Writes the report: report.html, tables and pictures.

    The files are `report.html`, `table.md`, `table.tex`, `table.csv` and
    `pictures/`. Each is replaced as a whole; everything else in the folder
    stays.

    Args:
      folder: new, empty, or that of a study.

    Returns:
      The path of `report.html`.

    Raises:
      ValueError: if the folder holds anything else, or cannot be written.
      ImportError: if matplotlib, Jinja2 or pandas is missing.
    """
    from fedjax_opt.study.report import page

    return page.write(self, folder)

  def plot(self, name: str | None = None) -> Any:
    """Draws a picture of the report, for a notebook.

    Args:
      name: of the picture's files, such as 'learning_curves'; the first one of
        the report if None.

    Returns:
      The matplotlib figure.

    Raises:
      ValueError: if the report has no such picture.
      ImportError: if matplotlib is missing.
    """
    from fedjax_opt.study.report import pictures

    drawn = pictures.of_study(self)
    for picture in drawn:
      if name in (None, picture.name):
        return picture.draw(None)
    names = ", ".join(picture.name for picture in drawn) or "none"
    raise ValueError(f"name={name!r}: must be a picture of the study: {names}")

  def _repr_html_(self) -> str | None:
    """What a notebook shows: the findings and the table."""
    from fedjax_opt.study.report import page

    return page.short_html(self)

  def __str__(self) -> str:
    return "\n".join(self.table_lines())

  def __repr__(self) -> str:
    return (
      f"{type(self).__name__}({len(self.methods)} methods, "
      f"{len(self.conditions)} conditions, {len(self.cells)} cells, by "
      f"{self.metric})"
    )
