"""Links to files outside of docs/ lead to pages, or to the repository."""

import pathlib
import re

from site_steps import DOCS, REPOSITORY, ROOT, artefacts

_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
# What a picture shows, which MyST would join without a space at a line's end.
_ALT = re.compile(r"!\[[^]]*\]")


def links_of(text: str, folder: pathlib.Path) -> str:
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
      return f"{before}{artefacts.copy_of(path)}{after}"
    if path.is_relative_to(DOCS) or path.suffix in (".png", ".svg", ".ipynb"):
      return match.group(0)
    where = "tree" if path.is_dir() else "blob"
    name = path.relative_to(ROOT).as_posix()
    return f"{before}{REPOSITORY}/{where}/main/{name}{after}"

  text = _ALT.sub(lambda alt: " ".join(alt[0].split()), text)
  return _LINK.sub(link, text)


def _read(app, name, content) -> None:
  if not name.startswith("notebooks/"):
    content[0] = links_of(content[0], (DOCS / name).parent)


def _include(app, path, parent, content) -> None:
  content[0] = links_of(content[0], (DOCS / path).resolve().parent)


def setup(app) -> None:
  app.connect("source-read", _read)
  app.connect("include-read", _include)
