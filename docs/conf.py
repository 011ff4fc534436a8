"""How Sphinx builds the site: `python -m sphinx -W -b html docs docs/_build`.

Files of the repository that are pages too (the notebooks, the change log, the
papers' READMEs and artefacts) stay where they are: notebooks and artefacts are
copied here when the site is built, the others are included. What they link to
outside of docs/ becomes a link to the repository.
"""

import base64
import functools
import hashlib
import importlib
import inspect
import itertools
import pathlib
import re
import sys
import textwrap

import imagesize
import nbformat
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.domains.python import PyObject
from sphinx.writers.html5 import HTML5Translator

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

import comparison_tables  # noqa: E402
import methods_tables  # noqa: E402

import fedjax_opt  # noqa: E402

REPOSITORY = "https://github.com/fedjax-opt/fedjax_opt"

project = "fedjax_opt"
author = "the authors of fedjax_opt"
project_copyright = author
version = release = fedjax_opt.__version__

extensions = [
  "sphinx.ext.autodoc",
  "sphinx.ext.napoleon",
  "sphinx.ext.doctest",
  "sphinx.ext.linkcode",
  "sphinx_copybutton",
  "myst_nb",
]
exclude_patterns = [
  "_build", "_extra", "_sample", "jupyter_execute", "**.ipynb_checkpoints",
]  # fmt: skip
nb_code_prompt_show = "Show the preparations"  # Of hidden cells.
default_role = "literal"
highlight_language = "none"  # Of blocks that name no language: commands.

# Docstrings are in Google's style, with `name` for what is code.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
autodoc_default_options = {"member-order": "bysource"}
autodoc_typehints = "none"  # Sections of the docstrings say types and shapes.
autodoc_preserve_defaults = True
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 76

# Notebooks are shown with the outputs that they have.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["mystnb.unknown_mime_type"]
html_math_renderer = "mathml"  # Browsers draw it; no script is loaded.

html_theme = "sphinx_book_theme"
html_title = "fedjax_opt"
html_static_path = ["_static"]
# The second has what the README's command wrote, but for the folders of runs.
html_extra_path = ["_extra", "_sample"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
  "repository_url": REPOSITORY,
  "repository_branch": "main",
  "path_to_docs": "docs",
  "use_repository_button": True,
  "use_issues_button": True,
  "use_edit_page_button": False,
  "show_toc_level": 2,
  "show_navbar_depth": 1,
  "footer_content_items": [],
  "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
  # The theme hides its header, but its scripts would take the header's buttons
  # for those of the page.
  **{f"navbar_{part}": [] for part in ("start", "center", "end", "persistent")},
}

# Folders of papers whose page has another name.
_PAGES = {"bvr": "bvr_l_sgd"}

_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
# What a picture shows, which MyST would join without a space at a line's end.
_ALT = re.compile(r"!\[[^]]*\]")
# The picture of a link to Colab, which another server has.
_BADGE = re.compile(r"\[!\[Open In Colab\]\([^)]*\)\]")


def _links_of(text: str, folder: pathlib.Path) -> str:
  """Turns links to files outside of docs/ into links to the repository.

  Args:
    text: Markdown, or a notebook.
    folder: the folder in the repository that its links are relative to.

  Returns:
    The same; links to files that are pages of the site lead to these pages.
  """

  def link(match):
    before, target, after = match.groups()
    path = (folder / target).resolve()
    if "://" in target or not path.is_relative_to(ROOT):
      return match.group(0)
    if not path.exists():
      if path.suffix != ".ipynb":
        return match.group(0)
      return f"{before}{REPOSITORY}/tree/main/notebooks{after}"  # Not made yet.
    if path.match("experiments/*/artefacts/README.md"):
      return f"{before}index.md{after}"  # Which includes it.
    if path.match("experiments/*/artefacts/*-*.md"):
      return f"{before}{_artefact(path)}{after}"
    if path.is_relative_to(DOCS) or path.suffix in (".png", ".svg", ".ipynb"):
      return match.group(0)
    where = "tree" if path.is_dir() else "blob"
    name = path.relative_to(ROOT).as_posix()
    return f"{before}{REPOSITORY}/{where}/main/{name}{after}"

  text = _ALT.sub(lambda alt: " ".join(alt[0].split()), text)
  return _LINK.sub(link, text)


def copy_notebooks() -> dict[str, str]:
  """Brings notebooks/*.ipynb to docs/notebooks, in place of older copies.

  Beside each copy its first picture is written, for the index, and what phones
  show of its pictures.

  Returns:
    {name without the suffix: its entry in the index}, in Markdown.
  """
  folder = DOCS / "notebooks"
  for old in [*folder.glob("*.ipynb"), *folder.glob("*.png")]:
    old.unlink()
  entries = {}
  for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
    text = _links_of(path.read_text(), path.parent)
    # There are links from notebooks to pages: here they stand beside them.
    text = text.replace("](../docs/", "](../")
    text = _BADGE.sub("[Open in Colab]", text)
    book = nbformat.reads(text, as_version=4)
    cells = book.cells
    # What installs the package, and the sizes, are one cell, which is folded.
    _, install, sizes, *_ = cells
    sizes.source = f"{install.source}\n\n{sizes.source}"
    sizes.metadata["tags"] = ["hide-input"]
    cells.remove(install)
    nbformat.write(book, folder / path.name)
    outputs = [o for cell in cells for o in cell.get("outputs", ())]
    picture = next(o.data for o in outputs if "image/png" in o.get("data", {}))
    image = base64.b64decode(picture["image/png"])
    (folder / f"{path.stem}.png").write_bytes(image)
    for output in outputs:
      sizes = output.get("metadata", {}).get("image/png", {})
      if phone := sizes.pop("phone", None):
        # MyST-NB names a picture by its digest.
        wide = base64.b64decode(output.data["image/png"])
        names = [hashlib.sha256(wide).hexdigest()]
        names += [path.stem] * (wide == image)
        for name in names:
          narrow = base64.b64decode(phone)
          (folder / f"{name}_phone.png").write_bytes(narrow)
    title, about, *_ = cells[0].source.split("\n\n")
    entries[path.stem] = (
      f"## [{title.removeprefix('# ')}]({path.name})\n\n{about}\n\n"
      f"![A picture of this notebook]({path.stem}.png)\n"
    )
  return entries


def _artefact(path: pathlib.Path) -> str:
  """Where an artefact's file is copied to, from docs/papers/."""
  return f"artefacts/{path.parents[1].name}-{path.name}"


def copy_artefacts() -> None:
  """Brings experiments/*/artefacts/ to docs/papers/artefacts/."""
  papers = DOCS / "papers"
  (papers / "artefacts").mkdir(exist_ok=True)
  for old in (papers / "artefacts").glob("*.md"):
    old.unlink()
  for file in ROOT.glob("experiments/*/artefacts/*-*.md"):
    paper = file.parents[1].name
    text = file.read_text(encoding="utf-8")
    text = text.replace("](../fig", f"](../../../experiments/{paper}/fig")
    page = _PAGES.get(paper, paper)
    text = text.replace("](../README.md)", f"](../{page}.md)")
    text = text.replace("](../../../docs/papers/", "](../")
    content = f"---\norphan: true\n---\n\n{text}"
    (papers / _artefact(file)).write_text(content, encoding="utf-8")


# A role or a literal, which stay as they are; or code in single backticks.
_CODE = re.compile(r"(:\w+:`[^`]+`|``[^`]+``)|`([^`]+)`")


def _docstring(app, kind, name, member, options, lines) -> None:
  """Changes what napoleon would misread.

  Code in single backticks gets two, so that a colon in it ends no type; and a
  result is described by a sentence, which may have colons, without a type.
  """
  text = _CODE.sub(
    lambda code: code[1] or f"``{' '.join(code[2].split())}``",
    "\n".join(lines),
  )
  lines[:] = re.sub(r"(?m)^(Returns:\n +)", r"\1: ", text).split("\n")


# What stands for an object without a literal: `<function relu at 0x7f>`.
_OBJECT = re.compile(r"(\w+)=<(?:[^<>]|<\w+>)*>(, )?")


def _signature(app, kind, name, member, options, signature, returns):
  """Names functions that are defaults, and hides what flax adds to modules."""
  if not signature or "=<" not in signature:
    return None
  parameters = inspect.signature(member).parameters

  def named(match):
    if match[0].startswith("parent=<flax"):
      return ""
    label = getattr(parameters[match[1]].default, "__name__", "...")
    label = label if label.isidentifier() else "..."
    return f"{match[1]}={label}{match[2] or ''}"

  if "parent=<flax" in signature:
    signature = signature.replace(", name=None)", ")")
  return _OBJECT.sub(named, signature).replace(", )", ")"), returns


def linkcode_resolve(domain, info) -> str | None:
  """Where the source of a documented name is, on the repository's page."""
  if domain != "py" or not info["module"]:
    return None
  path = f"{info['module']}.{info['fullname']}".split(".")
  try:
    member = functools.reduce(
      getattr, path[1:], importlib.import_module(path[0])
    )
    file = inspect.getsourcefile(inspect.unwrap(member))
    lines, first = inspect.getsourcelines(inspect.unwrap(member))
  except (AttributeError, TypeError, OSError):
    return None
  file = pathlib.Path(file)
  if not file.is_relative_to(ROOT):
    return None
  name = file.relative_to(ROOT).as_posix()
  return f"{REPOSITORY}/blob/main/{name}#L{first}-L{first + len(lines) - 1}"


_NOTEBOOKS = copy_notebooks()
copy_artefacts()
comparison_tables.write_browser_page(DOCS / "_extra" / "field")


def _read(app, name, content) -> None:
  if name in ("methods", "tasks"):
    content[0] = methods_tables.filled(content[0])
  if name in ("comparison", "which_method_study"):
    content[0] = comparison_tables.filled(content[0])
  if name == "notebooks/index" and _NOTEBOOKS:
    contents = ["```{toctree}", ":hidden:", "", *_NOTEBOOKS, "```"]
    content[0] += "\n".join(["", *_NOTEBOOKS.values(), *contents, ""])
  elif pathlib.Path(name).name not in _NOTEBOOKS:
    content[0] = _links_of(content[0], (DOCS / name).parent)


def _include(app, path, parent, content) -> None:
  content[0] = _links_of(content[0], (ROOT / "docs" / path).resolve().parent)


def _for_both(app, tree) -> None:
  """Puts NAME_phone.png beside NAME.png, if it is there, for phones."""
  for image in list(tree.findall(nodes.image)):
    name = re.sub(r"(\.\w+)$", r"_phone\1", image["uri"])
    if "jupyter_execute/" in name:  # Of a notebook.
      name = name.rpartition("/")[2]
      image["alt"] = "What the code above draws"
    _, file = app.env.relfn2path(name, app.env.docname)
    if pathlib.Path(file).is_file():
      narrow = image.copy()
      narrow["uri"] = name
      narrow["classes"].append("for-phones")
      image["classes"].append("for-screens")
      image.parent.insert(image.parent.index(image) + 1, narrow)


def _commands(page, node) -> None:
  """A block of code; a phone breaks long commands, between their words."""
  try:
    HTML5Translator.visit_literal_block(page, node)
  except nodes.SkipNode:
    if node.get("language") == "none":
      page.body[-1] = _BLOCK.sub(_lines, page.body[-1])
    raise


_BLOCK = re.compile(r"(?s)(?<=<pre><span></span>).*(?=</pre>)")


def _lines(block: re.Match) -> str:
  word, line = (rf'<span class="{x}">\g<0></span>' for x in ("word", "line"))
  words = re.sub(r"(?m)\S+(?: \\$)?", word, block[0])
  words = re.sub(r"(?<=,)(?=\d)", "<wbr>", words)  # In lists of values.
  return re.sub(r"(?m)^.*\n", line, words)


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


# Pixels of the text of pictures: at least, if a phone then shows the picture
# whole; else at least; and at most.
_WHOLE, _LEAST, _MOST = 7.8, 10, 11
_PHONE = 360


def _enlargeable(app, tree, name) -> None:
  """Links each picture to its file, and gives it a width.

  That is the width of the page. If its text would be too large then, it is
  less; if too small, it is more, and the picture scrolls.
  """
  for image in tree.findall(nodes.image):
    if "://" in image["uri"]:
      continue
    file = DOCS / image["uri"]
    (width, _), (dots, _) = imagesize.get(file), imagesize.getDPI(file)
    if file.suffix == ".svg":
      is_narrow = "for-phones" in image["classes"]
      least, most = (0, 400) if is_narrow else (640, 960)
    else:
      # Pictures of 200 dots an inch have our style, others that of matplotlib.
      points = 7.5 if dots == 200 else 10
      inch = width / (dots if dots > 0 else 100) * 72 / points
      least, most = round(_LEAST * inch), round(_MOST * inch)
      if _WHOLE * inch <= _PHONE:
        least = round(_WHOLE * inch)
    image["width"] = "100%"  # Sphinx links only pictures of a width.
    image["limits"] = f"width: clamp({least}px, 100%, {most}px);"
    image.attributes.pop("height", None)


def _image(page, node) -> None:
  """A picture; docutils knows no width with limits."""
  HTML5Translator.visit_image(page, node)
  if "limits" in node:
    page.body[-1] = page.body[-1].replace("width: 100%;", node["limits"])


def _without_margins(app, tree) -> None:
  """Included code has no indentation of all lines, and no empty ones last."""
  for block in tree.findall(nodes.literal_block):
    text = textwrap.dedent(block.astext()).rstrip()
    if block.rawsource == block.astext() != text:
      block.rawsource = text
      block[:] = [nodes.Text(text)]


# Spaces of a number: before its unit, around its sign of equality, and after
# what it counts.
_SPACES = re.compile(
  r"(?<=\d)\s(?=(?:%|[kMG]i?B|[MGT]FLOP/s|[µmn]?s|min|h|bytes|cores|minutes|hours|months"
  r"|points?|rounds?|seconds|seeds|times)(?!\w))"
  r"|(?<=\w)\s(?==\s[\d−-])|(?<=\w\s=)\s(?=[\d−-])"
  r"|(?:(?<=Figure)|(?<=Figures)|(?<=Table)|(?<=Tables)|(?<=Theorem))\s(?=\d)"
)
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
  r"(?s)([A-Z][a-z]+(?:\s\d+\w?)?\.)\s(?:Paper:|Not in the paper).*Here:"
)


def _for_phones(app, tree, name) -> None:
  """Marks tables by what a phone does with them.

  `stacked`: of sentences; its rows become blocks, whose cells have the names of
  their columns, which only a phone shows. `scrolled`: of numbers; its rows stay
  lines, and scroll beside their names. Short cells and columns of numbers are
  marked, too.
  """
  for table in tree.findall(nodes.table):
    head = table.next_node(nodes.thead)
    rows = list(table.next_node(nodes.tbody))
    for cell in table.findall(nodes.entry):
      cell["classes"] += ["short"] * (len(cell.astext()) <= _SHORT)
    for column in zip(*(head or ()), *rows, strict=True):
      texts = [_REMARK.sub("", cell.astext()) for cell in column[1:]]
      texts = [text for text in texts if text]
      is_number = bool(texts) and all(map(_NUMBER.fullmatch, texts))
      for cell in column:  # Whatever side Markdown says.
        sides = ("text-left", "text-right")
        cell["classes"] = [c for c in cell["classes"] if c not in sides]
        cell["classes"] += ["number"] * is_number
    if not head or not has_sentences(rows):
      of_numbers = any("number" in c["classes"] for c in rows[0][1:])
      is_wide = len(rows[0]) > 4 or (len(rows[0]) > 2 and of_numbers)
      table["classes"] += ["scrolled"] * is_wide
      if max(len(row[0].astext()) for row in rows) > 20:
        table["classes"].append("long-names")
      for text in list(table.findall(nodes.Text)):  # Intervals stay whole.
        new_text = text.replace(" to ", "\u00a0to\u00a0")
        text.parent.replace(text, nodes.Text(new_text))
      continue
    table["classes"].append("stacked")
    for row in rows:
      for title, cell in zip(head[0][1:], row[1:], strict=True):
        if not cell.astext():
          cell["classes"].append("empty")
        elif len(row) > 2 and title.astext() not in _PLAIN:
          label = nodes.inline("", f"{title.astext()}: ", classes=["column"])
          cell[0].insert(0, label)


_SHORT = 14  # Characters that stay on one line.
# Numbers, perhaps with intervals and marks, such as 1.2 (0.9 to 1.5)†, 3 of 8.
_NUMBER = re.compile(
  r"[<>≤≥~]?\s?[-+−(]?\d([-+−–\d.,;:()±%/<>~×†‡§✗\s]|to|of|in|e|x|\b[µm]?s\b"
  r"|[kMG]B|min|h)*"
)
# What a column of numbers has where there is none.
_REMARK = re.compile(r"[–-]|diverged.*|never.*|no limit")
# Titles of columns that a reader of a block does not need.
_PLAIN = ("", "what")


def has_sentences(rows: list[nodes.row]) -> bool:
  """Whether cells are too long for a table on a phone, in characters."""
  length = lambda cells: max((len(cell.astext()) for cell in cells), default=0)
  first = length(row[0] for row in rows)
  other_length = length(cell for row in rows for cell in row[1:])
  if len(rows[0]) == 2:
    return other_length > 100
  words = length(
    cell
    for row in rows
    for cell in row[1:]
    if not re.search(r"\d", cell.astext())
  )
  # Many columns are of numbers.
  return first > 60 or (len(rows[0]) < 7 and (other_length > 40 or words > 26))


# An accent before an index, which docutils would set below the accented letter.
_ACCENTED = re.compile(
  r"(\\(?:bar|hat|tilde) ?(?:\\[a-zA-Z]+|[a-zA-Z]|{[^{}]*}))(?=[_^])"
)


def _mathml(node: nodes.Element, is_block: bool) -> str:
  return tex2mathml(_ACCENTED.sub(r"\1{}", node.astext()), as_block=is_block)


def _formula(page, node) -> None:
  page.body.append(_mathml(node, is_block=False))
  raise nodes.SkipNode


def _displayed_formula(page, node) -> None:
  page.body.append(f'<div class="formula">{_mathml(node, True)}</div>\n')
  raise nodes.SkipNode


def setup(app) -> None:
  for field in PyObject.doc_field_types:
    if field.name == "variable":
      field.label = "Attributes"
  app.add_html_math_renderer(
    "mathml", (_formula, None), (_displayed_formula, None)
  )
  app.connect("autodoc-process-docstring", _docstring, priority=100)
  app.connect("autodoc-process-signature", _signature)
  app.connect("source-read", _read)
  image = (_image, HTML5Translator.depart_image)
  app.add_node(nodes.image, override=True, html=image)
  app.add_node(nodes.literal, override=True, html=(_code, _code_end))
  code = (_commands, HTML5Translator.depart_literal_block)
  app.add_node(nodes.literal_block, override=True, html=code)
  # Before Sphinx looks for the files of pictures, and after it.
  app.connect("doctree-read", _for_both, priority=400)
  app.connect("doctree-read", _without_margins)
  app.connect("doctree-resolved", _enlargeable)
  app.connect("doctree-resolved", _unbroken)
  app.connect("doctree-resolved", _captions)
  app.connect("doctree-resolved", _for_phones)
  app.connect("include-read", _include)
