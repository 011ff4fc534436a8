"""The page of a paper: text with parts that are made from its records.

A part is between a comment that says what it shows and `<!-- end -->`:

  <!-- verdicts -->               the rule of all verdicts
  <!-- counts -->                 how many artefacts are whole
  <!-- domo/figure1, cpu          parts of an artefact, at a size
  picture: curves                 a picture, by its name
  table: Last test accuracy       a table, by the beginning of its title
  where: method = DOMO            of the table above, only rows with this
  columns: method; s = 5 %        of the table above, only these
  claim: DOMO is above            a claim, by the beginning of its text
  -->

It begins with what the paper ran and what ran here; claims come last.
"""

import functools
import pathlib
import re
from collections.abc import Callable, Sequence

from experiments.artefacts import captions, claims
from experiments.artefacts.artefact import (
  ORIGINS,
  Artefact,
  Block,
  Picture,
  Table,
)
from experiments.artefacts.claims import HELD, NOT_HELD, UNDECIDED, Claim
from experiments.artefacts.record import Record
from experiments.artefacts.running import Outcome, Runner
from fedjax_opt.results.names import sentence
from fedjax_opt.study.report import formats

_PART = re.compile(r"(<!-- (?!end )(.*?)-->\n).*?(<!-- end -->)", re.DOTALL)


def title_of(artefact: Artefact) -> str:
  """What the paper calls it, such as 'Figure 1'."""
  name = artefact.name.split("/")[1].replace("_", " ")
  return sentence(re.sub(r"(table|figure|theorem)(?=\d)", r"\1 ", name))


class Page:
  """The page of one paper.

  Attributes:
    artefacts: of the paper, by name.
  """

  def __init__(
    self,
    artefacts: Sequence[Artefact],
    records: Sequence[Record],
    is_published: Callable[[Artefact, str], bool],
  ):
    """Makes a page.

    Args:
      artefacts: of one paper.
      records: all that it has.
      is_published: whether an artefact is, at a size.
    """
    self.artefacts = {artefact.name: artefact for artefact in artefacts}
    self._records = records
    self._is_published = is_published

  def filled(self, text: str) -> str:
    """A text whose parts are made anew.

    Raises:
      ValueError: naming the part that cannot be.
    """
    make = lambda part: f"{part[1]}{self._part(part[2])}\n{part[3]}"
    return _PART.sub(make, text)

  def _part(self, says: str) -> str:
    first, *lines = says.strip().splitlines()
    if first == "verdicts":
      return claims.RULE
    if first == "counts":
      return f"{self._counts()} [All of them](artefacts/README.md)."
    name, _, size = first.partition(", ")
    if name not in self.artefacts or size not in self.artefacts[name].sizes:
      raise ValueError(f"part={first!r}: no such artefact or size")
    return self._excerpt(self.artefacts[name], size, lines)

  @functools.cache  # noqa: B019 - A page lives as long as what it shows.
  def outcome(self, artefact: Artefact, size: str) -> Outcome:
    """What is recorded of an artefact."""
    nothing = Runner(pathlib.Path("no runs"), only_found=True)
    return nothing.run(artefact, size, self._records)

  def sizes(self, artefact: Artefact) -> list[str]:
    """The sizes that are published, the paper's first."""
    return [s for s in ("paper", "cpu") if self._is_published(artefact, s)]

  # Parts of an artefact.

  def _excerpt(
    self, artefact: Artefact, size: str, lines: Sequence[str]
  ) -> str:
    outcome = self.outcome(artefact, size)
    blocks = artefact.blocks(outcome.found)
    chosen: list[Block] = []
    for line in lines:
      what, _, value = line.partition(": ")
      if what in ("columns", "where"):
        chosen.append(_narrowed(chosen.pop(), what, value))
      else:
        chosen.append(_found(artefact, blocks, what, value))
    name = artefact.name.split("/")[1]
    parts = [self._about(artefact, size, f"artefacts/{_file(artefact, size)}")]
    parts += [
      shown(block, f"figures/{name}")
      for block in chosen
      if not isinstance(block, Claim)
    ]
    decided = [block for block in chosen if isinstance(block, Claim)]
    if decided:
      stand_ins = captions.stand_ins(artefact, size, outcome)
      parts.append(verdicts(decided, stand_ins))
    return "\n\n".join(parts)

  def _about(self, artefact: Artefact, size: str, file: str) -> str:
    """What the paper ran, what ran here, and where the rest is."""
    ran = captions.ran(self.outcome(artefact, size))
    short = self._reduced(artefact, size)
    is_ours = artefact.origin == "ours"
    paper = "" if is_ours else "Paper: "
    setting = sentence(artefact.setting) if is_ours else artefact.setting
    said = [f"{title_of(artefact)}. {paper}{setting}."]
    if here := dict.fromkeys([*ran, *short]):
      said.append(f"Here{', reduced' if short else ''}: {', '.join(here)}.")
    said.append(f"[All of it]({file}).")
    return " ".join(said)

  def _reduced(self, artefact: Artefact, size: str) -> list[str]:
    outcome = self.outcome(artefact, size)
    return captions.reduced_in_short(
      captions.reduction(artefact, size, outcome)
    )

  # The table of artefacts.

  def table(self) -> str:
    """Every artefact: whole, reduced and how, or missing and why."""
    rows = [self._row(artefact) for artefact in self.artefacts.values()]
    table = formats.markdown_rows(
      ("artefact", "shows", "how much of it", "verdicts"), rows
    )
    return f"# All artefacts of the paper\n\n{self._counts()}\n\n{table}\n"

  def _counts(self) -> str:
    parts = []
    for origin, words in ORIGINS.items():
      states = [
        self.state(each)
        for each in self.artefacts.values()
        if each.origin == origin
      ]
      if states:
        counted = ", ".join(
          f"{states.count(state)} {state}"
          for state in ("whole", "reduced", "missing")
          if state in states
        )
        parts.append(f"{sentence(words)}: {len(states)} ({counted}).")
    return " ".join(parts)

  def state(self, artefact: Artefact) -> str:
    """'whole', 'reduced' or 'missing'."""
    sizes = self.sizes(artefact)
    if not sizes:
      return "missing"
    return "reduced" if self._reduced(artefact, sizes[0]) else "whole"

  def _row(self, artefact: Artefact) -> tuple[str, str, str, str]:
    title, sizes = title_of(artefact), self.sizes(artefact)
    if not sizes:
      needs = artefact.needs
      why = f"needs {needs}" if needs else "`--list` says what it costs"
      return title, artefact.title, f"missing: {why}", ""
    short = self._reduced(artefact, sizes[0])
    how = f"reduced: {', '.join(short)}" if short else "whole"
    found = artefact.blocks(self.outcome(artefact, sizes[0]).found)
    said = [each.verdict for each in found if isinstance(each, Claim)]
    counted = ", ".join(
      f"{said.count(each)} {each}"
      for each in (HELD, NOT_HELD, UNDECIDED)
      if each in said
    )
    link = f"[{title}]({_file(artefact, sizes[0])})"
    return link, artefact.title, how, counted


def _file(artefact: Artefact, size: str) -> str:
  return f"{artefact.name.split('/')[1]}-{size}.md"


def _found(
  artefact: Artefact, blocks: Sequence[Block], what: str, begin: str
) -> Block:
  """The one block that is called so.

  Raises:
    ValueError: if none is, or several are.
  """
  names = {
    "picture": lambda each: isinstance(each, Picture) and each.name == begin,
    "table": lambda each: (
      isinstance(each, Table) and each.title.startswith(begin)
    ),
    "claim": lambda each: (
      isinstance(each, Claim) and each.text.startswith(begin)
    ),
  }
  fitting = [each for each in blocks if what in names and names[what](each)]
  if len(fitting) != 1:
    raise ValueError(
      f"part={artefact.name}: {what}: {begin!r} is of {len(fitting)} blocks, "
      "and must be of one picture, table or claim"
    )
  return fitting[0]


def _narrowed(table: Table, what: str, value: str) -> Table:
  """A table with some of its columns, or of its rows."""
  if what == "columns":
    kept = [_column(table, name) for name in value.split("; ")]
    rows = [[row[i] for i in kept] for row in table.rows]
    return table._replace(columns=[table.columns[i] for i in kept], rows=rows)
  column, _, wanted = value.partition(" = ")
  i = _column(table, column)
  rows = [row for row in table.rows if row[i] in wanted.split("; ")]
  return table._replace(rows=rows)


def _column(table: Table, name: str) -> int:
  if name not in table.columns:
    columns = ", ".join(table.columns)
    raise ValueError(f"part: no column {name!r}; must be {columns}")
  return [*table.columns].index(name)


# An artefact as Markdown.


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
