"""Brings experiments/*/artefacts/ to docs/papers/artefacts/.

The example of a report, a page of its own, gets a link back to the site.
"""

import pathlib
import re

from site_steps import DOCS, ROOT

# Folders of papers whose page has another name.
_PAGES = {"bvr": "bvr_l_sgd"}


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
  app.connect("build-finished", _lead_back)
