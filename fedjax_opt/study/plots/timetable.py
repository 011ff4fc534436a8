"""Pictures of a timetable: who is away when, and how often groups take part."""

from typing import Any

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.schedules.timetable import Timetable
from fedjax_opt.schedules.usage import usage
from fedjax_opt.study.plots import frame
from fedjax_opt.study.plots.lines import GREY

# The most clients that have a line, and the most server steps shown.
_CLIENTS, _STEPS = 30, 12
_USED, _UNUSED = frame.COLORS[0], "#BDBDBD"


@fields.checked(groups=fields.array("[M]", of_integers=True))
def timetable(
  table: Timetable,
  groups: np.ndarray,
  path: frame.Path,
  *,
  title: str | None = None,
) -> Any:
  """Draws the first minutes of a timetable, and who takes part.

  On the left a line for each of the first 30 clients that are sent out, with a
  bar for each time that it is away: blue if a server step uses its update, grey
  if not. Thin lines are server steps. On the right, of each group of clients,
  its share of the clients, of the updates that are used, and of the seconds
  away.

  Args:
    table: the timetable of any schedule.
    groups: [M], the group of each client, from 0 and below M; such as
      `speed_groups`.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    title: text above the panels.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError: if a client of the timetable has no group, there are more groups
      than clients, or the ending of a file is another.
    ImportError: if matplotlib is missing.
  """
  groups = np.asarray(groups)
  wrong = groups[(groups < 0) | (groups >= len(groups))]
  if wrong.size:
    raise ValueError(f"groups: has {wrong[0]}; must be in [0, {len(groups)})")
  with frame.styled_figure(6.8, 3.4) as figure:
    left, right = figure.subplots(1, 2, width_ratios=(2.2, 1))
    _draw_clients(left, table)
    _draw_groups(right, table, groups)
    if title:
      figure.suptitle(title)
    return frame.finish(figure, path)


def _draw_clients(axes: Any, table: Timetable) -> None:
  """A line for each of the first clients."""
  events = table.events()
  end = table.time[min(_STEPS, len(table.time)) - 1]
  order = np.lexsort([events.clients, events.starts])
  names = list(dict.fromkeys(events.clients[order].tolist()))[:_CLIENTS]
  for is_used, color in ((False, _UNUSED), (True, _USED)):
    for row, client in enumerate(names):
      mask = (events.clients == client) & (events.taken == is_used)
      mask &= events.starts < end
      starts, ends = events.starts[mask], np.minimum(events.ends[mask], end)
      bars = list(zip(starts, ends - starts, strict=True))
      axes.broken_barh(bars, (row - 0.35, 0.7), color=color, linewidth=0)
  for time in table.time[:_STEPS]:
    axes.axvline(time, color=GREY, linewidth=0.5)
  axes.grid(visible=False)
  axes.set(
    xlim=(0, end),
    ylim=(len(names) - 0.5, -0.5),
    yticks=[],
    xlabel="Simulated time (s)",
    ylabel=f"First {len(names)} clients",
  )


def _draw_groups(axes: Any, table: Timetable, groups: np.ndarray) -> None:
  """Shares of each group: of clients, of updates, of seconds."""
  client_usage, events = usage(table, len(groups)), table.events()
  num_groups = int(groups.max()) + 1
  seconds = events.ends - events.starts
  shares = {
    "clients": np.bincount(groups, minlength=num_groups),
    "updates used": np.bincount(groups, client_usage.updates, num_groups),
    "seconds away": np.bincount(groups[events.clients], seconds, num_groups),
  }
  places, width = np.arange(num_groups), 0.8 / len(shares)
  colors = (GREY, _USED, frame.COLORS[4])
  for i, ((label, values), color) in enumerate(
    zip(shares.items(), colors, strict=True)
  ):
    heights = 100 * values / max(values.sum(), 1e-300)
    x = places + (i - 1) * width
    axes.bar(x, heights, width, label=label, color=color)
  names = [str(group + 1) for group in places]
  if num_groups > 1:
    names[0], names[-1] = "fastest", "slowest"
  axes.set(xlabel="Clients by speed", ylabel="Share (%)")
  axes.set_xticks(places, names)
  axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
