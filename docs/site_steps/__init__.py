"""Steps of the build of the site, one in each module: extensions of Sphinx.

filled_pages.py  fills tables of pages from registries and records
notebooks.py     brings the notebooks here, and makes their index
artefacts.py     brings the papers' artefacts here
links.py         links to files outside of docs/ lead to the repository
docstrings.py    what napoleon would misread, and signatures
source_links.py  where the source of a documented name is
code.py          code in texts and in blocks: where its lines break
pictures.py      pictures for phones, and widths
words.py         what stays together on a line, and captions
tables.py        what a phone does with a table
formulas.py      formulas as MathML
"""

import pathlib

DOCS = pathlib.Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
REPOSITORY = "https://github.com/fedjax-opt/fedjax_opt"
