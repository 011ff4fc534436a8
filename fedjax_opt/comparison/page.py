"""The parts of a page: its style, and tables and pictures as HTML."""

import base64
import html
import pathlib
import struct
from collections.abc import Iterable, Sequence

from fedjax_opt.comparison.tables import Entry, Table
from fedjax_opt.comparison.verdicts import BEST, DIVERGED

# A pixel of a picture on the page; narrow pictures are shown larger.
_SCALE, _SCALE_OF_NARROW = 0.6, 0.72
_NARROW = 800
# Of more rows, an interval is beside its value, not below it.
_MANY_ROWS = 8
# The equals sign of a condition, at which a line does not break.
_EQUALS = "\u00a0=\u00a0"

STYLE = """
:root { color-scheme: light; --ink: #1d2329; --soft: #5b6670;
  --line: #dfe3e7; --accent: #0a5c9c; --wash: #f6f8f9; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 60rem; padding: 3.5rem 1.75rem 5rem;
  color: var(--ink); background: #fff;
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue",
    "Noto Sans", "DejaVu Sans", Arial, sans-serif; }
h1 { margin: 0 0 .35rem; font-size: 2.1rem; line-height: 1.2;
  font-weight: 600; letter-spacing: -.015em; overflow-wrap: anywhere; }
h2 { margin: 3.25rem 0 .9rem; padding-bottom: .35rem; font-size: 1.3rem;
  line-height: 1.3; font-weight: 600; border-bottom: 1px solid var(--line); }
h3 { margin: 2.25rem 0 .6rem; font-size: 1.05rem; font-weight: 600; }
p, ul { margin: 0 0 .9rem; max-width: 46rem; overflow-wrap: break-word; }
ul { padding-left: 1.2rem; }
li { margin: .25rem 0; }
a { color: var(--accent); text-decoration: none; }
.links { white-space: nowrap; }
a:hover { text-decoration: underline; }
.facts, .small, figcaption, caption, .notes { color: var(--soft);
  font-size: .875rem; line-height: 1.5; }
.facts { margin-bottom: 1.75rem; }
.findings { font-size: 1.125rem; line-height: 1.6; }
figure { margin: 1.75rem 0 2.25rem; }
.wide { overflow-x: auto; }
figure img { display: block; height: auto; max-width: 100%; }
figcaption { margin-top: .6rem; max-width: 46rem; }
table { border-collapse: collapse; font-size: .9375rem; line-height: 1.4;
  font-variant-numeric: tabular-nums; border-top: 1.5px solid var(--ink);
  border-bottom: 1.5px solid var(--ink); }
thead th { border-bottom: 1px solid var(--ink); font-weight: 600;
  vertical-align: bottom; }
th, td { padding: .45rem .9rem .45rem 0; text-align: right;
  vertical-align: top; }
th:last-child, td:last-child { padding-right: 0; }
.name { text-align: left; font-weight: 400; max-width: 24rem;
  overflow-wrap: break-word; }
thead .name { font-weight: 600; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
td b { font-weight: 700; }
td { white-space: nowrap; }
td small { display: block; color: var(--soft); font-size: .8125rem; }
.dense td small { display: inline; margin-left: .35rem; }
.diverged { color: var(--soft); font-style: italic; }
.caption { margin: 0 0 .6rem; }
.wide + .caption, .notes + .caption { margin-top: 2rem; }
.notes { margin: .6rem 0 1.25rem; padding: 0; list-style: none; }
.notes li { margin: 0; }
.limits { padding: .9rem 1.1rem .9rem 2.1rem; background: var(--wash);
  border-radius: 6px; max-width: none; }
pre { margin: .5rem 0 1rem; padding: .8rem 1rem; overflow-x: auto;
  background: var(--wash); border-radius: 6px; font-size: .8125rem;
  line-height: 1.5; font-family: ui-monospace, "SF Mono", Menlo, Consolas,
    "DejaVu Sans Mono", monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; }
details { margin: .4rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
footer { margin-top: 4rem; padding-top: .8rem; color: var(--soft);
  font-size: .8125rem; border-top: 1px solid var(--line); }
@media (max-width: 40rem) {
  body { padding: 1.75rem 1.1rem 3rem; }
  h1 { font-size: 1.6rem; }
  h2 { margin-top: 2.5rem; }
  .findings { font-size: 1.0625rem; }
  table { font-size: .875rem; }
  figure img.broad { min-width: 34rem; }
}
@media print {
  @page { margin: 15mm 16mm; }
  html { font-size: 8pt; }
  body { max-width: none; padding: 0; font-size: 1.2rem; }
  p, ul, figcaption { max-width: none; }
  .small, .facts, .notes, figcaption, table { font-size: 1rem; }
  h2 { margin-top: 2.25rem; }
  h3 { margin-top: 1.5rem; }
  h2, h3, .caption { break-after: avoid; }
  figure { margin: 1rem 0 1.25rem; }
  figure, tr, pre, .limits { break-inside: avoid; }
  thead { display: table-header-group; }
  .wide { overflow: visible; }
  .links, details:not([open]) summary::marker { display: none; }
  details::details-content { content-visibility: visible; height: auto; }
  .limits, pre { background: none; border: 1px solid var(--line); }
}
"""


def escape(text: object) -> str:
  """Text inside of HTML, also of an attribute."""
  return html.escape(str(text), quote=True)


def prose(text: str) -> str:
  """A sentence inside of HTML: no line begins with the sign of percents."""
  return escape(text).replace(" %", "&nbsp;%")


def whole(title: str, parts: Iterable[str]) -> str:
  """The page."""
  return "\n".join(
    [
      "<!DOCTYPE html>",
      '<html lang="en">',
      "<head>",
      '<meta charset="utf-8">',
      '<meta name="viewport" content="width=device-width, initial-scale=1">',
      '<meta name="generator" content="fedjax_opt">',
      f"<title>{escape(title)}</title>",
      f"<style>{STYLE}</style>",
      "</head>",
      "<body>",
      *parts,
      "</body>",
      "</html>",
      "",
    ]
  )


def paragraph(text: str, kind: str = "") -> str:
  """A paragraph of plain text."""
  return f"<p{_class(kind)}>{prose(text)}</p>"


def bullets(lines: Sequence[str], kind: str = "") -> str:
  """A list of plain lines."""
  items = "".join(f"<li>{prose(line)}</li>" for line in lines)
  return f"<ul{_class(kind)}>{items}</ul>"


def links(named: Sequence[tuple[str, str]]) -> str:
  """Links, as (text, address)."""
  each = " · ".join(
    f'<a href="{escape(address)}">{escape(text)}</a>' for text, address in named
  )
  return f'<span class="links">{each}</span>'


def table(content: Table, more: str = "") -> str:
  """A table with its caption and notes; `more` is HTML after the caption."""
  dense = "dense" if len(content.rows) > _MANY_ROWS else ""
  parts = [
    f'<p class="small caption">{prose(content.caption)}{more}</p>',
    f'<div class="wide"><table{_class(dense)}>',
    "<thead><tr>",
    *(
      f'<th scope="col"{_class("name" if i < content.num_names else "")}>'
      f"{escape(name.replace(' = ', _EQUALS))}</th>"
      for i, name in enumerate(content.header)
    ),
    "</tr></thead>",
    "<tbody>",
    *(_row(row, content.num_names) for row in content.rows),
    "</tbody></table></div>",
  ]
  if content.notes:
    parts.append(bullets(content.notes, "notes"))
  return "\n".join(parts)


def _row(entries: Sequence[Entry], num_names: int) -> str:
  cells = []
  for i, entry in enumerate(entries):
    text = escape(entry.text)
    if entry.verdict == BEST:
      text = f"<b>{text}</b>"
    elif entry.verdict == DIVERGED:
      text = f'<span class="diverged">{text}</span>'
    text += entry.mark
    if entry.detail:
      text += f" <small>({escape(entry.detail)})</small>"
    if i < num_names:
      cells.append(f'<th scope="row" class="name">{text}</th>')
    else:
      cells.append(f"<td>{text}</td>")
  return f"<tr>{''.join(cells)}</tr>"


def figure(title: str, caption: str, png: pathlib.Path) -> str:
  """A picture inside of the page, with links to its files beside the page."""
  content = png.read_bytes()
  width, _ = struct.unpack(">II", content[16:24])
  shown = round((_SCALE if width > _NARROW else _SCALE_OF_NARROW) * width)
  data = base64.b64encode(content).decode()
  names = [(kind, f"{png.parent.name}/{png.stem}.{kind}") for kind in KINDS]
  broad = ' class="broad"' if shown > 560 else ""
  return (
    f'<figure id="{escape(png.stem)}">\n<div class="wide">'
    f'<img{broad} style="width: {shown / 16:g}rem" alt="{escape(title)}" '
    f'src="data:image/png;base64,{data}"></div>\n'
    f"<figcaption>{prose(caption)} {links(names)}</figcaption>\n</figure>"
  )


KINDS = ("png", "pdf", "svg")


def code(text: str) -> str:
  """Text with its own line breaks, such as a command."""
  return f"<pre>{escape(text)}</pre>"


def details(title: str, text: str) -> str:
  """Text that is shown on demand, with its own line breaks."""
  return f"<details><summary>{escape(title)}</summary>{code(text)}</details>"


def _class(kind: str) -> str:
  return f' class="{kind}"' if kind else ""
