"""An artefact as Markdown: caption, tables, pictures and verdicts."""

import pathlib
from collections.abc import Sequence

from experiments.artefacts import captions
from experiments.artefacts.artefact import Artefact, Picture, Table
from experiments.artefacts.claims import Claim
from experiments.artefacts.running import Outcome
from fedjax_opt.study.report import formats


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
  how = captions.reduction(artefact, size, outcome)
  said += captions.reduced(how)
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
    parts.append(shown(block, f"{pictures}/{name}"))
  if in_row:
    stand_ins = captions.stand_ins(artefact, size, outcome)
    parts.append(verdicts(in_row, stand_ins))
  command = (
    f"`python -m experiments.reproduce --artefact={artefact.name} "
    f"--size={size}`"
  )
  parts.append(" ".join(filter(None, [f"{command}.", captions.cost(outcome)])))
  return "\n\n".join(filter(None, parts)) + "\n"


def shown(block: Table | Picture, pictures: str) -> str:
  """A table, or a picture whose file begins with `pictures`."""
  if isinstance(block, Picture):
    return f"![{block.alt}]({pictures}_{block.name}.png)"
  table = formats.markdown_rows(block.columns, block.rows)
  return f"{block.title}:\n\n{table}" if block.title else table


def verdicts(found: Sequence[Claim], stand_ins: str) -> str:
  """The verdicts; the head says on what, if that is not the paper's."""
  rows = []
  for claim in found:
    whose = " (our own test)" if claim.is_ours else ""
    rows.append((claim.text + whose, f"**{claim.verdict}**", claim.reason))
  head = f"claim, here on {stand_ins}" if stand_ins else "claim"
  return formats.markdown_rows((head, "verdict", "by"), rows)


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
