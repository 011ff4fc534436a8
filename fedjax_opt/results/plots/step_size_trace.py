"""The step sizes of Delta-SGD on one client."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_opt.results.plots.frame import COLORS, log_scale, styled_figure

# Array of a trace -> its label, colour, line width and line style. The step
# size equals one of the branches at every step; it is therefore drawn first and
# wide, and the branches are drawn thin on top of it.
_LOOKS = {
  "step_size": ("step size (minimum)", COLORS[1], 3.2, "-"),
  "smoothness": ("smoothness branch", COLORS[2], 1.1, "-"),
  "growth": ("growth branch", COLORS[0], 1.1, "--"),
}


def step_sizes(
  trace: Mapping[str, np.ndarray],
  path: str | os.PathLike,
  *,
  title: str | None = None,
) -> None:
  """Draws Delta-SGD's step size and the two branches it is the minimum of.

  As Figure 7 of the Delta-SGD paper.

  Args:
    trace: `step_size`, `smoothness` and `growth` of one client at every local
      step: each [K], or [R, K] for several rounds. Rounds are drawn one after
      the other, with a vertical line where a round, and with it the rule's
      state, begins anew. Steps that are not finite are left out: padding, and
      the smoothness branch before the client has moved.
    path: file to write; the ending chooses the format (png, pdf, svg).
    title: such as the client's number.

  Raises:
    ValueError: if an array is missing or the shapes differ.
    ImportError: if matplotlib is missing.
  """
  arrays = _checked_arrays(trace)
  with styled_figure(4.6, 2.9) as new:
    axes = new.subplots()
    num_rounds, num_steps = arrays["step_size"].shape
    if 1 < num_rounds <= 60:
      for start in np.arange(1, num_rounds) * num_steps:
        axes.axvline(start - 0.5, color="#D0D0D0", linewidth=0.7, zorder=1)
    for name, values in arrays.items():
      _draw_steps(axes, name, values.ravel())
    log_scale(axes.yaxis)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("Local step")
    axes.set_ylabel("Step size")
    if title:
      axes.set_title(title)
    handles, names = axes.get_legend_handles_labels()
    new.legend(handles, names, loc="outside lower center", ncols=3)
    new.savefig(path)


def _checked_arrays(trace: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """The arrays to draw, each [R, K], in the order in which they are drawn."""
  names = tuple(_LOOKS)
  missing = [name for name in names if name not in trace]
  if missing:
    raise ValueError(f"trace: has no {missing[0]!r}; it needs {list(names)}")
  arrays = {n: np.atleast_2d(np.asarray(trace[n], float)) for n in names}
  shapes = {n: np.shape(trace[n]) for n in names}
  if len(set(shapes.values())) > 1 or arrays["step_size"].ndim != 2:
    raise ValueError(
      f"trace: shapes are {shapes}; all must be [steps] or [rounds, steps]"
    )
  return arrays


def _draw_steps(axes: Any, name: str, values: np.ndarray) -> None:
  """Draws one array of the trace, [R * K]."""
  label, color, width, style = _LOOKS[name]
  steps = np.flatnonzero(np.isfinite(values) & (values > 0))
  axes.plot(
    steps,
    values[steps],
    label=label,
    color=color,
    linewidth=width,
    linestyle=style,
    alpha=0.55 if name == "step_size" else 1.0,
    marker="o" if len(steps) <= 30 else None,
    markersize=2.5,
  )
