"""Fills tables of pages from the registries, the help, and records of runs."""

import comparison_tables
import flags_tables
import methods_tables

from site_steps import DOCS


def _read(app, name, content) -> None:
  if name in ("methods", "tasks"):
    content[0] = methods_tables.filled(content[0])
  if name == "flags":
    content[0] = flags_tables.filled(content[0])
  if name in ("comparison", "which_method_study"):
    content[0] = comparison_tables.filled(content[0])


def setup(app) -> None:
  comparison_tables.write_browser_page(DOCS / "_extra" / "field")
  app.connect("source-read", _read)
