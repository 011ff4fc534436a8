"""Panels of a figure: how many fit on a page, bands, and crosses."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.results.plots import legends
from fedjax_opt.results.plots.frame import styled_figure

# The width of a page's text in inches, at which figures are not shrunk.
PAGE_WIDTH = 6.8
# Positive values that are so many times apart have a log axis.
_SPREAD = 10


def grid_shape(num_panels: int) -> tuple[int, int]:
  """Rows and columns for so many panels: at most three in a row."""
  columns = 2 if num_panels in (2, 4) else min(num_panels, 3)
  return -(-num_panels // columns), columns


@contextlib.contextmanager
def panel_figure(
  num_panels: int,
  panel: tuple[float, float],
  labels: Sequence[str],
  *,
  title: str | None,
  legend_title: str | None,
  share_y: bool = False,
) -> Iterator[tuple[Any, list[Any], float]]:
  """A figure of panels with room for a legend below them.

  Args:
    num_panels: at least 1.
    panel: width and height of a panel in inches, if the page has room.
    labels: of the legend.
    title: text above the panels.
    legend_title: text above the legend.
    share_y: whether the panels have one y axis.

  Yields:
    The figure, the axes of its panels, and its width in inches.
  """
  rows, columns = grid_shape(num_panels)
  width = min(columns * panel[0], PAGE_WIDTH)
  height = rows * (panel[1] if rows == 1 else 0.9 * panel[1])
  height += 0.15 + 0.2 * bool(title)
  height += 0.16 * legends.num_rows(labels, width, legend_title)
  with styled_figure(width, height) as new:
    all_axes = new.subplots(rows, columns, squeeze=False, sharey=share_y)
    new.get_layout_engine().set(hspace=0.05)
    first, *rest = np.split(all_axes.ravel(), [num_panels])
    for unused in np.concatenate(rest):
      unused.remove()
    if title:
      new.suptitle(title, fontsize=9)
    yield new, list(first), width


def draw_band(
  axes: Any, x: np.ndarray, low: np.ndarray, high: np.ndarray, color: str
) -> None:
  """Draws the band of a line, [E] each, behind all lines."""
  axes.fill_between(
    x, low, high, color=color, alpha=0.18, linewidth=0, zorder=2.5
  )


def mark_divergence(
  axes: Any, x: np.ndarray, mean: np.ndarray, color: str
) -> None:
  """Draws a cross at a line's last finite value."""
  finite = np.flatnonzero(np.isfinite(mean))
  if not finite.size:
    return
  last = finite[-1]
  axes.plot(
    x[last],
    np.clip(mean[last], *sorted(axes.get_ylim())),
    marker="x",
    markersize=5.5,
    markeredgewidth=1.5,
    color=color,
    clip_on=False,
    zorder=4,
  )


def by_condition(name: str, values: Any) -> dict[str, dict[str, Any]]:
  """One entry for each condition, also where there is but one.

  Args:
    name: name of the argument, for messages.
    values: condition -> method -> anything, or method -> anything.

  Returns:
    condition -> method -> anything; the only condition is "".

  Raises:
    TypeError: if it is no mapping.
    ValueError: if it is empty.
  """
  if not isinstance(values, Mapping):
    raise TypeError(
      f"{name}: is {type(values).__name__}; must be a mapping from labels"
    )
  nested = any(isinstance(each, Mapping) for each in values.values())
  conditions = values if nested else {"": values}
  for condition, of_method in conditions.items():
    if not isinstance(of_method, Mapping):
      raise TypeError(
        f"{name}[{condition!r}]: is {type(of_method).__name__}; must be a "
        "mapping from methods, as the others are"
      )
    if not of_method:
      where = f"{name}[{condition!r}]" if nested else name
      raise ValueError(f"{where}: is empty; must have at least one method")
  return {str(c): dict(of_method) for c, of_method in conditions.items()}


def is_log_axis(name: str, values: np.ndarray, wanted: bool | None) -> bool:
  """Whether the axis of these values is logarithmic.

  Args:
    name: of the values, for messages.
    values: of any number.
    wanted: what was asked for; None for an axis that is logarithmic if positive
      values are a factor of at least 10 apart.

  Raises:
    ValueError: if it was asked for and a value is not positive.
  """
  low, high = float(values.min()), float(values.max())
  if wanted and low <= 0:
    raise ValueError(f"log_x=True: {name} has {low:g}; must be positive")
  return low > 0 and high >= _SPREAD * low if wanted is None else wanted
