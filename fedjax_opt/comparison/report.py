"""The folder of a study: its page, its tables and its pictures.

report.html  one page with everything, which needs no other file
table.md     the table for people, as Markdown and as LaTeX (booktabs)
table.tex
table.csv    every cell with all its numbers
pictures/    the pictures, as png, pdf and svg
"""

import os
import pathlib
import re
from collections.abc import Sequence

from fedjax_opt import folders
from fedjax_opt.comparison import (
  csv_table,
  page,
  pictures,
  sections,
  tables,
  verdicts,
  words,
)
from fedjax_opt.comparison.cells import Study
from fedjax_opt.comparison.limits import limits_of
from fedjax_opt.comparison.tables import Table
from fedjax_opt.comparison.verdicts import Verdict
from fedjax_opt.results import plots
from fedjax_opt.results.json_files import write_whole

_PAGE = "report.html"
_MARKS = (_PAGE, "study.json")  # Either says that a folder is that of a study.
# Of more sentences than these the summary is a list.
_MAX_SENTENCES = 4
_NO_LIMITS = (
  "No chosen value is at the edge of its grid, nothing diverged, in tuning or "
  "in the report, the seeds of the report are fresh, and all methods tried as "
  "many settings."
)
_GENERATOR = '<meta name="generator" content="fedjax_opt">'


def write(study: Study, folder: str | os.PathLike) -> pathlib.Path:
  """Writes the report of a study; see `Study.write`."""
  plots.check_installed()
  folder = _check(folder)
  found = verdicts.verdicts(study)
  table = tables.main_table(study, found)
  drawn = pictures.of_study(study, found)
  with folders.writing("folder", folder):
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    _remove_former(folder, drawn)
    for picture in drawn:
      stem = folder / "pictures" / picture.name
      picture.draw([stem.with_name(f"{stem.name}.{k}") for k in page.KINDS])
    for name, text in (
      ("table.md", tables.markdown(table, study.title)),
      ("table.tex", tables.latex(table)),
      ("table.csv", csv_table.csv_text(study, found)),
      (_PAGE, html(study, found, table, drawn, folder / "pictures")),
    ):
      write_whole(folder / name, text.encode())
  return folder / _PAGE


def _check(folder: str | os.PathLike) -> pathlib.Path:
  """The folder, if a report may be written to it."""
  if not isinstance(folder, str | os.PathLike):
    raise TypeError(f"folder={folder!r}: must be the name of a folder")
  path, inside = folders.contents("folder", folder)
  if not set(_MARKS) & set(inside):
    # A report that was stopped on its way has left no page.
    folders.check_empty("folder", path, [n for n in inside if n != "pictures"])
  if _PAGE in inside and _GENERATOR not in _text(path / _PAGE):
    raise ValueError(
      f"folder={str(path)!r}: its {_PAGE} is not that of a study; give another "
      "folder"
    )
  return path


def _text(path: pathlib.Path) -> str:
  return path.read_text(errors="replace") if path.is_file() else ""


def _remove_former(
  folder: pathlib.Path, drawn: Sequence[pictures.Picture]
) -> None:
  """Removes the pictures of the former report that the new one lacks."""
  former = _text(folder / _PAGE)
  files = set(re.findall(r'href="pictures/([\w-]+\.(?:png|pdf|svg))"', former))
  kept = {f"{picture.name}.{kind}" for picture in drawn for kind in page.KINDS}
  for name in files - kept:
    (folder / "pictures" / name).unlink(missing_ok=True)


# The page.


def html(
  study: Study,
  found: Sequence[Verdict],
  table: Table,
  drawn: Sequence[pictures.Picture],
  folder: pathlib.Path,
) -> str:
  """The page, of a study whose pictures are in a folder."""
  shown = [
    page.figure(each.title, each.caption, folder / f"{each.name}.png")
    for each in drawn
  ]
  parts = [
    f"<h1>{page.escape(study.title)}</h1>",
    page.paragraph(_facts(study, found), "facts"),
    _summary(study, found),
    *shown[:1],
    *_results(study, found, table),
    *_limits(study, found),
  ]
  if shown[1:]:
    parts.append("<h2>In detail</h2>")
    for picture, each in zip(drawn[1:], shown[1:], strict=True):
      parts += [f"<h3>{page.escape(picture.title)}</h3>", each]
  parts += [
    *sections.tuning(study),
    *sections.costs(study, found),
    "<h2>How verdicts are reached</h2>",
    page.paragraph(verdicts.RULE),
    *sections.commands(study),
    *sections.shared(study),
  ]
  return page.whole(study.title, parts)


def short_html(study: Study) -> str:
  """The findings and the table, inside of a notebook."""
  found = verdicts.verdicts(study)
  table = page.table(tables.main_table(study, found))
  return (
    f"<div><p><b>{page.escape(study.title)}</b></p>"
    f"{_summary(study, found)}{table}</div>"
  )


def _facts(study: Study, found: Sequence[Verdict]) -> str:
  """What was compared, in a line."""
  seeds = words.span(v.num_seeds for v in found if v.num_seeds)
  parts = [
    words.counted(len(study.methods), "method"),
    words.counted(len(study.conditions), "condition"),
    "1 seed" if seeds == "1" else f"{seeds} seeds",
    f"compared by {words.on_examples(study.metric)}",
  ]
  return " · ".join(parts)


def _summary(study: Study, found: Sequence[Verdict]) -> str:
  """The sentences: one paragraph or, of many conditions, a list."""
  lines = verdicts.sentences(study, found)
  if len(lines) <= _MAX_SENTENCES:
    return page.paragraph(" ".join(lines), "findings")
  return page.paragraph(lines[0], "findings") + page.bullets(lines[1:])


def _results(study: Study, found: Sequence[Verdict], table: Table) -> list[str]:
  files = [(name, f"table.{name}") for name in ("md", "tex", "csv")]
  parts = ["<h2>Results</h2>", page.table(table, f" {page.links(files)}")]
  behind = tables.differences(study, found)
  if behind is not None:
    parts += ["<h3>Differences</h3>", page.table(behind)]
  return parts


def _limits(study: Study, found: Sequence[Verdict]) -> list[str]:
  lines = limits_of(study, found)
  parts = ["<h2>What limits this comparison</h2>"]
  if lines:
    return [*parts, page.bullets(lines, "limits")]
  return [*parts, page.paragraph(_NO_LIMITS)]
