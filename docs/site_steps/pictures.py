"""Pictures: a version for phones, a link to the file, and a width."""

import pathlib
import re

import imagesize
from docutils import nodes
from sphinx.writers.html5 import HTML5Translator

from site_steps import DOCS


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


def setup(app) -> None:
  image = (_image, HTML5Translator.depart_image)
  app.add_node(nodes.image, override=True, html=image)
  # Before Sphinx looks for the files of pictures, and after it.
  app.connect("doctree-read", _for_both, priority=400)
  app.connect("doctree-resolved", _enlargeable)
