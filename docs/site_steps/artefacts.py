"""Brings experiments/*/artefacts/ to docs/papers/artefacts/."""

import pathlib

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
    text = text.replace("](../fig", f"](../../../experiments/{paper}/fig")
    page = _PAGES.get(paper, paper)
    text = text.replace("](../README.md)", f"](../{page}.md)")
    text = text.replace("](../../../docs/papers/", "](../")
    (papers / copy_of(file)).write_text(text, encoding="utf-8")


def setup(app) -> None:
  _copy()
