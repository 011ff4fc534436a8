"""The histories of a run, how a winner is selected, and metrics over clients.

The names of `results.history` and `results.selection`, and those functions of
`evaluation` that summarize a metric over the clients.
"""

from fedjax_opt.evaluation import deciles, worst_decile
from fedjax_opt.results.history import History, direction, is_fraction
from fedjax_opt.results.selection import (
  Criterion,
  Point,
  Setting,
  format_value,
  group_by_seed,
  rank,
  select,
  varying,
)

__all__ = [
  "Criterion",
  "History",
  "Point",
  "Setting",
  "deciles",
  "direction",
  "format_value",
  "group_by_seed",
  "is_fraction",
  "rank",
  "select",
  "varying",
  "worst_decile",
]
