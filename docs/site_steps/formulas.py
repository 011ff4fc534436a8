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
_BAR = re.compile(r"<mo>(?=[‖|∥]</mo>)")


def _mathml(node: nodes.Element, is_block: bool) -> str:
  text = _ACCENTED.sub(r"\1{}", node.astext())
  return _BAR.sub('<mo stretchy="false">', tex2mathml(text, as_block=is_block))


def _formula(page, node) -> None:
  page.body.append(_mathml(node, is_block=False))
  raise nodes.SkipNode


def _displayed_formula(page, node) -> None:
  page.body.append(f'<div class="formula">{_mathml(node, True)}</div>\n')
  raise nodes.SkipNode


def setup(app) -> None:
  app.add_html_math_renderer(
    "mathml", (_formula, None), (_displayed_formula, None)
  )
