"""Code in texts and in blocks: where its lines may break."""

import html
import itertools
import re
import textwrap
from collections.abc import Sequence

from docutils import nodes
from sphinx.writers.html5 import HTML5Translator


def _block(page, node) -> None:
  """A block of code, whose long lines go on in the next line on a phone."""
  try:
    HTML5Translator.visit_literal_block(page, node)
  except nodes.SkipNode:
    language = node.get("language") or ""
    if language == "none":
      page.body[-1] = _for_both(page.body[-1], node.astext())
    elif language == "text":
      page.body[-1] = _output_for_both(page.body[-1], node.astext())
    elif language == "myst-ansi":  # What a cell of a notebook prints.
      page.body[-1] = _BLOCK.sub(_marked_lines, page.body[-1])
    elif re.match("i?py", language) or isinstance(node, nodes.doctest_block):
      page.body[-1] = _BLOCK.sub(_lines_of_python, page.body[-1])
    raise


_BLOCK = re.compile(r"(?s)(?<=<pre><span></span>).*(?=</pre>)")
_LINE = re.compile(r"(?m)^.*\n")


def _for_both(box: str, text: str) -> str:
  """The box of commands; a phone has another one, of shorter lines."""
  box = _BLOCK.sub(_lines_of_commands, box)
  short = "\n".join(map(_shortened, re.sub(r" \\\n *", " ", text).split("\n")))
  if max(map(len, text.split("\n"))) <= _MOST or not _is_command(text):
    return box
  block = f"{html.escape(short, quote=False)}\n"
  phone = _BLOCK.sub(lambda _: _lines_of_commands([block]), box)
  return _versions(box, phone)


def _versions(screen: str, phone: str) -> str:
  """Two boxes, of which a reader sees one."""
  versions = ((screen, "for-screens"), (phone, "for-phones"))
  return "".join(
    version.replace('class="highlight-', f'class="{name} highlight-', 1)
    for version, name in versions
  )


def _output_for_both(box: str, text: str) -> str:
  """The box of an output; on a phone, a few columns of a table at a time."""
  lines, narrow = text.split("\n"), []
  if max(map(len, lines)) <= _MOST:
    return box
  while lines:
    num_rows = sum(1 for _ in itertools.takewhile(_ROW.search, lines))
    narrow += _few_columns(lines[:num_rows]) if num_rows > 1 else lines[:1]
    lines = lines[max(num_rows, 1) :]
  block = f"{html.escape(chr(10).join(narrow), quote=False)}\n"
  phone = _BLOCK.sub(lambda _: _marked_lines([block]), box)
  return _versions(box, phone)


_ROW = re.compile(r"\S {2,}\S.*\S {2,}\S")  # Three columns or more.


def _few_columns(rows: list[str]) -> list[str]:
  """The rows of a table, again for each few columns that a phone can show."""
  width = max(map(len, rows))
  rows = [row.ljust(width) for row in rows]
  blanks = "".join(
    " x"[any(row[i] != " " for row in rows)] for i in range(width)
  )
  ends = [gap.end() for gap in re.finditer(" {2,}", blanks)]
  if not rows[0][: ends[0]].strip():
    del ends[0]  # Marks of rows stay beside the names.
  # A single row below the titles needs no name.
  name = slice(0, ends[0] if len(rows) > 2 else 0)
  bounds = [*([0] if len(rows) == 2 else []), *ends, width]
  parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
  shown = [[name]]
  for part in parts:
    used = sum(s.stop - s.start for s in shown[-1])
    if len(shown[-1]) > 1 and used + len(blanks[part].rstrip()) > _MOST:
      shown.append([name])
    shown[-1].append(part)
  return [
    line
    for i, group in enumerate(shown)
    for line in [""] * bool(i)
    + ["".join(row[part] for part in group).rstrip() for row in rows]
  ]


def _marked_lines(block: re.Match | Sequence[str]) -> str:
  """Long lines go on in the next line on a phone."""
  return _LINE.sub(r'<span class="line">\g<0></span>', block[0])


_MOST = 44  # Characters of a line on a phone.


def _is_command(text: str) -> bool:
  return (
    re.match(r"(?:\w+=\S+ )*(?:python3?|pip|git|fedjax-opt) ", text) is not None
  )


def _shortened(command: str) -> str:
  """A command in lines that fit a phone and can be copied."""
  if len(command) <= _MOST:
    return command
  command, _, remark = command.partition("  # ")
  lines = [f"# {remark}"] * bool(remark)
  # Words; what is between quotation marks may break at its spaces.
  parts = [""]
  for word in re.findall(r"[^\s']*'[^']*'\S*|\S+", command.strip()):
    pieces = word.split(" ") if len(word) > _MOST - 4 else [word]
    for i, piece in enumerate(pieces):
      end = "" if i < len(pieces) - 1 else " \\"
      room = _MOST - len(end)
      if parts[-1].strip() and len(f"{parts[-1]} {piece}") > room:
        # A line that ends between quotation marks needs no sign.
        parts[-1] += "" if i else " \\"
        parts.append("    " if i else "  ")
        parts[-1] += piece
      else:
        parts[-1] = f"{parts[-1]} {piece}" if parts[-1] else piece
  return "\n".join([*lines, *parts])


def _lines_of_commands(block: re.Match | Sequence[str]) -> str:
  """Commands break between their words."""
  words = re.sub(
    r"(?m)\S+(?: \\$)?", r'<span class="word">\g<0></span>', block[0]
  )
  words = re.sub(r"(?<=,)(?=\d)", "<wbr>", words)  # In lists of values.
  return _LINE.sub(r'<span class="line">\g<0></span>', words)


# After a bracket, and before a long name.
_BRACKET = re.compile(
  r"(?<=[(\[{]</span>)(?!\n)|(?<=\.</span>)(?=<[^>]*>\w{30})"
)
# A minus stays beside its name.
_MINUS = re.compile(
  r'(?:(?<=[(\[{,:]</span>)|(?<=,</span> ))<span class="o">-</span>'
  r'<span class="\w+">[^<]*</span>'
)


# What a line begins with; in an example of a docstring, after its prompt.
_MARGIN = re.compile(r"(?:(?:>>>|\.\.\.) )? *")


def _lines_of_python(block: re.Match) -> str:
  """What is left of a line of Python begins four columns to its right."""

  def line(match):
    text = html.unescape(re.sub("<[^>]*>", "", match[0]))
    longest = max(map(len, re.findall(r"\w+", text)), default=0)
    margin = _MARGIN.match(text).end()
    hang = max(margin + 4 - max(margin + 4 + longest - _MOST, 0), 2)
    code = _MINUS.sub(r'<span class="whole">\g<0></span>', match[0])
    code = _BRACKET.sub("<wbr>", code)
    return f'<span class="line" style="--hang: {hang}ch">{code}</span>'

  return _LINE.sub(line, block[0])


# Where long code in a text may go on in the next line.
_BREAK = re.compile(
  r"(?<=[(/])(?=\w)|(?<=\w{4}\.)(?=[a-zA-Z_])|(?<=\w=)(?=[a-zA-Z_])|(?<=,)"
)


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
