"""What is published of an artefact: its records, its pictures and its text."""

import pathlib
from collections.abc import Sequence

from experiments.artefacts import main_claims, paper_pages
from experiments.artefacts.artefact import Artefact
from experiments.artefacts.recipe_runner import ArtefactResult
from experiments.stored import records
from experiments.stored.records import Record
from fedjax_opt.files import json_files
from fedjax_opt.study.plots import panels

_EXPERIMENTS = pathlib.Path(__file__).parents[1]
INDEX = _EXPERIMENTS.parent / "docs" / "papers" / "index.md"
_PAPERS = {
  "delta_sgd": "Δ-SGD",
  "fco": "Composite optimization",
  "bvr": "BVR-L-SGD",
  "domo": "DOMO",
}


def check(size: str) -> None:
  """Checks that a size may be published, and that this is a checkout.

  Raises:
    ValueError: for the size smoke, which says nothing about a paper and would
      replace results that do; or if this is an installed package.
  """
  if size == "smoke":
    raise ValueError(
      "publish=True: size='smoke' says nothing of a paper; give --size=cpu or "
      "paper"
    )
  if not (_EXPERIMENTS.parent / "setup.py").exists():
    raise ValueError("publish=True: works in a checkout of the repository only")


def records_of(paper: str) -> list[Record]:
  """All records of a paper's artefacts."""
  files = sorted((_EXPERIMENTS / paper / "records").glob("*.jsonl"))
  return [record for file in files for record in records.read(file)]


def is_published(artefact: Artefact, size: str) -> bool:
  """Whether the artefact's results at this size are published."""
  return _records_file(artefact, size).exists()


def _records_file(artefact: Artefact, size: str) -> pathlib.Path:
  name = f"{artefact.own_name}-{size}.jsonl"
  return _EXPERIMENTS / artefact.paper / "records" / name


def file_of(artefact: Artefact, size: str) -> pathlib.Path:
  """The file with the section of an artefact at a size."""
  name = f"{artefact.own_name}-{size}.md"
  return _EXPERIMENTS / artefact.paper / "artefacts" / name


def text_of(result: ArtefactResult) -> str:
  """The text of that file."""
  artefact = result.artefact
  name = _PAPERS.get(artefact.paper, artefact.paper)
  return (
    f"# {name}, {paper_pages.title_of(artefact)}\n\n"
    f"Back to [{name}](../README.md). See also [the rule of the "
    "verdicts](../../../docs/papers/index.md#verdicts).\n\n"
    f"{paper_pages.markdown(result, '../figures')}"
  )


def publish(result: ArtefactResult) -> None:
  """Writes the records, the pictures and the text of an artefact."""
  artefact, size = result.artefact, result.size
  file = _records_file(artefact, size)
  file.parent.mkdir(exist_ok=True)
  unique = {records.to_line(record): record for record in result.records}
  records.write(file, unique.values())
  page_file = file_of(artefact, size)
  # The site shows wide pictures otherwise on phones.
  figures = page_file.parents[1] / "figures"
  paper_pages.draw(result, figures, panels.save)
  page_file.parent.mkdir(exist_ok=True)
  _write(page_file, text_of(result))


def publish_page(paper: str, artefacts: Sequence[Artefact]) -> None:
  """Fills the pages of a paper and of all, and the table of its artefacts.

  Args:
    paper: its folder.
    artefacts: all artefacts of the paper.
  """
  file = _EXPERIMENTS / paper / "README.md"
  page = paper_pages.Page(artefacts, records_of(paper), is_published)
  _write(file, page.filled(file.read_text(encoding="utf-8")))
  _write(file.parent / "artefacts" / "README.md", page.table())
  index = INDEX.read_text(encoding="utf-8")
  _write(INDEX, main_claims.filled(index, page, paper))


def _write(path: pathlib.Path, text: str) -> None:
  json_files.write_whole(path, text.encode())
