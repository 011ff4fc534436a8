"""A study that can be printed, written and drawn."""

import dataclasses
import os
import pathlib
from typing import Any

from fedjax_opt.study import verdicts
from fedjax_opt.study.cells import Cells


@dataclasses.dataclass(frozen=True, repr=False)
class Study(Cells):
  """Methods compared under conditions, see `compare`.

  Printed it is its table, with what the marks mean.
  """

  def table_lines(self) -> list[str]:
    """The table for a terminal, and what its marks mean."""
    from fedjax_opt.study.report import formats, tables

    return formats.lines(tables.main_table(self, verdicts.verdicts(self)))

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

    drawn = pictures.of_study(self, verdicts.verdicts(self))
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
