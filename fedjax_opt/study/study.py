"""A study: its cells, with a report."""

import os
import pathlib
from typing import Any

from fedjax_opt.checks.values import check_choice
from fedjax_opt.study.report import (
  formats,
  page,
  pictures,
  study_tables,
  templates,
)
from fedjax_opt.study.study_cells import StudyCells


class Study(StudyCells):
  """Methods compared under conditions, with a report; see `compare`.

  `print` shows its table, with the meaning of the marks. For its attributes see
  `StudyCells`.
  """

  def table_lines(self) -> list[str]:
    """The table for a terminal, with the meaning of its marks."""
    return formats.lines(study_tables.main_table(self))

  def write(self, folder: str | os.PathLike) -> pathlib.Path:
    """Writes the report: report.html, tables and pictures.

    The files are `report.html`, `table.md`, `table.tex`, `table.csv`,
    `pairs.csv`, `seeds.csv` and `pictures/`. Each is replaced as a whole;
    everything else in the folder stays.

    Args:
      folder: new, empty, or that of a study.

    Returns:
      The path of `report.html`.

    Raises:
      ValueError: if the folder holds anything else, or cannot be written.
      ImportError: if matplotlib is missing.
    """
    return page.write(self, folder)

  def plot(self, name: str | None = None) -> Any:
    """Draws a picture of the report, for a notebook.

    Args:
      name: the name of the picture's files, such as 'learning_curves'; None for
        the report's first picture.

    Returns:
      The matplotlib figure.

    Raises:
      ValueError: if the report has no such picture.
      ImportError: if matplotlib is missing.
    """
    by_name = {picture.name: picture for picture in pictures.of_study(self)}
    name = next(iter(by_name), "") if name is None else name
    check_choice("name", name, by_name)
    return by_name[name].draw(None)

  def _repr_html_(self) -> str:
    """What a notebook shows: the findings and the table."""
    return templates.render("short.html", **page.values_of(self))

  def __str__(self) -> str:
    return "\n".join(self.table_lines())
