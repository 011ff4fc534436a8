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
  client_distribution as client_distribution,
)
from fedjax_opt.study.plots.distributions import (
  label_histogram as label_histogram,
)
from fedjax_opt.study.plots.distributions import (
  partition_title as partition_title,
)
from fedjax_opt.study.plots.frame import CLASS_COLORS as CLASS_COLORS
from fedjax_opt.study.plots.frame import COLORS as COLORS
from fedjax_opt.study.plots.frame import LINE_STYLES as LINE_STYLES
from fedjax_opt.study.plots.frame import check_installed as check_installed
from fedjax_opt.study.plots.frame import figure as figure
from fedjax_opt.study.plots.frame import log_scale as log_scale
from fedjax_opt.study.plots.heat_maps import Grid as Grid
from fedjax_opt.study.plots.heat_maps import heat_map as heat_map
from fedjax_opt.study.plots.heat_maps import heat_maps as heat_maps
from fedjax_opt.study.plots.learning_curves import X_AXES as X_AXES
from fedjax_opt.study.plots.learning_curves import curves as curves
from fedjax_opt.study.plots.lines import Style as Style
from fedjax_opt.study.plots.lines import method_styles as method_styles
from fedjax_opt.study.plots.metric_axis import Curve as Curve
from fedjax_opt.study.plots.step_size_trace import step_sizes as step_sizes
from fedjax_opt.study.plots.study_curves import (
  performance_profiles as performance_profiles,
)
from fedjax_opt.study.plots.study_curves import sensitivity as sensitivity
from fedjax_opt.study.plots.study_curves import study_curves as study_curves
from fedjax_opt.study.plots.study_curves import study_values as study_values
from fedjax_opt.study.plots.study_curves import tuning_curves as tuning_curves
from fedjax_opt.study.plots.timetable import timetable as timetable
