"""The table of a paper's main claims in docs/papers/index.md.

It is between `<!-- end -->` and a comment that begins `<!-- claims of PAPER`.
The comment has a line for each claim, with bars between: the artefact and its
size, how the claim's text begins, the claim in the words of the table, and the
paper's number.
"""

import re

from experiments.artefacts.blocks import (
  HELD,
  NOT_HELD,
  UNDECIDED,
  VERDICTS,
  Claim,
  verdict_of_cases,
)
from experiments.artefacts.paper_pages import (
  Page,
  blocks_named,
  claims_of,
  counted,
  file_name,
)
from fedjax_opt.study.report import formats

_PART = re.compile(
  r"(<!-- claims of (\w+)\n(.*?)-->\n).*?(<!-- end -->)", re.DOTALL
)
_HEADS = ("claim", "in the paper", "here", "verdict")


def filled(text: str, page: Page, paper: str) -> str:
  """The index, with the table of this paper made anew.

  Args:
    text: of the index.
    page: the paper's.
    paper: its folder.
  """

  def make(part: re.Match) -> str:
    if part[2] != paper:
      return part[0]
    lines = part[3].strip().splitlines()
    rows = [_row(page, paper, line) for line in lines]
    return f"{part[1]}{formats.markdown_rows(_HEADS, rows)}\n{part[4]}"

  return _PART.sub(make, text)


def _row(page: Page, paper: str, line: str) -> tuple[str, str, str, str]:
  """The row of a claim.

  Raises:
    ValueError: with the line, if no claim begins so, or its cases have not run.
  """
  place, begin, text, number = line.split(" | ")
  name, size = place.split(", ")
  result = page.result(page.artefacts[f"{paper}/{name}"], size)
  cases = claims_of(blocks_named(result, "claim", begin))
  if not (cases and all(case.quantities for case in cases)):
    raise ValueError(f"claims of {paper}: {line!r}: no claim that ran is so")
  verdicts = [case.verdict for case in cases]
  ours = _worst(cases)
  if len(cases) > 1:
    ours += f"; cases: {counted(verdicts, VERDICTS)}"
  link = f"[{text}](../../experiments/{paper}/artefacts/{file_name(result)})"
  return link, number, ours, f"**{verdict_of_cases(verdicts)}**"


def _worst(cases: list[Claim]) -> str:
  """The decisive quantity of the worst case, and which case it is."""
  verdicts = [case.verdict for case in cases]
  worst = next(v for v in (NOT_HELD, UNDECIDED, HELD) if v in verdicts)
  case = min(
    (case for case in cases if case.verdict == worst),
    key=lambda case: case.deciding[0].margin,
  )
  quantity = case.deciding[0]
  measured = quantity.text(len(case.quantities), is_brief=True)
  ours = f"{quantity.name}: {measured}; {len(quantity.values)} seeds"
  if len(cases) == 1:
    return ours
  where = case.text.removeprefix(case.of.split("{")[0]).strip()
  return f"{where[1:-1] if where.startswith('(') else where}: {ours}"
