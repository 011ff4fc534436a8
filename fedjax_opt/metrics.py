"""The history of a run, and how a winner is selected: an index of `results`."""

from fedjax_opt.results.history import History as History
from fedjax_opt.results.metric_names import direction as direction
from fedjax_opt.results.metric_names import is_accuracy as is_accuracy
from fedjax_opt.results.names import format_value as format_value
from fedjax_opt.results.selection import Criterion as Criterion
from fedjax_opt.results.selection import Point as Point
from fedjax_opt.results.selection import Setting as Setting
from fedjax_opt.results.selection import group_by_seed as group_by_seed
from fedjax_opt.results.selection import rank as rank
from fedjax_opt.results.selection import select as select
from fedjax_opt.results.selection import varying as varying
