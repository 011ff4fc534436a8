"""Makes the pictures of a notebook show well on phones; see build.py.

Imported in the kernel before the first cell. Then the output of a picture also
has, in its metadata, the picture that the site shows on phones.
"""

import base64
import copy
import io

from IPython import display
from PIL import Image

from fedjax_opt.study.plots import frame, panels

_COLORS = 128  # Make the file a third as large, and are hardly seen.


def small(png: bytes) -> str:
  """A picture of few colours, in base64."""
  image, file = Image.open(io.BytesIO(png)), io.BytesIO()
  few = image.convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
  few.save(file, format="png", optimize=True, dpi=image.info["dpi"])
  return base64.b64encode(file.getvalue()).decode()


def _show(figure) -> None:
  """Displays a figure as `Picture` does, with what phones show of it."""
  width, height = (figure.get_size_inches() * frame._PIXELS).astype(int)
  size = {"width": int(width), "height": int(height)}
  narrow = copy.deepcopy(figure)
  png = figure._repr_png_()
  if panels.stack(narrow):
    size["phone"] = small(narrow._repr_png_())
  bundle = {"text/plain": repr(figure), "image/png": png}
  display.display(bundle, metadata={"image/png": size}, raw=True)


frame._picture_class()._ipython_display_ = _show
