"""What stays on one line: numbers with units, names, code with brackets."""

import itertools
import re

from docutils import nodes

# Spaces of a number: before its unit, around its sign of equality, and after
# what it counts.
_SPACES = re.compile(
  r"(?<=\d)\s(?=(?:%|[kMG]i?B|[MGT]FLOP/s|[µmn]?s|min|h|bytes|cores|minutes|hours|months"
  r"|points?|rounds?|seconds|seeds|times)(?!\w))"
  r"|(?<=\w)\s(?==\s[\d−-])|(?<=\w\s=)\s(?=[\d−-])"
  r"|(?:(?<=Figure)|(?<=Figures)|(?<=Table)|(?<=Tables)|(?<=Theorem)"
  r"|(?<=Algorithm)|(?<=section)|(?<=eq\.))\s(?=\d)"
)
# The sign of a number, but not the hyphen of "CIFAR-10 and -100".
_NEGATIVE = re.compile(r"(?<![\w.,/-])(?<!and\s)-(?=\d)")
# A quotient of short terms, such as 1 / 26.5 or d / s².
_QUOTIENT = re.compile(r"(?<![\w/])(\w{1,3})\s/\s(√?[\w.]{1,5}²?)(?!\w)")
# Dates, and names with hyphens, such as Δ-SGD and CIFAR-10, which stay whole;
# and Greek letters with an index.
_MARKED = re.compile(
  r"(?<![\w/-])(\d{4}-\d\d-\d\d|\w{1,12}(?:-[A-Z\d]\w{0,6})+)(?![\w/-])"
  r"|(?<=[α-ω])_([a-z])\b"
)


def _marked(text: str) -> list[nodes.Node]:
  """The text, with what stays whole, and what is an index, marked so."""
  parts, end = [], 0
  for match in _MARKED.finditer(text):
    parts.append(nodes.Text(text[end : match.start()]))
    whole, index = match.groups()
    if whole:
      parts.append(nodes.inline("", whole, classes=["whole"]))
    else:
      parts.append(nodes.subscript("", index))
    end = match.end()
  return [*parts, nodes.Text(text[end:])]


def _held(children: list[nodes.Node]) -> list[nodes.Node]:
  """Code stays on a line with a bracket before it and the signs after it."""
  held = []
  for node in children:
    before = held[-1] if held else None
    if _is_code(node) and isinstance(before, nodes.Text):
      text, sign = re.fullmatch(r"(?s)(.*?)([(\[“]*)", before).groups()
      if sign:
        held[-1] = nodes.Text(text)
        node = nodes.inline("", sign, node, classes=["held"])
    elif _is_code(before) and isinstance(node, nodes.Text):
      sign, text = re.fullmatch(r"(?s)([\]),.;:”]*)(.*)", node).groups()
      if sign:
        whole = [before, nodes.Text(sign)]
        held[-1] = nodes.inline("", "", *whole, classes=["held"])
        node = nodes.Text(text)
    held.append(node)
  return held


def _is_code(node: nodes.Node) -> bool:
  """Whether it is code, perhaps a link, perhaps with a bracket before it."""
  if isinstance(node, nodes.reference) and len(node) == 1:
    node = node[0]
  is_held = isinstance(node, nodes.inline) and "held" in node["classes"]
  return is_held or isinstance(node, nodes.literal)


def _unbroken(app, tree, name) -> None:
  """Numbers stay with their units; short names and flags are marked so."""
  as_it_is = nodes.literal | nodes.math | nodes.FixedTextElement | nodes.raw
  for parent in list(tree.findall(nodes.TextElement)):
    if isinstance(parent, as_it_is):
      continue
    children = []
    # The end of a line in the source is a text of its own.
    for is_text, group in itertools.groupby(
      parent.children, lambda node: isinstance(node, nodes.Text)
    ):
      if is_text:
        text = _SPACES.sub("\u00a0", "".join(group))
        text = _NEGATIVE.sub("−", text)
        text = _QUOTIENT.sub("\\1\u00a0/\u00a0\\2", text)
        if children and children[-1].astext().startswith("--"):
          # A flag's value.
          text = re.sub(r"^ (?=[\w.]+(?:,|$))", "\u00a0", text)
        group = _marked(text)
      children += group
    parent.children = []
    parent += _held(children)
  for code in tree.findall(nodes.literal):
    text = code.astext()
    longest = 32 if text.startswith("--") else 28
    if len(text) <= longest and not re.search(r"\s", text):
      code["classes"].append("name")


def _captions(app, tree, name) -> None:
  """Marks what a paper's page says of a table or figure of the paper."""
  for paragraph in tree.findall(nodes.paragraph):
    caption = _CAPTION.match(paragraph.astext())
    if caption and isinstance(paragraph[0], nodes.Text):
      label, rest = caption[1], paragraph[0][caption.end(1) :]
      paragraph["classes"].append("caption-of")
      paragraph[:1] = [nodes.strong("", label), nodes.Text(rest)]


_CAPTION = re.compile(
  r"(?s)([A-Z][a-z]+(?:\s[\d.]+[a-z]?)?\.)\s(?:Paper:|Not in the paper)"
  r".*All of it\."
)


def _verdicts(app, tree, name) -> None:
  """Marks verdicts on claims, also where they are all of a table's cell."""
  verdicts = ("held", "in part", "not held", "undecided")
  for text in list(tree.findall(nodes.Text)):
    cell = text.parent.parent
    is_body = isinstance(cell, nodes.entry) and isinstance(
      cell.parent.parent, nodes.tbody
    )
    if is_body and cell.astext() in verdicts:
      text.parent.replace(text, nodes.strong("", text))
  for strong in tree.findall(nodes.strong):
    if strong.astext() in verdicts:
      strong["classes"] += ["verdict", strong.astext().replace(" ", "-")]


def setup(app) -> None:
  app.connect("doctree-resolved", _unbroken)
  app.connect("doctree-resolved", _captions)
  app.connect("doctree-resolved", _verdicts)
