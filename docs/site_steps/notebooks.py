"""Brings notebooks/*.ipynb to docs/notebooks, and fills their index."""

import base64
import hashlib
import re

import nbformat

from site_steps import DOCS, ROOT
from site_steps.links import links_of

# The picture of a link to Colab, which another server has.
_BADGE = re.compile(r"\[!\[Open In Colab\]\([^)]*\)\]")


# What the first picture of a notebook shows.
_CAPTIONS = {
  "01_five_minutes": "The classes of the examples of 40 clients",
  "02_your_own_method": (
    "A function after 100 steps, against the learning rate: SGD, and the rule "
    "that the notebook writes"
  ),
  "03_delta_sgd": (
    "Step sizes of one client with Δ-SGD, and which branch of its rule decides"
  ),
  "04_composite": (
    "How well four methods find the nonzero coefficients (F1), over rounds"
  ),
  "05_heterogeneity": (
    "How three clients and the server move in the plane, with FedAvg and with "
    "SCAFFOLD"
  ),
  "06_fair_comparison": (
    "SCAFFOLD's lead over FedAvg, if FedAvg is tuned and if it is not"
  ),
  "07_time": "How slow clients are: the share below each time of a local step",
}


def _copy() -> dict[str, str]:
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
    text = links_of(path.read_text(), path.parent)
    # There are links from notebooks to pages: here they stand beside them.
    text = text.replace("](../docs/", "](../")
    text = _BADGE.sub("[Open in Colab]", text)
    book = nbformat.reads(text, as_version=4)
    cells = book.cells
    _fold(cells)
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
    caption = _CAPTIONS.get(path.stem, f"From {title.removeprefix('# ')}")
    entries[path.stem] = (
      f"## [{title.removeprefix('# ')}]({path.name})\n\n{about}\n\n"
      f"![{caption}]({path.stem}.png)\n\n*{caption}.*\n"
    )
  return entries


_LONG = 12  # Lines of a cell that draws, from which on it is folded.


def _fold(cells: list) -> None:
  """Folds what most readers skip: preparations, data and model, long plots.

  The cells that install the package, choose sizes and import are one cell here.
  """
  _, install, sizes, imports, *others = cells
  sources = (cell.source for cell in (install, sizes, imports))
  sizes.source = "\n\n".join(sources)
  sizes.metadata["tags"] = ["hide-input"]
  cells.remove(install)
  cells.remove(imports)
  for cell in others:
    is_data = cell.source.startswith(("def load(", "train, test ="))
    is_plot = "plots.figure(" in cell.source and (
      cell.source.count("\n") >= _LONG
    )
    if is_plot or (is_data and not cell.get("outputs")):
      cell.metadata["tags"] = ["hide-input"]


def setup(app) -> None:
  entries = _copy()

  def read(app, name, content) -> None:
    if name == "notebooks/index" and entries:
      contents = ["```{toctree}", ":hidden:", "", *entries, "```"]
      content[0] += "\n".join(["", *entries.values(), *contents, ""])

  app.connect("source-read", read)
