"""Makes the pictures of a notebook show well on phones; see build.py.

Imported in the kernel before the first cell. Then the output of a picture also
has, in its metadata, the picture that the site shows on phones.
"""

import base64
import copy
import io

from IPython import display, get_ipython
from PIL import Image

_COLORS = 128  # Make the file a third as large, and are hardly seen.


def small(png: bytes) -> str:
  """A picture of few colours, in base64."""
  image, file = Image.open(io.BytesIO(png)), io.BytesIO()
  few = image.convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
  few.save(file, format="png", optimize=True, dpi=image.info["dpi"])
  return base64.b64encode(file.getvalue()).decode()


def _show(picture) -> None:
  """Displays a picture as it does itself, with what phones show of it."""
  from fedjax_opt.study.plots import panels  # The notebook has it by now.

  data, metadata = picture.in_notebook()
  narrow = copy.deepcopy(picture)
  if panels.stack(narrow):
    metadata["image/png"]["phone"] = small(narrow._repr_png_())
  display.display(data, metadata=metadata, raw=True)


formatter = get_ipython().display_formatter.ipython_display_formatter
formatter.for_type_by_name("fedjax_opt.study.plots.frame", "Picture", _show)
