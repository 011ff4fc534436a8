"""How often the verdicts of a study call one of several equal methods worse.

Each method measures independent normal numbers of one mean and one deviation.
Printed for each number of methods and of seeds: of the comparisons with the
best, the part that says 'worse', and the part of the conditions with at least
one such comparison.

  PYTHONPATH=. python benchmarks/verdict_errors.py [--conditions=1000]
"""

import argparse

import numpy as np

from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study.cells import Cell, Measured
from fedjax_opt.study.study import Study
from fedjax_opt.study.verdicts import WORSE

METHODS, SEEDS = (2, 4, 8), (3, 5, 10)
METRIC = "test_loss"


def cell(label: str, values: np.ndarray) -> Cell:
  """A method that measured these values, one for each seed."""
  points = [{"seed": seed} for seed in range(len(values))]
  measured = Measured(points, History([1], {METRIC: values[:, None]}))
  return Cell(label, {}, Criterion("validation_loss", "min"), None, measured)


def errors(num_methods: int, num_seeds: int, conditions: int) -> list[int]:
  """How many methods are called worse under each condition."""
  rng = np.random.default_rng(0)
  found = []
  for _ in range(conditions):
    values = 1 + 0.1 * rng.normal(size=(num_methods, num_seeds))
    study = Study(
      tuple(cell(f"method {i}", v) for i, v in enumerate(values)), METRIC
    )
    said = [v.verdict for v in study.verdicts]
    found.append(said.count(WORSE))
  return found


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
  parser.add_argument("--conditions", type=int, default=1000)
  conditions = parser.parse_args().conditions
  print("methods  seeds  comparisons 'worse'  conditions with one")
  for num_methods in METHODS:
    for num_seeds in SEEDS:
      found = np.array(errors(num_methods, num_seeds, conditions))
      share = found.sum() / (conditions * (num_methods - 1))
      print(
        f"{num_methods:7}  {num_seeds:5}  {share:18.1%}  "
        f"{np.mean(found > 0):18.1%}"
      )


if __name__ == "__main__":
  main()
