"""An artefact as Markdown: caption, tables, pictures and verdicts."""

import pathlib
import re
from collections.abc import Callable, Sequence

from experiments.artefacts import captions
from experiments.artefacts.artefact import Artefact, Block, Picture
from experiments.artefacts.claims import Claim
from experiments.artefacts.running import Outcome
from fedjax_opt.files import json_files
from fedjax_opt.study.report import formats

_MANY = 12  # More verdicts than these are folded away.


def markdown(
  artefact: Artefact, size: str, outcome: Outcome, pictures: str
) -> str:
  """The section of an artefact.

  Args:
    artefact: which.
    size: one of its sizes.
    outcome: what ran.
    pictures: folder of its pictures, as links have it.
  """
  name = artefact.name.split("/")[1]
  parts = [f"{artefact.title}. Paper: {artefact.setting}."]
  found = list(outcome.found.values())
  said = [captions.settings(found), captions.varied(found)]
  said.append(captions.chosen(outcome))
  said += captions.reduced(artefact, size, outcome)
  missing = len(outcome.cells) - len(found)
  if missing:
    said.append(f"{missing} of {len(outcome.cells)} cells have not run.")
  parts.append(" ".join(filter(None, said)))
  blocks = artefact.blocks(outcome.found) if found else []
  in_row: list[Claim] = []
  for block in blocks:
    if isinstance(block, Claim):
      in_row.append(block)
      continue
    parts.append(_shown(block, f"{pictures}/{name}"))
  if in_row:
    stand_ins = captions.stand_ins(artefact, size, outcome)
    parts.append(_claims(in_row, stand_ins))
  command = (
    f"`python -m experiments.reproduce --artefact={artefact.name} "
    f"--size={size}`"
  )
  parts.append(" ".join(filter(None, [f"{command}.", captions.cost(outcome)])))
  return "\n\n".join(filter(None, parts)) + "\n"


def _shown(block: Block, pictures: str) -> str:
  if isinstance(block, Picture):
    return f"![{block.alt}]({pictures}_{block.name}.png)"
  table = formats.markdown_rows(block.columns, block.rows)
  return f"{block.title}:\n\n{table}" if block.title else table


def _claims(found: Sequence[Claim], stand_ins: str) -> str:
  """The verdicts; the head says on what, if that is not the paper's."""
  rows = []
  for claim in found:
    whose = " (our own test)" if claim.is_ours else ""
    rows.append((claim.text + whose, f"**{claim.verdict}**", claim.reason))
  head = f"claim, here on {stand_ins}" if stand_ins else "claim"
  table = formats.markdown_rows((head, "verdict", "by"), rows)
  if len(found) <= _MANY:
    return table
  summary = f"<summary>All {len(found)} verdicts, and by what</summary>"
  return f"<details>\n{summary}\n\n{table}\n\n</details>"


def draw(
  artefact: Artefact, outcome: Outcome, folder: pathlib.Path
) -> list[pathlib.Path]:
  """Draws the pictures of an artefact; returns their files."""
  if not outcome.found:
    return []
  name, files = artefact.name.split("/")[1], []
  folder.mkdir(parents=True, exist_ok=True)
  for block in artefact.blocks(outcome.found):
    if isinstance(block, Picture):
      files.append(folder / f"{name}_{block.name}.png")
      block.draw(files[-1])
  return files


# A file whose parts are written by programs.


def replace_section(
  text: str, name: str, section: str, title: str | None = None
) -> str:
  """A text with a section replaced, or added at its end.

  Args:
    text: of the file.
    name: of the section, which is between two comments with it.
    section: what it becomes.
    title: its heading, where it is added; None for none.
  """
  begin, end = _marks(name)
  whole = f"{begin}\n{section.strip()}\n{end}"
  if begin not in text:
    heading = f"## {title}\n\n" if title else ""
    return f"{text.rstrip()}\n\n{heading}{whole}\n"
  pattern = re.escape(begin) + ".*?" + re.escape(end)
  return re.sub(pattern, lambda _: whole, text, flags=re.DOTALL)


def _marks(name: str) -> tuple[str, str]:
  return (
    f"<!-- {name}: written by experiments.reproduce -->",
    f"<!-- end of {name} -->",
  )


def update(path: pathlib.Path, change: Callable[[str], str]) -> None:
  """Changes a text file."""
  text = path.read_text(encoding="utf-8") if path.exists() else ""
  json_files.write_whole(path, change(text).encode())
