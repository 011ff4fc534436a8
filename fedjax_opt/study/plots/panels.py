"""Panels and legends of figures.

Every picture of a study takes `method -> data`, for one panel, or
`condition -> method -> data`, for one panel each.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from fedjax_opt.checks.values import check_instance
from fedjax_opt.results.names import capitalized, shown_name
from fedjax_opt.study.plots.frame import Path, finish, in_style, styled_figure
from fedjax_opt.study.plots.lines import DIVERGED, Styles, method_styles
from fedjax_opt.study.plots.metric_axis import Panels

# The width of a page's text in inches: wider figures would be shrunk.
PAGE_WIDTH = 6.8
# The width of a phone, and the most panels that stand below one another there.
PHONE_WIDTH = 3.6
_MOST_STACKED = 6
# The height of one of these panels, with its titles; of one whose axes have the
# same scale; and of a small one. Small ones stand in so many columns, if there
# are more panels than that.
_PANEL_HEIGHT, _SQUARE_HEIGHT, _SMALL_HEIGHT = 1.95, 3.4, 1.25
_MOST_COLUMNS = 3
# Rows of small panels that a phone shows at once.
_MOST_ROWS = 4
_CHARACTERS_PER_INCH = 16.5
# A legend with more entries than this needs the whole width.
_MANY_LABELS = 12


class PictureOptions(TypedDict, total=False):
  """The options that all pictures of a study take.

  Attributes:
    title: text above the panels.
    interval: what bands or error bars are, above the legend, such as 'mean and
      95 % interval over 5 seeds'.
    styles: what `method_styles` returned, if the study has more methods.
  """

  title: str | None
  interval: str | None
  styles: Styles | None


def by_condition(
  name: str, values: Any, check: Callable[[str, Any], Any] | None = None
) -> dict[str, dict[str, Any]]:
  """One entry for each condition, also if there is only one condition.

  Args:
    name: name of the argument, for messages.
    values: condition -> method -> anything, or method -> anything.
    check: `(name, anything)`, returns what is drawn of it; None to draw it as
      it is.

  Returns:
    condition -> method -> anything; the only condition is "".

  Raises:
    TypeError: if it is no mapping.
    ValueError: if it is empty.
  """
  check_instance(name, values, [Mapping])
  is_nested = any(isinstance(value, Mapping) for value in values.values())
  panels: dict[str, dict[str, Any]] = {}
  for condition, by_method in (values if is_nested else {"": values}).items():
    where = f"{name}[{condition!r}]" if is_nested else name
    check_instance(where, by_method, [Mapping])
    if not by_method:
      raise ValueError(f"{where}: is empty; must have at least one method")
    panels[str(condition)] = {
      method: check(f"{name}[{method!r}]", data) if check else data
      for method, data in by_method.items()
    }
  return panels


def num_columns(
  labels: Sequence[str], width: float, has_long_lines: bool = False
) -> int:
  """The number of legend columns that fit into `width` inches."""
  of_line = 11 if has_long_lines else 8  # In characters, with the space.
  characters = _CHARACTERS_PER_INCH * width
  for columns in range(min(len(labels), 6), 1, -1):
    # matplotlib fills a legend column by column, the longer columns first.
    filled = np.array_split(np.asarray(labels), columns)
    if sum(max(map(len, column)) + of_line for column in filled) <= characters:
      # Columns are no longer than needed, such as 4 and 3 entries, and as few
      # as that length allows.
      return -(-len(labels) // -(-len(labels) // columns))
  return 1


def add_legend(
  figure: Any,
  entries: Mapping[str, Any],
  width: float,
  title: str | None = None,
  place: str = "lower",
) -> None:
  """Adds a legend below or above the panels.

  Args:
    figure: a matplotlib figure.
    entries: label -> line or patch that shows it.
    width: the figure's width, in inches.
    title: the legend's title.
    place: "lower" or "upper".
  """
  # A short line would show no gap between its dashes, beside its marker.
  has_dashes = any(e.get_linestyle() in ("--", ":") for e in entries.values())
  figure.legend(
    list(entries.values()),
    list(entries),
    title=title,
    loc=f"outside {place} center",
    ncols=num_columns(list(entries), width, has_dashes),
    columnspacing=1.4,
    handlelength=3 if has_dashes else 1.8,
  )


def stack(figure: Any) -> bool:
  """Puts the panels of a figure below one another, for phones.

  The legend stands above panels that no screen shows at once.
  A panel without a title, or a name of an axis, gets that of its column or row.
  Many panels get smaller instead. Figures that are narrow already stay as they
  are; so do those of many columns, and those with colour bars.

  Args:
    figure: a figure in the style of all figures; it is changed.

  Returns:
    Whether it was changed.
  """
  width, height = figure.get_size_inches()
  places = {axes: axes.get_subplotspec() for axes in figure.axes}
  if width <= PHONE_WIDTH or not places or None in places.values():
    return False
  rows, columns = next(iter(places.values())).get_geometry()[:2]
  is_small = len(places) > _MOST_STACKED
  if is_small and columns > _MOST_COLUMNS:
    return False
  with in_style():
    if is_small:
      height = _shrink(places, rows)
    elif any(not place.is_first_col() for place in places.values()):
      _name_axes(places)
      for axes, row in zip(
        places, figure.add_gridspec(len(places), 1), strict=True
      ):
        axes.set_subplotspec(row)
      tall = [axes.get_aspect() != "auto" for axes in places]
      height = sum(_SQUARE_HEIGHT if x else _PANEL_HEIGHT for x in tall)
    legends, figure.legends = figure.legends, []
    # Above, it would cover the title of a figure that has one.
    is_tall = rows > _MOST_ROWS if is_small else len(places) > 1
    has_room = is_tall and not figure.get_suptitle()
    place = "upper" if has_room else "lower"
    for legend in legends:
      names = [text.get_text() for text in legend.get_texts()]
      entries = dict(zip(names, legend.legend_handles, strict=True))
      title = legend.get_title().get_text()
      add_legend(figure, entries, PHONE_WIDTH, title or None, place)
      lines = -(-len(names) // num_columns(names, PHONE_WIDTH))
      height += 0.15 + 0.16 * (lines + bool(title))
  figure.set_size_inches(PHONE_WIDTH, height)
  figure.set_layout_engine("constrained", hspace=0.05)
  return True


def save(figure: Any, file: pathlib.Path) -> None:
  """Writes a figure; one that `stack` changes also as NAME_phone.png.

  Args:
    figure: a figure in the style of all figures.
    file: NAME.png.
  """
  finish(figure, file)
  if stack(figure):
    finish(figure, file.with_stem(f"{file.stem}_phone"))


def _shrink(places: Mapping[Any, Any], rows: int) -> float:
  """Leaves out what small panels have no room for; returns their height."""
  first = next(iter(places))
  names = {axes.get_xlabel() for axes in places} - {""}
  middle = max(place.colspan.start for place in places.values()) // 2
  for axes, place in places.items():
    if len(names) == 1 and place.colspan.start != middle:
      axes.set_xlabel("")
    if axes.get_xscale() == "linear":
      axes.locator_params(axis="x", nbins=3)
    if axes.get_ylim() == first.get_ylim():
      axes.tick_params(labelleft=place.is_first_col())
  return _SMALL_HEIGHT * rows


def _name_axes(places: Mapping[Any, Any]) -> None:
  """Gives panels the title of their column, and the names of both axes."""
  rows = {axes: place.rowspan.start for axes, place in places.items()}
  columns = {axes: place.colspan.start for axes, place in places.items()}
  for axes in places:
    column = [other for other in places if columns[other] == columns[axes]]
    row = [other for other in places if rows[other] == rows[axes]]
    top, bottom = min(column, key=rows.get), max(column, key=rows.get)
    first = min(row, key=columns.get)
    axes.set_title(axes.get_title() or top.get_title())
    axes.set_xlabel(axes.get_xlabel() or bottom.get_xlabel())
    axes.set_ylabel(axes.get_ylabel() or first.get_ylabel())
    axes.tick_params(labelleft=True, labelbottom=True)


def draw_panels(
  panels: Sequence[str],
  path: Path,
  draw_panel: Callable[[Any, str], Mapping[str, Any]],
  labels: Sequence[str],
  *,
  width: float = 3.3,
  title: str | None = None,
  legend_title: str | None = None,
  share_y: bool = False,
) -> Any:
  """Draws panels, at most three in a row, with one legend below.

  Args:
    panels: what each panel shows; at least one.
    path: as the pictures take it.
    draw_panel: `axes, panel -> {label: entry of the legend}`.
    labels: the legend's labels in order; entries with other labels follow.
    width: a panel's width in inches, if the page has room.
    title: text above the panels.
    legend_title: text above the legend.
    share_y: whether the panels have one y axis.

  Returns:
    The figure if `path` is None, else None.
  """
  columns = 2 if len(panels) in (2, 4) else min(len(panels), 3)
  rows = -(-len(panels) // columns)
  width = min(columns * width, PAGE_WIDTH)
  if len(labels) > _MANY_LABELS:
    width = PAGE_WIDTH
  lines = -(-len(labels) // num_columns(labels, width)) + bool(legend_title)
  height = rows * 2.3 * (1 if rows == 1 else 0.9)
  height += 0.15 + 0.2 * bool(title) + 0.16 * lines
  with styled_figure(width, height) as figure:
    all_axes = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
    figure.get_layout_engine().set(hspace=0.05)
    for unused in all_axes.flat[len(panels) :]:
      unused.remove()
    if title:
      figure.suptitle(title, fontsize=9)
    entries: dict[str, Any] = {}
    for axes, panel in zip(all_axes.flat, panels, strict=False):
      entries |= draw_panel(axes, panel)
    entries = {n: entries[n] for n in labels if n in entries} | entries
    if entries or legend_title:
      legend = {shown_name(label): entry for label, entry in entries.items()}
      add_legend(figure, legend, width, legend_title)
    return finish(figure, path)


def draw_conditions(
  panels: Panels,
  path: Path,
  draw_panel: Callable[[Any, str, Styles], Mapping[str, Any]],
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
    draw_panel: `axes, condition, styles -> {label: entry of the legend}`, which
      draws one panel.
    x_label: name of the x axes.
    y_label: name of the y axis.
    title: see `PictureOptions`.
    interval: see `PictureOptions`.
    styles: see `PictureOptions`; by default those of these methods.
  """
  names = list(dict.fromkeys(m for panel in panels.values() for m in panel))
  styles = styles or method_styles(names)
  order = {name: i for i, name in enumerate(styles)}
  missing = [name for name in names if name not in styles]
  if missing:
    raise ValueError(
      f"styles: has no {missing[0]!r}; must have every method, as "
      "method_styles(all methods) has"
    )

  def draw_one(axes, condition):
    entries = draw_panel(axes, condition, styles)
    axes.set(title=shown_name(condition), xlabel=x_label)
    if axes.get_subplotspec().is_first_col():
      axes.set_ylabel(y_label)
    return entries

  return draw_panels(
    list(panels),
    path,
    draw_one,
    [*sorted(names, key=order.__getitem__), DIVERGED],
    title=title,
    legend_title=capitalized(interval) if interval else None,
    share_y=True,
  )
