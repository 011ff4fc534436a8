"""The folder of a study: its page, its tables and its pictures.

report.html  one page with everything, which needs no other file
table.md     the table for people, as Markdown and as LaTeX (booktabs)
table.tex
table.csv    every cell with all its numbers
pairs.csv    every two methods under each condition: difference, p, power
seeds.csv    the metric of every cell and seed, from which all that follows
pictures/    the pictures, as png, pdf and svg
"""

import base64
import io
import os
import pathlib
import re
import struct
import tempfile
from collections.abc import Sequence
from typing import Any

from fedjax_opt.checks.values import check_path
from fedjax_opt.files import folders
from fedjax_opt.files.json_files import write_text
from fedjax_opt.study import plots
from fedjax_opt.study.plots import frame, panels
from fedjax_opt.study.report import (
  formats,
  pictures,
  sentences,
  study_tables,
  templates,
)
from fedjax_opt.study.report.pictures import Picture
from fedjax_opt.study.study_cells import StudyCells

_PAGE = "report.html"
_MARK_FILES = (_PAGE, "study.json")  # Either marks the folder of a study.
_GENERATOR = '<meta name="generator" content="fedjax_opt">'
_FORMATS = ("png", "pdf", "svg")


def write(study: StudyCells, folder: str | os.PathLike) -> pathlib.Path:
  """Writes the report of a study; see `Study.write`."""
  plots.check_installed()
  folder = _checked_folder(folder)
  table = study_tables.main_table(study)
  drawn = pictures.of_study(study)
  with folders.writing("folder", folder):
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    _remove_former(folder, drawn)
    values = {
      "figures": [_figure(picture, folder / "pictures") for picture in drawn],
      "kinds": _FORMATS,
      "limits": sentences.limits_of(study),
      **values_of(study),
    }
    # First the page: it tells that the folder has a report, also after a kill.
    for name, content in (
      (_PAGE, templates.render(_PAGE, **values)),
      ("table.md", formats.markdown(table, study.title)),
      ("table.tex", formats.latex(study_tables.main_table(study, True))),
      ("table.csv", formats.csv(formats.cell_records(study))),
      ("pairs.csv", formats.csv(formats.pair_records(study))),
      ("seeds.csv", formats.csv(formats.seed_records(study))),
    ):
      write_text(folder / name, content)
  return folder / _PAGE


def _checked_folder(folder: str | os.PathLike) -> pathlib.Path:
  """The folder, if a report may be written to it."""
  check_path("folder", folder)
  path, names = folders.contents("folder", folder)
  if not set(_MARK_FILES) & set(names):
    # A report that was stopped before its end has left no page.
    folders.check_empty("folder", path, [n for n in names if n != "pictures"])
  if _PAGE in names and _GENERATOR not in _text(path / _PAGE):
    raise ValueError(
      f"folder={str(path)!r}: its {_PAGE} is not that of a study; give another "
      "folder"
    )
  return path


def _text(path: pathlib.Path) -> str:
  return path.read_text(errors="replace") if path.is_file() else ""


def _remove_former(folder: pathlib.Path, drawn: Sequence[Picture]) -> None:
  """Removes pictures of the earlier report that the new one does not have."""
  former = _text(folder / _PAGE)
  files = set(re.findall(r'href="pictures/([\w-]+\.(?:png|pdf|svg))"', former))
  new_files = {
    f"{picture.name}.{kind}" for picture in drawn for kind in _FORMATS
  }
  for name in files - new_files:
    (folder / "pictures" / name).unlink(missing_ok=True)


def values_of(study: StudyCells) -> dict[str, Any]:
  """The values that both templates show, of the page and of a notebook."""
  warning, begin, parts = sentences.answer_parts(study)
  return {
    "study": study,
    "answer": sentences.joined(warning, begin, parts),
    "answer_begin": f"{warning} {begin}".strip() if begin else "",
    "answer_parts": parts,
    "tables": study_tables,
  }


def _figure(picture: Picture, folder: pathlib.Path) -> dict[str, Any]:
  """Draws a picture into its files; returns what the page embeds of it.

  That is its width in pixels; the picture; and the same with its panels below
  one another, for phones, or "" if it has no such form.
  """
  figure = picture.draw(None)
  files = [folder / f"{picture.name}.{kind}" for kind in _FORMATS]
  frame.finish(figure, files)
  content = files[_FORMATS.index("png")].read_bytes()
  width, _ = struct.unpack(">II", content[16:24])
  phone = ""
  if panels.stack(figure):
    with tempfile.TemporaryDirectory() as temporary:
      file = pathlib.Path(temporary) / "phone.png"
      frame.finish(figure, file)
      phone = _embedded(file.read_bytes())
  return {
    "picture": picture,
    "width": width,
    "png": _embedded(content),
    "phone": phone,
  }


def _embedded(png: bytes) -> str:
  """A picture in base64, in 256 colours: its size is a third."""
  from PIL import Image

  image, small = Image.open(io.BytesIO(png)).convert("RGB"), io.BytesIO()
  colours = image.quantize(256, dither=Image.Dither.NONE)
  colours.save(small, "png", optimize=True)
  return base64.b64encode(small.getvalue()).decode()
