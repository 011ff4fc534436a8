"""Brings experiments/*/artefacts/ to docs/papers/artefacts/.

The navigation has them in the order of the paper's list. From a paper the
arrows lead to the next paper, not to its artefacts. The example of a report, a
page of its own, gets a link back to the site.
"""

import pathlib
import re

from site_steps import DOCS, ROOT

# Folders of papers whose page has another name.
_PAGES = {"bvr": "bvr_l_sgd"}
_ARTEFACTS = "papers/artefacts/"


def copy_of(path: pathlib.Path) -> str:
  """Where an artefact's file is copied to, from docs/papers/."""
  return f"artefacts/{path.parents[1].name}-{path.name}"


def _copy() -> None:
  papers = DOCS / "papers"
  (papers / "artefacts").mkdir(exist_ok=True)
  for old in (papers / "artefacts").glob("*.md"):
    old.unlink()
  for file in ROOT.glob("experiments/*/artefacts/*-*.md"):
    paper = file.parents[1].name
    text = file.read_text(encoding="utf-8")
    # The paper's name last: the navigation has it above.
    text = re.sub("^# (.+), (.+)", r"# \2 (\1)", text)
    text = text.replace("](../fig", f"](../../../experiments/{paper}/fig")
    page = _PAGES.get(paper, paper)
    text = text.replace("](../README.md)", f"](../{page}.md)")
    text = text.replace("](../../../docs/papers/", "](../")
    (papers / copy_of(file)).write_text(text, encoding="utf-8")


def _list(app, name, content) -> None:
  """Names the artefacts of a paper in the navigation, in the paper's order."""
  line = re.search(r"(?m)^artefacts/(\w+)-\*$", content[0])
  if not line:
    return
  table = ROOT / "experiments" / line[1] / "artefacts" / "README.md"
  entries = re.findall(
    r"(?m)^\| \[(.+?)\]\(([\w.]+-\w+)\.md\)", table.read_text("utf-8")
  )
  listed = [f"{title} <artefacts/{line[1]}-{file}>" for title, file in entries]
  content[0] = content[0].replace(line[0], "\n".join(listed))


def _pass_by(app, name, template, context, tree) -> None:
  """The page before and after one that is no artefact is none either."""
  if _ARTEFACTS in name or name not in app.builder.relations:
    return
  for place, side in ((1, "prev"), (2, "next")):
    other = app.builder.relations[name][place]
    is_far = other and _ARTEFACTS in other
    while other and _ARTEFACTS in other:
      other = app.builder.relations[other][place]
    if is_far and other:
      title = app.builder.render_partial(app.env.titles[other])["title"]
      link = app.builder.get_relative_uri(name, other)
      context[side] = {"link": link, "title": title}


def _lead_back(app, error) -> None:
  report = pathlib.Path(app.outdir) / "study" / "report.html"
  if error or not report.exists():  # Other builders have none.
    return
  link = '<p><a href="../index.html">← The site of fedjax_opt</a></p>'
  text = report.read_text(encoding="utf-8")
  if link not in text:
    report.write_text(text.replace("<body>", f"<body>\n{link}", 1), "utf-8")


def setup(app) -> None:
  _copy()
  app.connect("source-read", _list)
  app.connect("html-page-context", _pass_by)
  app.connect("build-finished", _lead_back)
