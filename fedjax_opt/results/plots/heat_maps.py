"""Heat maps: a metric over two hyperparameters."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_opt.results.plots.frame import figure


def heat_map(
  values: np.ndarray,
  rows: tuple[str, Sequence[Any]],
  columns: tuple[str, Sequence[Any]],
  path: str | os.PathLike,
  *,
  label: str,
  precision: str = ".3g",
) -> None:
  """Draws a metric over two hyperparameters, with the numbers in the cells.

  Args:
    values: the metric, NaN where it has no value. [rows, columns].
    rows: name and values of the hyperparameter that varies down a column.
    columns: name and values of the one that varies along a row.
    path: file to write; the ending chooses the format (png, pdf, svg).
    label: name of the metric, beside the colour bar.
    precision: format specification of the numbers in the cells.

  Raises:
    ValueError: if the shape of `values` does not fit the hyperparameters.
    ImportError: if matplotlib is missing.
  """
  values = np.asarray(values, float)
  shape = (len(rows[1]), len(columns[1]))
  if values.shape != shape:
    raise ValueError(f"values: shape is {values.shape}; must be {shape}")
  scale = (0.5 + 0.2 * shape[1], 0.5 + 0.12 * shape[0])
  with figure(columns=1, scale=scale) as (new, all_axes):
    axes = all_axes[0, 0]
    image = axes.imshow(values, cmap="viridis", aspect="auto")
    axes.grid(visible=False)
    axes.set_xticks(range(shape[1]), columns[1])
    axes.set_yticks(range(shape[0]), rows[1])
    axes.set_xlabel(columns[0])
    axes.set_ylabel(rows[0])
    _write_numbers(axes, values, precision)
    new.colorbar(image, label=label)
    new.savefig(path)


def _write_numbers(axes: Any, values: np.ndarray, precision: str) -> None:
  """Writes each value into its cell, black on light cells and white on dark."""
  finite = values[np.isfinite(values)]
  middle = (finite.min() + finite.max()) / 2 if finite.size else 0
  for (i, j), value in np.ndenumerate(values):
    text = "-" if np.isnan(value) else f"{value:{precision}}"
    is_light = np.isnan(value) or value > middle
    color = "black" if is_light else "white"
    axes.text(j, i, text, ha="center", va="center", color=color, fontsize=8)
