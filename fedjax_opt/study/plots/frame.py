"""What all figures share: files, size, style, colours and axes."""

import contextlib
import functools
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fedjax_opt.checks import errors, fields
from fedjax_opt.checks.values import check_instance, check_path, is_real
from fedjax_opt.files.json_files import atomic_write
from fedjax_opt.results.names import format_number

_ENDINGS = (".png", ".pdf", ".svg")
_STYLE = pathlib.Path(__file__).with_name("figures.mplstyle")
# A notebook shows an inch as this many of its pixels, so that text of 8 points
# is as large as the notebook's own. A picture has twice as many pixels.
_PIXELS = 100
# Without a date in the file, equal figures have equal bytes.
_METADATA = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}

# One file, several files, or None for the figure itself.
Path = str | os.PathLike | Sequence[str | os.PathLike] | None


def paths_of(path: Path) -> list[pathlib.Path]:
  """The files to write; none for None.

  Raises:
    ValueError: if a file does not end in .png, .pdf or .svg, or its folder does
      not exist.
    TypeError: if it is no path.
  """
  if path is None:
    return []
  is_one = isinstance(path, str | bytes) or not isinstance(path, Sequence)
  paths = [path] if is_one else list(path)
  if not paths:
    raise ValueError("path=[]: must name at least one file, or be None")
  files = []
  for entry in paths:
    check_path("path", entry)
    file = pathlib.Path(entry)
    files.append(file)
    if file.suffix.lower() not in _ENDINGS:
      raise ValueError(f"path={str(file)!r}: must end in .png, .pdf or .svg")
    if not file.parent.is_dir():
      raise ValueError(
        f"path={str(file)!r}: folder {str(file.parent)!r} does not exist"
      )
  return files


fields.KINDS[Path] = fields.Field(lambda name, path: paths_of(path))


def finish(figure: Any, path: Path) -> Any:
  """Writes a figure into all its files; without a file, returns it.

  Each file is written under another name and then renamed, so no reader ever
  finds a part of it.

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
    with atomic_write(file) as unfinished:
      figure.savefig(
        unfinished, format=ending[1:], metadata=_METADATA.get(ending)
      )
    figure.set_layout_engine(None)  # It is laid out once, for all files.
  return None if files else figure


@functools.cache
def _picture_class() -> type:
  """matplotlib's figure, with this style also when it is saved later."""
  import io

  from matplotlib import style
  from matplotlib.figure import Figure

  class Picture(Figure):
    """A figure that notebooks show, and that is saved in our style."""

    def savefig(self, *args, **kwargs):
      with style.context(_STYLE):
        return super().savefig(*args, **kwargs)

    def _repr_png_(self) -> bytes:
      png = io.BytesIO()
      self.savefig(png, format="png")
      return png.getvalue()

    def in_notebook(self) -> tuple[dict[str, Any], dict[str, Any]]:
      """What a notebook shows, and the picture's size: data and metadata."""
      pixels = self.get_size_inches() * _PIXELS
      size = dict(zip(("width", "height"), map(int, pixels), strict=True))
      mimebundle = {"text/plain": repr(self), "image/png": self._repr_png_()}
      return mimebundle, {"image/png": size}

    def _ipython_display_(self) -> None:
      # It takes precedence over the way in which pyplot shows figures in
      # notebooks.
      from IPython.display import display

      data, metadata = self.in_notebook()
      display(data, metadata=metadata, raw=True)

  return Picture


# Okabe and Ito's colours without the yellow: distinct for colour-blind readers,
# and dark enough on white.
COLORS = (
  "#0072B2",
  "#D55E00",
  "#009E73",
  "#CC79A7",
  "#E69F00",
  "#56B4E9",
  "#000000",
)
LINE_STYLES = ("-", "--", ":")
# Paul Tol's "muted" and a grey, for up to ten classes in one bar.
CLASS_COLORS = (
  "#332288",
  "#88CCEE",
  "#44AA99",
  "#117733",
  "#999933",
  "#DDCC77",
  "#CC6677",
  "#882255",
  "#AA4499",
  "#BBBBBB",
)


# Multiples of the powers of ten that a log axis labels, the most first; and how
# far apart their labels must be, in matplotlib's units of room for a label.
_MULTIPLES = (
  (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9),
  (1, 1.5, 2, 3, 5, 7),
  (1, 2, 3, 5),
  (1, 2, 5),
)
_LEAST_ROOM = {"x": 1.2, "y": 0.6}
_PANELS = fields.integer(1, most=100)


@fields.checked(columns=_PANELS, rows=_PANELS)
@contextlib.contextmanager
def figure(
  columns: int, rows: int = 1, scale: tuple[float, float] = (1, 1)
) -> Iterator[tuple[Any, np.ndarray]]:
  """An empty figure of panels, in the style of all figures.

  Args:
    columns: number of panels in a row.
    rows: number of rows of panels.
    scale: factors of a panel's usual width and height.

  Yields:
    The matplotlib figure and its axes, [rows, columns].

  Raises:
    ImportError: if matplotlib is missing.
  """
  width = 2.8 * columns * scale[0]
  height = 2.4 * rows * scale[1] + 0.3
  with styled_figure(width, height) as new:
    yield new, new.subplots(rows, columns, squeeze=False)


def in_style() -> Any:
  """The context in which matplotlib has the style of all figures."""
  from matplotlib import style

  return style.context(_STYLE)


@contextlib.contextmanager
def styled_figure(width: float, height: float, **other: Any) -> Iterator[Any]:
  """A figure without axes, in the style of all figures.

  The style holds inside the `with` block: draw and save the figure there.

  Args:
    width: in inches.
    height: in inches.
    **other: matplotlib's rc parameters that replace those of the style.

  Yields:
    The matplotlib figure.

  Raises:
    ImportError: if matplotlib is missing.
  """
  check_installed()
  from matplotlib import style

  with style.context([_STYLE, other]):
    yield _picture_class()(figsize=(width, height), layout="constrained")


def check_installed() -> None:
  """Checks that matplotlib is there.

  Raises:
    ImportError: if it is missing; the message says what to install.
  """
  errors.check_installed("matplotlib", "pictures need matplotlib", "run")


def are_numbers(values: Iterable[Any]) -> bool:
  """Whether all values can be on an axis of numbers."""
  largest = sys.float_info.max
  return all(is_real(value) and abs(value) <= largest for value in values)


def tick_label(value: float, _: Any = None) -> str:
  """A number at an axis: 0.1, 1,500, 3e-5."""
  return f"{value:,g}" if 1e3 <= value < 1e6 else format_number(value)


@fields.checked(limits=fields.array("[2]", interval="(0, inf)"))
def log_scale(axis: Any, limits: tuple[float, float] | None = None) -> None:
  """Makes an axis logarithmic, with plain numbers: 0.1 instead of 10⁻¹.

  Args:
    axis: `axes.xaxis` or `axes.yaxis` of matplotlib.
    limits: lowest and highest value of the axis, if they are known. Then
      numbers between the powers of ten are labelled too, as many as have room,
      if there are few powers. The limits only choose the labels: set the axis
      limits with matplotlib.

  Raises:
    ValueError: if the limits are not positive, or not the lowest first.
    TypeError: if they are no pair of numbers.
  """
  from matplotlib.axis import Axis

  check_instance("axis", axis, [Axis])
  decades = np.inf
  if limits is not None:
    low, high = limits
    if low >= high:
      raise ValueError(f"limits={limits}: must have the lowest first")
    decades = np.log10(high / low)
  from matplotlib.ticker import LogFormatter, LogLocator, NullFormatter

  class Plain(LogFormatter):
    """The formatter with plain numbers where `LogFormatter` has labels."""

    def __call__(self, x, pos=None):
      return tick_label(x) if super().__call__(x, pos) else ""

  class Places(LogLocator):
    """The locator with as many places as their labels have room."""

    def tick_values(self, vmin, vmax):
      room = axis.get_tick_space() / abs(np.log10(vmax / vmin))  # A decade.
      for multiples in _MULTIPLES:
        gap = np.diff(np.log10([*multiples, 10])).min()
        if room * gap >= _LEAST_ROOM[axis.axis_name]:
          break
      self.set_params(subs=multiples)
      return super().tick_values(vmin, vmax)

  axis.axes.set(**{f"{axis.axis_name}scale": "log"})
  if decades < 2.4:
    axis.set_major_locator(Places())
    axis.set_major_formatter(tick_label)
    axis.set_minor_formatter(NullFormatter())
  else:
    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(minor_thresholds=(1, 0.4)))
