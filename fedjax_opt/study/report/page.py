"""The folder of a study: its page, its tables and its pictures.

report.html  one page with everything, which needs no other file
table.md     the table for people, as Markdown and as LaTeX (booktabs)
table.tex
table.csv    every cell with all its numbers
pictures/    the pictures, as png, pdf and svg
"""

from __future__ import annotations

import base64
import importlib.util
import os
import pathlib
import re
import struct
from collections.abc import Sequence
from typing import Any

from fedjax_opt.files import folders
from fedjax_opt.files.json_files import write_whole
from fedjax_opt.study import plots, verdicts, words
from fedjax_opt.study.limitations import limits_of
from fedjax_opt.study.report import (
  formats,
  pictures,
  study_tables,
  tuning_pictures,
)
from fedjax_opt.study.report.pictures import Picture
from fedjax_opt.study.verdicts import JudgedStudy

_PAGE = "report.html"
_MARKS = (_PAGE, "study.json")  # Either says that a folder is that of a study.
_GENERATOR = '<meta name="generator" content="fedjax_opt">'
_KINDS = ("png", "pdf", "svg")
# A pixel of a picture on the page; narrow pictures are shown larger.
_SCALE, _SCALE_OF_NARROW = 0.6, 0.72
_NARROW, _BROAD = 800, 560


def write(study: JudgedStudy, folder: str | os.PathLike) -> pathlib.Path:
  """Writes the report of a study; see `Study.write`."""
  plots.check_installed()
  formats.check_installed()
  folder = _check(folder)
  table = study_tables.main_table(study)
  drawn = pictures.of_study(study)
  with folders.writing("folder", folder):
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    _remove_former(folder, drawn)
    for picture in drawn:
      stem = folder / "pictures" / picture.name
      picture.draw([stem.with_name(f"{stem.name}.{k}") for k in _KINDS])
    for name, text in (
      ("table.md", formats.markdown(table, study.title)),
      ("table.tex", formats.latex(table)),
      ("table.csv", formats.csv(study_tables.records(study))),
      (_PAGE, _html(study, drawn, folder / "pictures")),
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


def _remove_former(folder: pathlib.Path, drawn: Sequence[Picture]) -> None:
  """Removes the pictures of the former report that the new one lacks."""
  former = _text(folder / _PAGE)
  files = set(re.findall(r'href="pictures/([\w-]+\.(?:png|pdf|svg))"', former))
  kept = {f"{picture.name}.{kind}" for picture in drawn for kind in _KINDS}
  for name in files - kept:
    (folder / "pictures" / name).unlink(missing_ok=True)


def short_html(study: JudgedStudy) -> str | None:
  """The findings and the table, inside of a notebook; None without Jinja2."""
  if importlib.util.find_spec("jinja2") is None:
    return None
  return formats.html(
    "short.html",
    study=study,
    sentences=verdicts.sentences(study),
    main=study_tables.main_table(study),
  )


def _html(
  study: JudgedStudy, drawn: Sequence[Picture], folder: pathlib.Path
) -> str:
  """The page, of a study whose pictures are in a folder."""
  tuned = [cell for cell in study.cells if cell.tried is not None]
  return formats.html(
    _PAGE,
    study=study,
    facts=_facts(study),
    sentences=verdicts.sentences(study),
    figures=[_figure(each, folder) for each in drawn],
    main=study_tables.main_table(study),
    tables=[(kind, f"table.{kind}") for kind in ("md", "tex", "csv")],
    behind=study_tables.differences(study),
    limits=limits_of(study),
    criteria=list(dict.fromkeys(cell.criterion for cell in tuned)),
    score_words=tuning_pictures.score_words,
    are_fresh=all(cell.is_fresh for cell in tuned),
    settings=study_tables.settings(study),
    costs=study_tables.costs(study),
    target=_target(study),
    min_seeds=verdicts.MIN_SEEDS_WITHOUT_WIDTH,
    nothing=words.NOTHING,
    commands=_commands(study),
    shared=study_tables.shared(study),
  )


def _facts(study: JudgedStudy) -> list[str]:
  """What was compared."""
  seeds = words.span(v.num_seeds for v in study.verdicts if v.num_seeds)
  return [
    words.counted(len(study.methods), "method"),
    words.counted(len(study.conditions), "condition"),
    "1 seed" if seeds == "1" else f"{seeds} seeds",
    f"compared by {words.on_examples(study.metric)}",
  ]


def _target(study: JudgedStudy) -> str:
  """The target in words: 'test accuracy of at least 75.0 %'; '' for none."""
  if study.target is None:
    return ""
  way = "at least" if study.is_larger_better else "at most"
  value = words.Numbers(study.metric).alone(study.target)
  return f"{words.metric_words(study.metric)} of {way} {value}"


def _figure(picture: Picture, folder: pathlib.Path) -> dict[str, Any]:
  """A picture for the page: inside of it, with links to its files beside it."""
  content = (folder / f"{picture.name}.png").read_bytes()
  width, _ = struct.unpack(">II", content[16:24])
  shown = round((_SCALE if width > _NARROW else _SCALE_OF_NARROW) * width)
  return {
    "name": picture.name,
    "title": picture.title,
    "caption": picture.caption,
    "width": f"{shown / 16:g}",
    "is_broad": shown > _BROAD,
    "png": base64.b64encode(content).decode(),
    "files": [(k, f"{folder.name}/{picture.name}.{k}") for k in _KINDS],
  }


def _commands(study: JudgedStudy) -> list[tuple[str, str]]:
  """The exact commands of each cell, with its name."""
  named = []
  for cell in study.cells:
    parts = [study.labels[cell.method], words.condition_label(cell.condition)]
    title = ", ".join(filter(None, parts))
    named += [(title, "\n\n".join(cell.commands))] if cell.commands else []
  return named
