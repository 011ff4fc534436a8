"""Where the spread of a result comes from: the choice of a setting, and seeds.

Axis letters: `n` seeds, `H` settings.
"""

from typing import NamedTuple

import numpy as np

from fedjax_opt.study.cells import Cell


class Spread(NamedTuple):
  """Standard deviations of a nested result over its seeds, in its unit.

  Attributes:
    whole: of the results, of which each seed chose its own setting.
    choice: of the means of the settings that were chosen: what the luck of
      choosing moves. It is a little too large, as these means vary by chance.
    seed: of what is left: partition, first model, cohorts and batches, which
      the seed decides together.
  """

  whole: float
  choice: float
  seed: float


def spread_of(cell: Cell, metric: str) -> Spread | None:
  """How much choice and seed add to the spread of a cell.

  With the metric y[h, s] of setting h at seed s, and the setting c(s) that seed
  s chose, a result is

    y[c(s), s] = mean_s y[c(s), .] + (y[c(s), s] - mean_s y[c(s), .]):

  the quality of the setting, by the mean of all seeds, and what the seed adds.

  Returns:
    None if tuning is not nested, a run of a chosen setting diverged, or there
    is one seed.
  """
  if not cell.is_nested or cell.measured is None:
    return None
  tried, results = cell.tried.history.values(metric)[:, -1], cell.final(metric)
  if len(results) < 2:
    return None
  means = {
    repr(setting.hyperparameters): tried[setting.points].mean()
    for setting in cell.tuning.settings
  }
  of_seeds = np.empty(len(results))
  for setting in cell.choices:
    of_seeds[setting.points] = means[repr(setting.hyperparameters)]
  if not np.isfinite(of_seeds).all():
    return None
  parts = results, of_seeds, results - of_seeds
  return Spread(*(float(np.std(part, ddof=1)) for part in parts))
