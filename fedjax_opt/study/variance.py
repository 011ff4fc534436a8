"""Where the spread of a result comes from: choice, partition and seed.

Axis letters: `H` settings, `P` partitions, `T` seeds.
"""

import numpy as np

from fedjax_opt.results.selection import group_by_seed
from fedjax_opt.study.cells import Cell, PointResults

WHOLE, CHOICE, SEED = "Standard deviation", "Of the choice", "Of the seed"
PARTITION, BOTH = "Of the partition", "Of both together"


def spread_of(cell: Cell, metric: str) -> dict[str, float] | None:
  """How much choice, partition and seed add to the spread of a cell.

  Each run chose its own setting c, by its own score. With the metric y[h, .] of
  setting h, the result of a run is

    y[c, .] = mean(y[c]) + (y[c, .] - mean(y[c])):

  the quality of the setting, as the mean over all runs, plus the remainder. If
  partitions and seeds were crossed, `components` divides the remainder among
  them. If not, one seed decides both.

  Returns:
    Standard deviations by name, in the metric's unit. That of the choice is a
    little too large, as the means vary by chance. None if runs did not choose,
    if a run of a chosen setting diverged, or if there is only one seed.
  """
  runs = cell.crossed or ([cell.tuning_runs] if cell.is_nested else [])
  if not runs or cell.report_runs is None:
    return None
  values = np.stack(
    [_of_settings(r, r.history.values(metric)) for r in runs], 1
  )
  chosen = np.zeros(values.shape[1:], int)  # [P, T]
  if len(values) > 1:  # A single setting may have no score.
    scores = np.stack([_of_settings(r, r.signed_scores()) for r in runs], 1)
    chosen = scores.argmax(axis=0)
  results = np.take_along_axis(values, chosen[None], 0)[0]
  of_choice = values.mean(axis=(1, 2))[chosen]
  remainder = results - of_choice
  if not np.isfinite(remainder).all() or remainder.shape[1] < 2:
    return None
  is_one = np.ptp(of_choice) == 0
  of_choices = 0.0 if is_one else float(np.std(of_choice, ddof=1))
  if not cell.crossed:
    sd = float(np.std(results, ddof=1))
    return {WHOLE: sd, CHOICE: of_choices, SEED: float(remainder.std(ddof=1))}
  parts = {CHOICE: of_choices} | components(remainder)
  return {WHOLE: float(np.linalg.norm(list(parts.values())))} | parts


def components(values: np.ndarray) -> dict[str, float]:
  """Standard deviations of two crossed random effects.

  With the model v[p, t] = mean + partition[p] + seed[t] + both[p, t] the mean
  squares of the analysis of variance have the expectations

    E[MS_partition] = T var_partition + var_both,
    E[MS_seed] = P var_seed + var_both,   E[MS_both] = var_both,

  which give unbiased estimates of the variances; negative estimates become 0.

  Args:
    values: [P, T], with P and T at least 2.

  Source: Searle, Casella and McCulloch 1992, "Variance components", chapter 4.
  """
  of_partition, of_seed = values.mean(axis=1), values.mean(axis=0)
  remainder = values - of_partition[:, None] - of_seed + values.mean()
  num_partitions, num_seeds = values.shape
  interaction = np.sum(remainder**2) / ((num_partitions - 1) * (num_seeds - 1))
  # The mean squares, divided by the number of values in each mean.
  partition = np.var(of_partition, ddof=1) - interaction / num_seeds
  seed = np.var(of_seed, ddof=1) - interaction / num_partitions
  variances = {PARTITION: partition, SEED: seed, BOTH: interaction}
  return {name: float(np.sqrt(max(var, 0))) for name, var in variances.items()}


def _of_settings(run: PointResults, of_points: np.ndarray) -> np.ndarray:
  """The last value of each setting and seed, [H, T]."""
  points = np.array([setting.points for setting in group_by_seed(run.points)])
  return of_points.reshape(len(of_points), -1)[:, -1][points]
