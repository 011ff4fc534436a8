"""The step sizes of Δ-SGD, over clients, local steps and rounds."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.values import checked_array
from fedjax_opt.study.plots import frame, panels

# Array of a trace -> the field of the rule that a run records as it.
FIELDS = {
  "step_size": "step_size",
  "smoothness": "smoothness_step",
  "growth": "growth_step",
}
# Array of a trace -> its label, colour, line width and line style. The step
# size equals one of the branches at every step; it is therefore drawn first and
# wide, and the branches are drawn thin on top of it.
_LINES = {
  "step_size": ("step size (minimum)", frame.COLORS[1], 3.0, "-"),
  "smoothness": ("smoothness branch", frame.COLORS[2], 1.1, "-"),
  "growth": ("growth branch", frame.COLORS[0], 1.1, "--"),
}
_FIRST = "first step"
_BRANCHES = {
  _FIRST: "#C9C9C9",
  "smoothness branch": "#59BF9F",
  "growth branch": "#6AA9D4",
}
# Up to this many local steps of one client are drawn one by one.
_MAX_DETAIL = 120
# From this many rounds on, the x axis counts rounds.
_MIN_ROUNDS = 20
# With more rounds than this, no line marks where each begins.
_MAX_MARKED = 60
_MAX_PLACES = 150
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@fields.checked(trace=fields.mapping_of(fields.ARRAY, "a dict of arrays"))
def step_sizes(
  trace: Mapping[str, np.ndarray],
  path: frame.Path,
  *,
  title: str | None = None,
) -> Any:
  """Draws Δ-SGD's step sizes, and which branch was the minimum.

  Few steps of one client are drawn one by one, with the two branches that the
  step size is the minimum of, as in Figure 7 of the Δ-SGD paper; a vertical
  line shows where a round, and with it the rule's state, begins anew. Of more,
  the median and the 25 to 75 % and 10 to 90 % quantiles over clients are drawn,
  for each local step, or, from 20 rounds on, over clients and steps for each
  round. The panel below has the share of steps in which each branch was the
  minimum; the first step of a round has the size eta_0, and no branch.

  Args:
    trace: `step_size`, `smoothness` and `growth` at every local step, NaN where
      a client had no step. Each [K] of one client in one round, [R, K] of one
      client a round, or [R, C, K]. The smoothness branch is infinite before the
      client has moved.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    title: such as the client's number.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError: if an array is missing, the shapes differ, or the ending of a
      file is another.
    ImportError: if matplotlib is missing.
  """
  arrays = _checked_arrays(trace)
  num_rounds, num_clients, num_steps = arrays["step_size"].shape
  is_detailed = num_clients == 1 and num_rounds * num_steps <= _MAX_DETAIL
  by_round = not is_detailed and num_rounds >= _MIN_ROUNDS
  with frame.styled_figure(4.6, 3.1) as figure:
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
    if not by_round and num_rounds <= _MAX_MARKED:
      for start in np.arange(1, num_rounds) * num_steps + 0.5:
        for panel in (axes, below):
          panel.axvline(start, color="#D0D0D0", linewidth=0.6, zorder=1)
    if is_detailed:
      entries = _draw_detail(axes, arrays)
    else:
      entries = _draw_quantiles(axes, arrays["step_size"], by_round)
    low, high = axes.dataLim.minposy, axes.dataLim.ymax
    if np.isfinite(low):  # Something is drawn.
      frame.log_scale(axes.yaxis, (low, high) if low < high else None)
    axes.grid(visible=False, axis="x")
    axes.set(ylabel="Step size", title=title or "")
    shares = _draw_shares(below, arrays, by_round)
    if is_detailed:  # The lines have the colours of the others already.
      shares = {label: shares[label] for label in shares if label == _FIRST}
    below.set_xlabel("Communication round" if by_round else "Local step")
    panels.add_legend(figure, entries | shares, 4.6)
    return frame.finish(figure, path)


def _checked_arrays(trace: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """The arrays to draw, each [R, C, K], in the order of drawing."""
  arrays = {}
  for name in _LINES:
    if name not in trace:
      raise ValueError(f"trace: has no {name!r}; it needs {list(_LINES)}")
    array = np.atleast_2d(np.asarray(trace[name], float))
    arrays[name] = array[:, None] if array.ndim < 3 else array
    axes = str(list(arrays["step_size"].shape))
    checked_array(f"trace[{name!r}]", arrays[name], axes)
  checked_array("trace['step_size']", arrays["step_size"], "[R, C, K]")
  return arrays


def _is_step(values: np.ndarray) -> np.ndarray:
  return np.isfinite(values) & (values > 0)


def _draw_detail(axes: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Draws every step of one client, and both branches."""
  entries = {}
  for name, values in arrays.items():
    label, color, width, style = _LINES[name]
    steps = np.flatnonzero(_is_step(values))
    look = {"color": color, "linewidth": width, "linestyle": style}
    look["alpha"] = 0.5 if name == "step_size" else 1.0
    if len(steps) <= 30:
      look |= {"marker": "o", "markersize": 2.5}
    heights = values.ravel()[steps]
    (entries[label],) = axes.plot(steps + 1, heights, label=label, **look)
  return entries


def _pooled(
  values: np.ndarray, by_round: bool
) -> tuple[np.ndarray, np.ndarray]:
  """The values that belong to one place of the x axis.

  Args:
    values: [R, C, K].
    by_round: whether a place is a round, not a local step of a round. If there
      are many rounds or steps, a place is several consecutive ones.

  Returns:
    The beginnings of the places on the x axis, and the end of the last one,
    [places + 1]; and the values of each place, padded with NaN, [places, n].
  """
  rows = values if by_round else values.transpose(0, 2, 1)
  rows = rows.reshape(-1, rows[0].size if by_round else rows.shape[-1])
  size = -(-len(rows) // _MAX_PLACES)
  starts = np.arange(0, len(rows), size)
  # Rounds and local steps are counted from 1.
  edges = np.append(starts, len(rows)) + 0.5
  padding = ((0, -len(rows) % size), (0, 0))
  pools = np.pad(rows, padding, constant_values=np.nan)
  return edges, pools.reshape(len(starts), -1)


def _draw_quantiles(
  axes: Any, values: np.ndarray, by_round: bool
) -> dict[str, Any]:
  """Draws the median step size in bands of quantiles."""
  values = np.where(_is_step(values), values, np.nan)
  edges, pools = _pooled(values, by_round)
  x = (edges[:-1] + edges[1:]) / 2
  with warnings.catch_warnings(action="ignore"):  # A place without a step.
    lowest, low, middle, high, highest = np.nanquantile(pools, _QUANTILES, 1)
  look = {"color": _LINES["step_size"][1], "linewidth": 0}
  wide = axes.fill_between(x, lowest, highest, alpha=0.18, **look)
  narrow = axes.fill_between(x, low, high, alpha=0.3, **look)
  (median,) = axes.plot(x, middle, **look | {"linewidth": 1.4})
  over = "clients and steps" if by_round else "clients"
  if values.shape[1] == 1:
    over = "steps"
  return {f"median over {over}": median, "25–75 %": narrow, "10–90 %": wide}


def _draw_shares(
  axes: Any, arrays: Mapping[str, np.ndarray], by_round: bool
) -> dict[str, Any]:
  """Draws the share of steps in which each branch was the minimum."""
  from matplotlib.patches import Patch

  edges, pools = _pooled(_kinds(arrays), by_round)
  counts = np.array([(pools == k).sum(axis=1) for k in range(len(_BRANCHES))])
  tops = 100 * counts.cumsum(axis=0) / np.maximum(counts.sum(axis=0), 1)
  bottoms = np.vstack([np.zeros(len(pools)), tops])
  entries = {}
  for k, (label, color) in enumerate(_BRANCHES.items()):
    if counts[k].any():
      ends = {"baseline": bottoms[k], "fill": True}
      axes.stairs(tops[k], edges, color=color, **ends)
      entries[label] = Patch(color=color, linewidth=0)
  axes.set(ylim=(0, 100), yticks=[0, 50, 100], ylabel="Steps (%)")
  axes.grid(visible=False)
  axes.set_xlim(edges[0], edges[-1])
  axes.xaxis.get_major_locator().set_params(integer=True)
  return entries


def _kinds(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
  """[R, C, K], the index in `_BRANCHES` of each step; NaN without a step."""
  smoothness, growth = arrays["smoothness"], arrays["growth"]
  is_first = ~np.isfinite(smoothness) & ~np.isfinite(growth)
  cases = [~_is_step(arrays["step_size"]), is_first, smoothness <= growth]
  return np.select(cases, [np.nan, 0.0, 1.0], 2.0)
