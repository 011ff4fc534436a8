"""Which setting each cell reports, of runs that are written by hand."""

import numpy as np
import pytest

from fedjax_opt import Criterion
from fedjax_opt.study import tuning
from fedjax_opt.study.cells import PointResults
from tests.helpers.histories import of_values

NAN = np.nan
GRID = {"rate": [0.1, 1.0]}


def runs_of(name, by_setting, calls):
  """A function that runs a grid; `by_setting` has its metric's last values."""

  def run(grid, seeds, is_fresh):
    calls.append((grid, seeds, is_fresh))
    points = [{"rate": r, "seed": s} for r in grid["rate"] for s in seeds]
    last = [v for r in grid["rate"] for v in by_setting[r][: len(seeds)]]
    history = of_values(**{name: [[1.0, value] for value in last]})
    return PointResults(points, history, Criterion(name))

  return run


def tuned(name, by_setting, is_nested):
  """The cell, and the arguments of its runs."""
  seeds = [3, 4, 5]
  design = tuning.Design.of([0, 1], seeds, is_nested, None)
  calls = []
  run = runs_of(name, by_setting, calls)
  return tuning.tune_and_report("A", {}, run, GRID, design), calls


@pytest.mark.parametrize(
  ("name", "by_setting", "chosen"),
  [
    ("validation_loss", {0.1: [3, 2, 9], 1.0: [2, 3, NAN]}, [1.0, 0.1, 0.1]),
    ("validation_accuracy", {0.1: [3, 2, 9], 1.0: [2, 3, 9]}, [0.1, 1.0, 0.1]),
    ("validation_loss", {0.1: [NAN] * 3, 1.0: [NAN] * 3}, None),
  ],
)
def test_nested_each_seed_has_its_own_best_setting(name, by_setting, chosen):
  """The first of equal ones, and none that diverged."""
  cell, calls = tuned(name, by_setting, is_nested=True)
  assert calls == [(GRID, [3, 4, 5], True)]
  reported = cell.report_runs and [p["rate"] for p in cell.report_runs.points]
  assert reported == chosen


@pytest.mark.parametrize(
  ("name", "rate"), [("validation_loss", 0.1), ("validation_accuracy", 1.0)]
)
def test_the_best_mean_is_run_with_fresh_seeds(name, rate):
  cell, calls = tuned(name, {0.1: [1, 4, 0], 1.0: [3, 3, 0]}, is_nested=False)
  grid_run, reported = calls
  assert grid_run == (GRID, [0, 1], False)
  assert reported == ({"rate": [rate]}, [3, 4, 5], True)
  assert cell.chosen == {"rate": rate}
