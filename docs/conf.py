"""How Sphinx builds the site: `python -m sphinx -W -b html docs docs/_build`.

Files of the repository that are pages too (the notebooks, the change log, the
papers' READMEs and artefacts) stay where they are: notebooks and artefacts are
copied here when the site is built, the others are included. The steps of the
build are in site_steps/.
"""

import pathlib
import sys

DOCS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS), str(DOCS / "make")]

from site_steps import REPOSITORY, source_links  # noqa: E402

import fedjax_opt  # noqa: E402

project = "fedjax_opt"
author = "the authors of fedjax_opt"
project_copyright = author
version = release = fedjax_opt.__version__

linkcode_resolve = source_links.resolve
extensions = [
  "sphinx.ext.autodoc",
  "sphinx.ext.napoleon",
  "sphinx.ext.doctest",
  "sphinx.ext.linkcode",
  "sphinx_copybutton",
  "myst_nb",
  "site_steps.filled_pages",
  "site_steps.notebooks",
  "site_steps.artefacts",
  "site_steps.links",
  "site_steps.docstrings",
  "site_steps.code",
  "site_steps.pictures",
  "site_steps.words",
  "site_steps.tables",
  "site_steps.formulas",
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
  "secondary_sidebar_items": {"**": ["page-toc"]},
  # The theme hides its header, but its scripts would take the header's buttons
  # for those of the page.
  **{f"navbar_{part}": [] for part in ("start", "center", "end", "persistent")},
}
