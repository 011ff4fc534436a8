"""Formulas as MathML, which browsers draw without a script."""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

# An accent before an index, which docutils would set below the accented letter.
_ACCENTED = re.compile(
  r"(\\(?:bar|hat|tilde) ?(?:\\[a-zA-Z]+|[a-zA-Z]|{[^{}]*}))(?=[_^])"
)


# A bar of a norm or a magnitude. Unlike `\left|` it has no other end in
# MathML, so a browser would stretch it to whatever stands beside it.
_BAR = re.compile(r'<mo(?: stretchy="false")?>(?=[‖|∥]</mo>)')


def _mathml(text: str, is_block: bool) -> str:
  text = _ACCENTED.sub(r"\1{}", text)
  bar = '<mo stretchy="false" lspace="0" rspace="0">'
  return _BAR.sub(bar, tex2mathml(text, as_block=is_block))


def _formula(page, node) -> None:
  page.body.append(_mathml(node.astext(), is_block=False))
  raise nodes.SkipNode


def _displayed_formula(page, node) -> None:
  text = node.astext()
  if "&" not in text:
    # Formulas in a line, which a phone puts below one another.
    parts = "".join(_mathml(part, is_block=True) for part in _parts(text))
    page.body.append(f'<div class="formula">{parts}</div>\n')
    raise nodes.SkipNode
  rows = re.split(r"\\\\\s*", text)
  narrow = r" \\ ".join(line for row in rows for line in _lines(row))
  versions = {"for-screens": text, "for-phones": narrow}
  if len(_parts(text)) == 1:
    versions = {"": text}
  for name, version in versions.items():
    formula = _mathml(version, is_block=True)
    page.body.append(f'<div class="formula {name}">{formula}</div>\n')
  raise nodes.SkipNode


_SPACE = re.compile(r"\\q?quad(?![a-z])")


def _parts(text: str) -> list[str]:
  """The parts of a formula between wide spaces, none of them in brackets."""
  parts = _SPACE.split(text)
  is_whole = lambda part: all(
    len(re.findall(one, part)) == len(re.findall(other, part))
    for one, other in (("{", "}"), (r"\\left(?!a)", r"\\right(?!a)"))
  )
  return parts if all(map(is_whole, parts)) else [text]


def _lines(row: str) -> list[str]:
  """The parts of an aligned row as rows, aligned at their own relations."""
  first, *others = _parts(row)
  return [first, *(_LEFT_SIDE.sub(r"\g<0>&", part, count=1) for part in others)]


# What stands left of a relation; nothing in a text or a condition.
_LEFT_SIDE = re.compile(
  r"^(?:(?:(?!\\in\b|\\text|\\sum)[^(=])*?(?==|\\leftarrow|\\approx))?"
)


def setup(app) -> None:
  app.add_html_math_renderer(
    "mathml", (_formula, None), (_displayed_formula, None)
  )
