"""What is published of an artefact: records, pictures, a part of a README."""

import pathlib
import re

from experiments.artefacts import claims, record, report
from experiments.artefacts.artefact import Artefact
from experiments.artefacts.record import Record
from experiments.artefacts.running import Outcome
from fedjax_opt.results.names import sentence

_EXPERIMENTS = pathlib.Path(__file__).parents[1]
_RULE = "verdicts"  # The section with the rule of all verdicts.


def check(size: str) -> None:
  """Checks that a size may be published, and that this is a checkout.

  Raises:
    ValueError: of smoke, which says nothing of a paper and would replace what
      does; or if this is an installed package.
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
  return [each for file in files for each in record.read(file)]


def is_published(artefact: Artefact, size: str) -> bool:
  """Whether the README of its paper has the results of this size."""
  return _records_file(artefact, size).exists()


def _records_file(artefact: Artefact, size: str) -> pathlib.Path:
  paper, name = artefact.name.split("/")
  return _EXPERIMENTS / paper / "records" / f"{name}-{size}.jsonl"


def publish(artefact: Artefact, size: str, outcome: Outcome) -> None:
  """Writes the records, pictures and section of an artefact."""
  paper, name = artefact.name.split("/")
  folder = _EXPERIMENTS / paper
  file = _records_file(artefact, size)
  file.parent.mkdir(exist_ok=True)
  records = [*outcome.tuning.values(), *outcome.found.values()]
  unique = {record.to_json(each): each for each in records}
  record.write(file, unique.values())
  # What is said is of the numbers as recorded, which have fewer digits.
  read = lambda one: {k: record.of_json(record.to_json(r)) for k, r in one}
  outcome = outcome._replace(
    found=read(outcome.found.items()), tuning=read(outcome.tuning.items())
  )
  report.draw(artefact, outcome, folder / "figures")
  section = report.markdown(artefact, size, outcome, "figures")
  title = re.sub(r"(table|figure|theorem)(?=\d)", r"\1 ", name)
  title = sentence(title.replace("_", " "))

  def change(text: str) -> str:
    text = report.replace_section(text, _RULE, claims.RULE, "Verdicts")
    return report.replace_section(text, name, section, title)

  report.update(folder / "README.md", change)
