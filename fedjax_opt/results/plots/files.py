"""The files of a figure: which formats, and how they are written."""

import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from fedjax_opt.results.json_files import whole

_ENDINGS = (".png", ".pdf", ".svg")
# The text of a PDF has its font with it; the text of an SVG stays text.
STYLE = {
  "savefig.dpi": 200,
  "pdf.fonttype": 42,
  "ps.fonttype": 42,
  "svg.fonttype": "none",
  "svg.hashsalt": "fedjax_opt",
}
# A notebook shows an inch in so many of its pixels, so that text of 8 points is
# as large as its own; a picture has twice as many.
_PIXELS = 100
# The same figure has the same bytes: no date.
_METADATA = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}

# One file, several, or None for the figure itself.
Path = str | os.PathLike | Sequence[str | os.PathLike] | None


def paths_of(path: Path) -> list[pathlib.Path]:
  """The files to write; none for None.

  Raises:
    ValueError: if a file ends in something else than .png, .pdf or .svg, or
      its folder does not exist.
    TypeError: if it is no path.
  """
  if path is None:
    return []
  several = isinstance(path, Sequence) and not isinstance(path, str | bytes)
  for each in path if several else [path]:
    if not isinstance(each, str | os.PathLike):
      raise TypeError(
        f"path={path!r}: must be the name of a file, a list of them, or None"
      )
  files = [pathlib.Path(each) for each in (path if several else [path])]
  if not files:
    raise ValueError("path=[]: must name at least one file, or be None")
  for file in files:
    if file.suffix.lower() not in _ENDINGS:
      raise ValueError(
        f"path={str(file)!r}: must end in {', '.join(_ENDINGS[:-1])} or "
        f"{_ENDINGS[-1]}"
      )
    if not file.parent.is_dir():
      raise ValueError(
        f"path={str(file)!r}: folder {str(file.parent)!r} does not exist"
      )
  return files


def picture(width: float, height: float) -> Any:
  """An empty matplotlib figure of this size, in inches."""
  return _picture_class()(figsize=(width, height), layout="constrained")


def finish(figure: Any, path: Path) -> Any:
  """Writes a figure into all its files; without a file, returns it.

  Each file is written beside its place and then renamed, so that at no moment
  there is a part of it.

  Args:
    figure: a matplotlib figure.
    path: file or files; None for the figure itself.

  Returns:
    The figure if `path` is None, else None.

  Raises:
    ValueError, TypeError: as `paths_of`.
  """
  files = paths_of(path)
  for file in files:
    ending = file.suffix.lower()
    with whole(file) as unfinished:
      figure.savefig(
        unfinished, format=ending[1:], metadata=_METADATA.get(ending)
      )
  return None if files else figure


@functools.cache
def _picture_class() -> type:
  """matplotlib's figure, with this style also when it is saved later."""
  import io

  import matplotlib
  from matplotlib.figure import Figure

  class Picture(Figure):
    """A figure that notebooks show, and that is saved in our style."""

    def savefig(self, *args, **kwargs):
      with matplotlib.rc_context(STYLE):
        return super().savefig(*args, **kwargs)

    def _repr_png_(self) -> bytes:
      png = io.BytesIO()
      self.savefig(png, format="png")
      return png.getvalue()

    def _ipython_display_(self) -> None:
      # Comes before the way in which pyplot has a notebook draw any figure.
      from IPython.display import display

      pixels = self.get_size_inches() * _PIXELS
      size = dict(zip(("width", "height"), map(int, pixels), strict=True))
      shown = {"text/plain": repr(self), "image/png": self._repr_png_()}
      display(shown, metadata={"image/png": size}, raw=True)

  return Picture
