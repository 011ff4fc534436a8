"""The page of a paper: text with parts that are made from its records.

A part is between a comment that says what it shows and `<!-- end -->`:

  <!-- counts -->                 how many artefacts are whole, and claims held,
                                  also of those that the page does not show
  <!-- domo/figure1, cpu          parts of an artefact, at a size
  picture: curves                 a picture, by its name
  table: Last test accuracy       a table, by the beginning of its title
  where: method = DOMO            of the table above, only rows with this
  columns: method; s = 5 %        of the table above, only these
  claim: DOMO is above            all claims whose text begins so
  -->

It begins with the verdicts on its claims, then says what the paper ran and what
ran here.
"""

import collections
import functools
import itertools
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from experiments.artefacts import captions
from experiments.artefacts.artefact import ORIGINS, Artefact
from experiments.artefacts.blocks import (
  HELD,
  IN_PART,
  NOT_HELD,
  UNDECIDED,
  VERDICTS,
  Block,
  Claim,
  Picture,
  Table,
  verdict_of_cases,
)
from experiments.artefacts.recipe_runner import ArtefactResult, RecipeRunner
from experiments.stored.records import Record
from fedjax_opt.results.names import capitalized
from fedjax_opt.study.plots import frame
from fedjax_opt.study.report import formats

# A verdict that begins an entry of a list, or is a cell of a table.
_VERDICT = re.compile(rf"(?<=[-|] )\**({'|'.join(VERDICTS)})\**(?=:| \|)")
_OF_CLAIMS = (HELD, IN_PART, NOT_HELD, UNDECIDED)
_STATES = ("whole", "reduced", "replaced", "missing")
# The most quantities of a claim that are written out: on the page of a paper,
# and on that of an artefact.
_ON_PAGE, _OF_ARTEFACT = 1, 2
_COUNTS = ["counts"]  # The lines of the part that has no artefact.
_PART = re.compile(r"(<!-- (?!end )(.*?)-->\n).*?(<!-- end -->)", re.DOTALL)


def title_of(artefact: Artefact) -> str:
  """The paper's name for it, such as 'Figure 1'."""
  name = artefact.own_name.replace("_", " ")
  return capitalized(re.sub(r"(table|figure|theorem)(?=\d)", r"\1 ", name))


class Page:
  """The page of one paper.

  Attributes:
    artefacts: the paper's artefacts, by name.
  """

  def __init__(
    self,
    artefacts: Sequence[Artefact],
    records: Sequence[Record],
    is_published: Callable[[Artefact, str], bool],
  ):
    """Makes a page.

    Args:
      artefacts: the artefacts of one paper.
      records: all records of the paper.
      is_published: function that says whether an artefact is published at a
        size.
    """
    self.artefacts = {artefact.name: artefact for artefact in artefacts}
    self._records = records
    self._is_published = is_published

  def filled(self, text: str) -> str:
    """The text, with its parts made anew.

    Raises:
      ValueError: naming the invalid part.
    """
    marks = [part[2] for part in _PART.finditer(text)]
    lines = {mark: mark.strip().splitlines() for mark in marks}
    parts = {m: self._part(*of) for m, of in lines.items() if of != _COUNTS}
    num_shown = len(_VERDICT.findall("\n".join(parts.values())))
    counts = self._counts_beside(num_shown)
    make = lambda part: f"{part[1]}{parts.get(part[2], counts)}\n{part[3]}"
    return _PART.sub(make, text)

  def _part(self, first: str, *lines: str) -> str:
    """A part of an artefact, by the lines of its comment."""
    name, _, size = first.partition(", ")
    if name not in self.artefacts or size not in self.artefacts[name].sizes:
      raise ValueError(f"part={first!r}: no such artefact or size")
    result = self.result(self.artefacts[name], size)
    chosen: list[Block] = []
    for line in lines:
      kind, _, value = line.partition(": ")
      if kind in ("columns", "where"):
        chosen.append(_narrowed(chosen.pop(), kind, value))
      else:
        chosen += blocks_named(result, kind, value)
    shown = _tables_and_pictures(result, chosen, "figures")
    parts = [_verdicts_listed(result, chosen), _about(result), *shown]
    return "\n\n".join(filter(None, parts))

  @functools.cache  # noqa: B019 - A page lives as long as what it shows.
  def result(self, artefact: Artefact, size: str) -> ArtefactResult:
    """The recorded result of an artefact."""
    return RecipeRunner(None).run(artefact, size, self._records)

  def sizes(self, artefact: Artefact) -> list[str]:
    """The sizes that are published, the paper's first."""
    return [s for s in ("paper", "cpu") if self._is_published(artefact, s)]

  # The table of artefacts.

  def table(self) -> str:
    """Every artefact: whole; reduced, and how; or missing, and why."""
    rows = [self._row(artefact) for artefact in self.artefacts.values()]
    table = formats.markdown_rows(
      ("artefact", "shows", "how much of it", "verdicts, by case"), rows
    )
    return f"# All artefacts of the paper\n\n{self._counts()}\n\n{table}\n"

  def _counts_beside(self, num_shown: int) -> str:
    """The counts, also of the cases that a page shows."""
    claims = itertools.chain(*self._distinct_claims().values())
    words = [claim.verdict for claim in claims]
    verdicts = counted(words, VERDICTS)
    return (
      f"{self._counts()}\n- Cases: {len(words)}, of which {num_shown} are "
      f"above with numbers; [all](artefacts/README.md): {verdicts} "
      "([the words](../../docs/papers/index.md#verdicts))."
    )

  def _distinct_claims(self) -> dict[tuple[str, str], list[Claim]]:
    """Artefact and claim -> its cases.

    A case that an earlier artefact has, of the same runs, is left out.
    """
    claims = collections.defaultdict(list)
    decided: set[str] = set()
    for artefact in self.artefacts.values():
      for size in self.sizes(artefact)[:1]:
        own = claims_of(self.result(artefact, size).blocks)
        for claim in own:
          if str(claim.quantities) not in decided:
            claims[artefact.name, claim.of or claim.text].append(claim)
        decided.update(str(claim.quantities) for claim in own)
    return claims

  def _counts(self) -> str:
    parts = []
    for origin, words in ORIGINS.items():
      states = [
        self.state(artefact)
        for artefact in self.artefacts.values()
        if artefact.origin == origin
      ]
      if states:
        num_of_states = counted(states, _STATES)
        parts.append(f"{capitalized(words)}: {len(states)} ({num_of_states}).")
    claims = self._distinct_claims().values()
    for words, is_ours in (
      ("Claims of the paper", False),
      ("Our claims", True),
    ):
      texts = [
        verdict_of_cases([case.verdict for case in cases])
        for cases in claims
        if cases[0].is_ours == is_ours and not cases[0].uncounted
      ]
      if texts:
        parts.append(f"{words}: {counted(texts, _OF_CLAIMS)}.")
    return "\n".join(f"- {part}" for part in parts)

  def state(self, artefact: Artefact) -> str:
    """'whole', 'reduced', 'replaced' (by other data) or 'missing'."""
    sizes = self.sizes(artefact)
    if not sizes:
      return "missing"
    result = self.result(artefact, sizes[0])
    if captions.is_elsewhere(result):
      return "replaced"
    return "reduced" if any(captions.reduction(result)) else "whole"

  def _row(self, artefact: Artefact) -> tuple[str, str, str, str]:
    title, sizes = title_of(artefact), self.sizes(artefact)
    if not sizes:
      needs = artefact.needs
      why = f"needs {needs}" if needs else "`--list` says what it costs"
      return title, artefact.title, f"missing: {why}", ""
    result = self.result(artefact, sizes[0])
    state = self.state(artefact)
    short = captions.in_short(captions.reduction(result))
    text = f"{state}: {', '.join(short)}" if short else state
    texts = [claim.verdict for claim in claims_of(result.blocks)]
    counts = counted(texts, VERDICTS)
    return f"[{title}]({file_name(result)})", artefact.title, text, counts


def claims_of(blocks: Sequence[Block]) -> list[Claim]:
  return [block for block in blocks if isinstance(block, Claim)]


def counted(texts: Sequence[str], words: Sequence[str]) -> str:
  """How often each of these words occurs."""
  return ", ".join(f"{texts.count(w)} {w}" for w in words if w in texts)


def _about(result: ArtefactResult) -> str:
  """What the paper ran, what ran here, and where the rest is."""
  artefact = result.artefact
  ran = captions.run_facts(result)
  reduction = captions.reduction(result)
  short = captions.in_short(reduction, has_added=not ran)
  is_ours = artefact.origin == "ours"
  setting = capitalized(artefact.setting) if is_ours else artefact.setting
  paper = "" if is_ours else "Paper: "
  sentences = [f"{title_of(artefact)}. {paper}{setting}."]
  if facts := dict.fromkeys([*ran, *short]):
    sentences.append(f"Here: {'; '.join(facts)}.")
  sentences.append(f"[All of it](artefacts/{file_name(result)}).")
  return " ".join(sentences)


def file_name(result: ArtefactResult) -> str:
  return f"{result.artefact.own_name}-{result.size}.md"


_NAMES = {Picture: "name", Table: "title", Claim: "text"}


def blocks_named(result: ArtefactResult, kind: str, begin: str) -> list[Block]:
  """The pictures, tables or claims whose names begin with a text.

  Raises:
    ValueError: if there are none, or several pictures or tables.
  """
  blocks = [
    block
    for block in result.blocks
    if type(block).__name__.lower() == kind
    and getattr(block, _NAMES[type(block)]).startswith(begin)
  ]
  if not blocks or (kind != "claim" and len(blocks) > 1):
    raise ValueError(
      f"part={result.artefact.name}: {kind}: {begin!r} is of {len(blocks)} "
      "blocks, and must be of one picture or table, or of some claims"
    )
  return blocks


def _narrowed(table: Table, kind: str, value: str) -> Table:
  """A table with only some of its columns or rows."""
  if kind == "columns":
    places = [_column(table, name) for name in value.split("; ")]
    rows = [[row[i] for i in places] for row in table.rows]
    return table._replace(columns=[table.columns[i] for i in places], rows=rows)
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


def markdown(result: ArtefactResult, pictures: str) -> str:
  """The section of an artefact.

  Args:
    result: what ran.
    pictures: folder of its pictures, as links have it.
  """
  artefact = result.artefact
  parts = [f"{artefact.title}. Paper: {artefact.setting}."]
  parts.append(_verdicts_table(result))
  parts += _tables_and_pictures(result, result.blocks, pictures)
  parts.append("\n".join(f"- {fact}" for fact in _facts(result)))
  command = (
    f"`python -m experiments.reproduce --artefact={artefact.name} "
    f"--size={result.size}`"
  )
  parts.append(" ".join(filter(None, [f"{command}.", captions.cost(result)])))
  return "\n\n".join(filter(None, parts)) + "\n"


def _facts(result: ArtefactResult) -> list[str]:
  """What ran: its flags, what was chosen, and how it differs."""
  records = list(result.cell_records.values())
  facts = [captions.settings(records), captions.varied(records)]
  facts.append(captions.chosen(result))
  if changes := captions.in_full(captions.reduction(result)):
    what = "Reduced (in parentheses what `--size=paper` has)"
    facts.append(f"{what}: {'; '.join(changes)}.")
  missing = len(result.recipes) - len(records)
  if missing:
    facts.append(f"{missing} of {len(result.recipes)} cells have not run.")
  return [fact for fact in facts if fact]


def _tables_and_pictures(
  result: ArtefactResult, blocks: Sequence[Block], pictures: str
) -> list[str]:
  """Tables and pictures in their order; links have the folder of pictures."""
  parts = []
  for block in blocks:
    if isinstance(block, Picture):
      file = f"{pictures}/{result.artefact.own_name}_{block.name}.png"
      parts.append(f"![{block.alt}]({file})")
    elif isinstance(block, Table):
      table = formats.markdown_rows(block.columns, block.rows)
      parts.append(f"{block.title}:\n\n{table}" if block.title else table)
  return parts


def _text_of(claim: Claim) -> str:
  ours = " (our own test)" if claim.is_ours else ""
  why = f" (not counted: {claim.uncounted})" if claim.uncounted else ""
  return f"{claim.text}{ours}{why}"


def _verdicts_listed(result: ArtefactResult, blocks: Sequence[Block]) -> str:
  """The verdicts as a list; it names the task, if it is not the paper's."""
  stand_ins = captions.stand_ins(result)
  entries = [
    f"- **{claim.verdict}**: {_text_of(claim)}.<br>"
    f"<sub>{claim.because(_ON_PAGE)}</sub>"
    for claim in claims_of(blocks)
  ]
  lead = [f"On {stand_ins}:\n"] if entries and stand_ins else []
  return "\n".join([*lead, *entries])


def _verdicts_table(result: ArtefactResult) -> str:
  """The verdicts as a table; its head names the task, as a list does."""
  stand_ins = captions.stand_ins(result)
  rows = [
    (_text_of(claim), f"**{claim.verdict}**", claim.because(_OF_ARTEFACT))
    for claim in claims_of(result.blocks)
  ]
  head = f"claim, here on {stand_ins}" if stand_ins else "claim"
  return formats.markdown_rows((head, "verdict", "by"), rows) if rows else ""


def draw(
  result: ArtefactResult,
  folder: pathlib.Path,
  save: Callable[[Any, pathlib.Path], Any] = frame.finish,
) -> None:
  """Draws the pictures of an artefact.

  Args:
    result: the artefact's runs.
    folder: of the pictures.
    save: writes a figure into a file.
  """
  folder.mkdir(parents=True, exist_ok=True)
  for block in result.blocks:
    if isinstance(block, Picture):
      name = f"{result.artefact.own_name}_{block.name}.png"
      save(block.draw(), folder / name)
