"""Panels and legends of figures.

Every picture of a study takes `method -> data`, for one panel, or
`condition -> method -> data`, for one panel each.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from fedjax_opt.results.names import sentence, shown_name
from fedjax_opt.study.plots.frame import Path, finish, paths_of, styled_figure
from fedjax_opt.study.plots.lines import (
  DIVERGED,
  Panels,
  Styles,
  method_styles,
)

# The width of a page's text in inches, at which figures are not shrunk.
PAGE_WIDTH = 6.8


_CHARACTERS_PER_INCH = 16.5


class Look(TypedDict, total=False):
  """What all pictures of a study take.

  Attributes:
    title: text above the panels.
    interval: what bands or error bars are, above the legend, such as 'mean and
      95 % interval over 5 seeds'.
    styles: looks of `method_styles`, if the study has more methods.
  """

  title: str | None
  interval: str | None
  styles: Styles | None


def by_condition(
  name: str, values: Any, checked: Callable[[str, Any], Any] | None = None
) -> dict[str, dict[str, Any]]:
  """One entry for each condition, also where there is but one.

  Args:
    name: name of the argument, for messages.
    values: condition -> method -> anything, or method -> anything.
    checked: `(name, anything)`, gives what is drawn of it; itself if None.

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
    where = f"{name}[{condition!r}]" if nested else name
    if not isinstance(of_method, Mapping):
      raise TypeError(
        f"{where}: is {type(of_method).__name__}; must be a mapping from "
        "methods, as the others are"
      )
    if not of_method:
      raise ValueError(f"{where}: is empty; must have at least one method")
  checked = checked or (lambda _, data: data)
  return {
    str(condition): {
      method: checked(f"{name}[{method!r}]", data)
      for method, data in of_method.items()
    }
    for condition, of_method in conditions.items()
  }


def num_columns(labels: Sequence[str], width: float) -> int:
  """The number of legend columns that fit into `width` inches."""
  characters = _CHARACTERS_PER_INCH * width
  for columns in range(min(len(labels), 6), 1, -1):
    # As matplotlib fills a legend: column by column, the longer ones first.
    filled = np.array_split(np.asarray(labels), columns)
    if sum(max(map(len, column)) + 8 for column in filled) <= characters:
      # No longer columns than needed: 4 and 3 instead of 2 and five times 1.
      return -(-len(labels) // -(-len(labels) // columns))
  return 1


def add_below(
  figure: Any,
  entries: dict[str, Any],
  width: float,
  title: str | None = None,
) -> None:
  """Adds a legend below the panels.

  Args:
    figure: a matplotlib figure.
    entries: label -> line or patch that shows it.
    width: of the figure, in inches.
    title: of the legend.
  """
  figure.legend(
    list(entries.values()),
    list(entries),
    title=title,
    loc="outside lower center",
    ncols=num_columns(list(entries), width),
    columnspacing=1.4,
    handlelength=1.8,
  )


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
  """A figure of panels, at most three in a row, with room for a legend below.

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
  columns = 2 if num_panels in (2, 4) else min(num_panels, 3)
  rows = -(-num_panels // columns)
  width = min(columns * panel[0], PAGE_WIDTH)
  lines = -(-len(labels) // num_columns(labels, width)) + bool(legend_title)
  height = rows * panel[1] * (1 if rows == 1 else 0.9)
  height += 0.15 + 0.2 * bool(title) + 0.16 * lines
  with styled_figure(width, height) as new:
    all_axes = new.subplots(rows, columns, squeeze=False, sharey=share_y)
    new.get_layout_engine().set(hspace=0.05)
    for unused in all_axes.flat[num_panels:]:
      unused.remove()
    if title:
      new.suptitle(title, fontsize=9)
    yield new, list(all_axes.flat[:num_panels]), width


def draw_panels(
  panels: Panels,
  path: Path,
  draw: Callable[[Any, Mapping[str, Any], Styles], dict[str, Any]],
  x_label: str,
  y_label: str,
  *,
  title: str | None = None,
  interval: str | None = None,
  styles: Styles | None = None,
) -> Any:
  """Draws one panel for each condition, with one y axis and one legend.

  Args:
    panels: condition -> method -> data.
    path: as the pictures take it.
    draw: `axes, method -> data, styles -> {label: entry of the legend}`, which
      draws one panel.
    x_label: name of the x axes.
    y_label: name of the y axis.
    title: see `Look`.
    interval: see `Look`.
    styles: see `Look`; by default those of these methods.
  """
  paths_of(path)
  names = list(dict.fromkeys(m for each in panels.values() for m in each))
  styles = styles or method_styles(names)
  missing = [name for name in names if name not in styles]
  if missing:
    raise ValueError(
      f"styles: has no {missing[0]!r}; must have every method, as "
      "method_styles(all methods) has"
    )
  legend_title = sentence(interval) if interval else None
  with panel_figure(
    len(panels),
    (3.3, 2.3),
    [*names, DIVERGED],
    title=title,
    legend_title=legend_title,
    share_y=True,
  ) as (new, all_axes, width):
    found: dict[str, Any] = {}
    for axes, condition in zip(all_axes, panels, strict=True):
      found |= draw(axes, panels[condition], styles)
      axes.set(title=shown_name(condition), xlabel=x_label)
      if axes.get_subplotspec().is_first_col():
        axes.set_ylabel(y_label)
    # Methods in the order of the study, then what else is to be said.
    entries = {shown_name(n): found[n] for n in names if n in found}
    entries |= {n: entry for n, entry in found.items() if n not in names}
    add_below(new, entries, width, legend_title)
    return finish(new, path)
