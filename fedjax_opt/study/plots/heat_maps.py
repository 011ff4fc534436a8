"""Heat maps: a metric over two hyperparameters."""

import functools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.values import check_instance, checked_array
from fedjax_opt.results import names
from fedjax_opt.results.metric_names import direction, is_accuracy
from fedjax_opt.study.plots.frame import (
  COLORS,
  Path,
  finish,
  styled_figure,
  tick_label,
)
from fedjax_opt.study.plots.panels import PAGE_WIDTH, by_condition

# Width and height of a cell in inches, if the page is wide enough.
_CELL = (0.46, 0.3)
_FONT_SIZE = 7
# Width of a character and height of a line in inches, of labels and titles.
_CHARACTER, _LINE = 0.07, 0.13
# The look of a cell that diverged.
_LOST = {
  "facecolor": "white",
  "edgecolor": "#8A8A8A",
  "hatch": "////",
  "linewidth": 0,
}


@fields.checked()
class Grid(NamedTuple):
  """A metric over two hyperparameters.

  Attributes:
    values: the metric, NaN where the point diverged. [rows, columns].
    rows: name and values of the hyperparameter that varies down a column.
    columns: name and values of the one that varies along a row.
    chosen: row and column of the chosen cell; None for no choice.
  """

  values: np.ndarray
  rows: tuple[str, Sequence[Any]]
  columns: tuple[str, Sequence[Any]]
  chosen: tuple[int, int] | None = None


@fields.checked()
def heat_map(
  values: np.ndarray,
  rows: tuple[str, Sequence[Any]],
  columns: tuple[str, Sequence[Any]],
  path: Path,
  *,
  label: str,
  chosen: tuple[int, int] | None = None,
) -> Any:
  """Draws a metric over two hyperparameters, with the numbers in the cells.

  Args:
    values: the metric, NaN where the point diverged, which is hatched.
      [rows, columns].
    rows: name and values of the hyperparameter that varies down a column.
    columns: name and values of the one that varies along a row.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    label: name of the metric, beside the colour bar.
    chosen: row and column of the cell to outline.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError: if the shape of `values` does not fit the hyperparameters, or
      `chosen` is not in it, or the ending of a file is another.
    ImportError: if matplotlib is missing.
  """
  grid = _in_units(1.0, "values", Grid(values, rows, columns, chosen))
  return _draw({"": {"": grid}}, path, label, ".3g", "max")


@fields.checked()
def heat_maps(grids: Mapping[str, Any], path: Path, *, metric: str) -> Any:
  """Draws the grids of several methods, with one scale of colours.

  Better values are lighter. Diverged cells are hatched, and the chosen cell is
  outlined.

  Args:
    grids: method -> `Grid`, one panel for each; or condition -> method ->
      `Grid`, one row of panels for each condition.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    metric: its identifier, such as 'validation_accuracy'; percents have one
      decimal, others two digits.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError: if there is no grid, or as `heat_map`.
    ImportError: if matplotlib is missing.
  """
  factor = 100.0 if is_accuracy(metric) else 1.0
  scaled = by_condition("grids", grids, functools.partial(_in_units, factor))
  precision = ".1f" if factor == 100 else None
  way = direction(metric) or "max"
  return _draw(scaled, path, names.metric_name(metric), precision, way)


def _in_units(factor: float, name: str, grid: Grid) -> Grid:
  """A grid whose values are multiplied by a factor, NaN where they diverged."""
  check_instance(name, grid, [Grid])
  shape = (max(len(grid.rows[1]), 1), max(len(grid.columns[1]), 1))
  values = checked_array(name, grid.values, str(list(shape)))
  if grid.chosen is not None and not all(
    0 <= i < size for i, size in zip(grid.chosen, shape, strict=True)
  ):
    raise ValueError(
      f"chosen={grid.chosen}: must be a row and a column of shape {shape}"
    )
  values = np.where(np.isfinite(values), factor * values, np.nan)
  return grid._replace(values=values)


def _draw(
  grids: Mapping[str, Mapping[str, Grid]],
  path: Path,
  label: str,
  precision: str | None,
  direction: str,
) -> Any:
  """Draws one row of panels for each condition."""
  num_columns = max(map(len, grids.values()))
  all_grids = [grid for row in grids.values() for grid in row.values()]
  norm, extend = _color_scale([grid.values for grid in all_grids], direction)
  cells = np.max([grid.values.shape for grid in all_grids], axis=0)
  width = 0.9 + num_columns * (0.55 + max(2, cells[1]) * _CELL[0])
  width = max(min(width, max(PAGE_WIDTH, 1.1 * num_columns)), 2.4)
  of_panel = width / num_columns
  titles = [
    [_title((method, condition), of_panel) for method in row]
    for condition, row in grids.items()
  ]
  height = max(0.4 + len(grids) * (0.5 + cells[0] * _CELL[1]), 2.0)
  height += _LINE * sum(max(t.count("\n") for t in row) for row in titles)
  with styled_figure(width, height, **{"axes.grid": False}) as figure:
    all_axes = figure.subplots(len(grids), num_columns, squeeze=False)
    for row_axes, row, texts in zip(
      all_axes, grids.values(), titles, strict=True
    ):
      for axes, grid, title in zip(row_axes, row.values(), texts, strict=False):
        image = _draw_panel(axes, grid, norm, direction, precision)
        axes.set_title(title)
        _name_axes(axes, grid, of_panel / cells[1])
      for unused in row_axes[len(row) :]:
        unused.remove()
    if len({repr(grid[1:3]) for grid in all_grids}) == 1:
      _keep_outer_names(all_axes, list(map(len, grids.values())))
    look = {"label": label, "extend": extend, "aspect": 25, "pad": 0.02}
    bar = figure.colorbar(image, ax=figure.axes, **look)
    bar.ax.yaxis.set_major_formatter(tick_label)
    bar.ax.yaxis.set_minor_formatter("")
    _add_key(figure, all_grids)
    return finish(figure, path)


def _title(labels: Sequence[str], width: float) -> str:
  """The title of a panel, broken into lines of `width` inches."""
  text = ", ".join(names.shown_name(label) for label in labels if label)
  return textwrap.fill(text, max(int(width / _CHARACTER), 8))


def _name_axes(axes: Any, grid: Grid, cell_width: float) -> None:
  """Labels the axes with hyperparameters and values; rotates long values."""
  labels = [names.value_of(value) for value in grid.columns[1]]
  is_narrow = max(map(len, labels)) * _CHARACTER > 0.8 * cell_width
  axes.set_xticks(range(len(labels)), labels, rotation=90 if is_narrow else 0)
  axes.set_yticks(range(len(grid.rows[1])), map(names.value_of, grid.rows[1]))
  axes.tick_params(length=0)
  axes.set_xlabel(names.capitalized(names.name_of(grid.columns[0])))
  axes.set_ylabel(names.capitalized(names.name_of(grid.rows[0])))


def _keep_outer_names(all_axes: np.ndarray, sizes: Sequence[int]) -> None:
  """Removes axis labels that a neighbouring panel has already.

  Args:
    all_axes: [rows, columns].
    sizes: the number of panels of each row.
  """
  for (i, j), axes in np.ndenumerate(all_axes):
    if any(size > j for size in sizes[i + 1 :]):
      axes.set_xlabel("")
      axes.tick_params(labelbottom=False)
    if j:
      axes.set_ylabel("")
      axes.tick_params(labelleft=False)


def _color_scale(
  values: Sequence[np.ndarray], direction: str
) -> tuple[Any, str]:
  """One scale of colours for all grids, and the end at which it is cut.

  Values far worse than most do not stretch the scale. It is logarithmic if the
  values are positive and span more than two decades.
  """
  from matplotlib.colors import LogNorm, Normalize

  finite = np.concatenate([v[np.isfinite(v)] for v in values])
  if not finite.size:
    return Normalize(0, 1), "neither"
  low, high = finite.min(), finite.max()
  if direction == "min" and low > 0 and high > 100 * low:
    return LogNorm(low, high), "neither"
  far = 4 * (np.median(finite) - (high if direction == "max" else low))
  if direction == "max" and low < high + far < high:
    return Normalize(high + far, high), "min"
  if direction == "min" and low < low + far < high:
    return Normalize(low, low + far), "max"
  return Normalize(low, high), "neither"


def _draw_panel(
  axes: Any, grid: Grid, norm: Any, direction: str, precision: str | None
) -> Any:
  """Draws one grid; returns its image."""
  import matplotlib

  colors = matplotlib.colormaps[
    "viridis" if direction == "max" else "viridis_r"
  ]
  image = axes.imshow(grid.values, cmap=colors, norm=norm, aspect="auto")
  axes.spines[:].set_visible(False)
  for (row, column), value in np.ndenumerate(grid.values):
    if np.isnan(value):
      _outline(axes, row, column, **_LOST)
      continue
    red, green, blue, _ = colors(norm(value))
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
    text = f"{value:{precision or '.2g'}}"
    text = text if precision else names.format_number(float(text))
    look = {"ha": "center", "va": "center", "fontsize": _FONT_SIZE}
    color = "black" if is_light else "white"
    axes.text(column, row, text, color=color, **look)
  if grid.chosen is not None:
    look = {"fill": False, "edgecolor": COLORS[1], "linewidth": 2.2}
    _outline(axes, *grid.chosen, clip_on=False, zorder=5, **look)
  return image


def _outline(axes: Any, row: int, column: int, **look: Any) -> None:
  """Draws a rectangle around a cell."""
  from matplotlib.patches import Rectangle

  axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **look))


def _add_key(figure: Any, grids: Sequence[Grid]) -> None:
  """Adds a legend for outlined and hatched cells, if there are any."""
  from matplotlib.patches import Patch

  entries = {}
  if any(grid.chosen is not None for grid in grids):
    entries["chosen"] = Patch(fill=False, edgecolor=COLORS[1], linewidth=1.8)
  if any(np.isnan(grid.values).any() for grid in grids):
    entries["diverged"] = Patch(**_LOST)
  if entries:
    look = {"loc": "outside lower center", "ncols": 2}
    figure.legend(list(entries.values()), list(entries), **look)
