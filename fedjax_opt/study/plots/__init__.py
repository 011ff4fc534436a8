"""Figures of a run and of a study that compares methods.

Of a run: `curves`, `heat_map`, `label_histogram`, `step_sizes`, `timetable`. Of
a study: `study_curves`, `study_values`, `sensitivity`, `heat_maps`,
`tuning_curves`, `performance_profiles`, `client_distribution`; give all of them
the same `styles=method_styles(methods)`, so that a method looks the same
everywhere. Each figure is written to its file or files, png, pdf or svg, or is
returned.

matplotlib is imported only while a figure is drawn. Figures are made with its
object interface, so no state of `pyplot` is read or changed.
"""

from fedjax_opt.study.plots.distributions import (
  client_distribution,
  label_histogram,
  partition_title,
)
from fedjax_opt.study.plots.frame import (
  CLASS_COLORS,
  COLORS,
  LINE_STYLES,
  check_installed,
  figure,
  log_scale,
)
from fedjax_opt.study.plots.heat_maps import Grid, heat_map, heat_maps
from fedjax_opt.study.plots.learning_curves import X_AXES, curves
from fedjax_opt.study.plots.lines import Style, method_styles
from fedjax_opt.study.plots.metric_axis import Curve
from fedjax_opt.study.plots.step_size_trace import step_sizes
from fedjax_opt.study.plots.study_curves import (
  performance_profiles,
  sensitivity,
  study_curves,
  study_values,
  tuning_curves,
)
from fedjax_opt.study.plots.timetable import timetable

__all__ = [
  "CLASS_COLORS",
  "COLORS",
  "LINE_STYLES",
  "X_AXES",
  "Curve",
  "Grid",
  "Style",
  "check_installed",
  "client_distribution",
  "curves",
  "figure",
  "heat_map",
  "heat_maps",
  "label_histogram",
  "log_scale",
  "method_styles",
  "partition_title",
  "performance_profiles",
  "sensitivity",
  "step_sizes",
  "study_curves",
  "study_values",
  "timetable",
  "tuning_curves",
]
