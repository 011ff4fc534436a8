"""Figures of a run: learning curves, heat maps, label counts, step sizes.

matplotlib is imported only while a figure is drawn. Figures are made with its
object interface, so no state of `pyplot` is read or changed.
"""

from fedjax_opt.results.plots.frame import (
  CLASS_COLORS,
  COLORS,
  LINE_STYLES,
  check_installed,
  figure,
  log_scale,
)
from fedjax_opt.results.plots.heat_maps import Grid, heat_map, heat_maps
from fedjax_opt.results.plots.histograms import label_histogram, partition_title
from fedjax_opt.results.plots.learning_curves import X_AXES, curves
from fedjax_opt.results.plots.step_size_trace import step_sizes

__all__ = [
  "CLASS_COLORS",
  "COLORS",
  "LINE_STYLES",
  "X_AXES",
  "Grid",
  "check_installed",
  "curves",
  "figure",
  "heat_map",
  "heat_maps",
  "label_histogram",
  "log_scale",
  "partition_title",
  "step_sizes",
]
