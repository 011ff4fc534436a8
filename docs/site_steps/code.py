"""Code in texts and in blocks: where its lines may break."""

import html
import re
import textwrap

from docutils import nodes
from sphinx.writers.html5 import HTML5Translator


def _block(page, node) -> None:
  """A block of code, whose long lines go on in the next line on a phone."""
  try:
    HTML5Translator.visit_literal_block(page, node)
  except nodes.SkipNode:
    language = node.get("language") or ""
    if language == "none":
      page.body[-1] = _BLOCK.sub(_lines_of_commands, page.body[-1])
    elif re.match("i?py", language) or isinstance(node, nodes.doctest_block):
      page.body[-1] = _BLOCK.sub(_lines_of_python, page.body[-1])
    raise


_BLOCK = re.compile(r"(?s)(?<=<pre><span></span>).*(?=</pre>)")
_LINE = re.compile(r"(?m)^.*\n")


def _lines_of_commands(block: re.Match) -> str:
  """Commands break between their words."""
  words = re.sub(
    r"(?m)\S+(?: \\$)?", r'<span class="word">\g<0></span>', block[0]
  )
  words = re.sub(r"(?<=,)(?=\d)", "<wbr>", words)  # In lists of values.
  return _LINE.sub(r'<span class="line">\g<0></span>', words)


# After a bracket, and after the sign of an argument.
_BRACKET = re.compile(r"(?<=[(\[{]</span>)(?!\n)|(?<==</span>)(?=<)")


# What a line begins with; in an example of a docstring, after its prompt.
_MARGIN = re.compile(r"(?:(?:>>>|\.\.\.) )? *")


def _lines_of_python(block: re.Match) -> str:
  """What is left of a line of Python begins four columns to its right."""

  def line(match):
    text = html.unescape(re.sub("<[^>]*>", "", match[0]))
    hang = _MARGIN.match(text).end() + 4
    code = _BRACKET.sub("<wbr>", match[0])
    return f'<span class="line" style="--hang: {hang}ch">{code}</span>'

  return _LINE.sub(line, block[0])


# Where long code in a text may go on in the next line.
_BREAK = re.compile(r"(?<=[(/])(?=\w)|(?<=\w[.=])(?=[a-zA-Z_])|(?<=,)")


def _code(page, node) -> None:
  """Code in a text, which breaks at signs rather than in a name."""
  HTML5Translator.visit_literal(page, node)
  node["first"] = len(page.body)


def _code_end(page, node) -> None:
  if "name" not in node["classes"]:
    for i in range(node["first"], len(page.body)):
      page.body[i] = _WORD.sub(_parts, page.body[i])
  HTML5Translator.depart_literal(page, node)


_WORD = re.compile(r'(?<=<span class="pre">)[^<]+')


def _parts(word: re.Match) -> str:
  """The parts of a long word of code; those that are long may be broken."""
  if len(word[0]) <= 24:
    return word[0]
  return "<wbr>".join(
    part if len(part) <= 32 else f'<span class="long">{part}</span>'
    for part in _BREAK.split(word[0])
  )


def _without_margins(app, tree) -> None:
  """Included code has no indentation of all lines, and no empty ones last."""
  for block in tree.findall(nodes.literal_block):
    text = textwrap.dedent(block.astext()).rstrip()
    if block.rawsource == block.astext() != text:
      block.rawsource = text
      block[:] = [nodes.Text(text)]


def setup(app) -> None:
  app.add_node(nodes.literal, override=True, html=(_code, _code_end))
  block = (_block, HTML5Translator.depart_literal_block)
  for kind in (nodes.literal_block, nodes.doctest_block):
    app.add_node(kind, override=True, html=block)
  app.connect("doctree-read", _without_margins)
