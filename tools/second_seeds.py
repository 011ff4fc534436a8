"""Runs designs of experiments/ again with other seeds; compares what came out.

  python -m tools.second_seeds --data_dir=D --output_dir=F [DESIGN ...]

A design is an artefact whose records are published; by default those that
decide the main claim of each paper. What was chosen stays: only the cells that
report run again, with as many other seeds. Each claim compares some quantities,
such as the difference of two methods. A quantity *agrees* if the 95 % interval
(Welch's) of the difference between its means over both sets contains zero. If
intervals are honest, 95 % do. The same command continues.
"""

import argparse
import collections
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from experiments.artefacts import ARTEFACTS, publishing
from experiments.artefacts.artefact import (
  Computed,
  GridChoices,
  Key,
  Recipe,
  RunOf,
  spec_of,
)
from experiments.artefacts.blocks import Claim, Quantity
from experiments.artefacts.recipe_runner import RecipeRunner

DESIGNS = (
  "delta_sgd/transfer", "fco/figure2", "fco/speed", "bvr/table1", "domo/tuned",
)  # fmt: skip
LATER = 1_000  # How far the other seeds are from the first ones.


def with_other_seeds(cell: Recipe) -> Recipe:
  """The cell with as many other seeds."""
  if isinstance(cell, Computed):
    seeds = [seed + LATER for seed in cell.options["seeds"]]
    return cell._replace(options={**cell.options, "seeds": seeds})
  seeds = np.atleast_1d(spec_of(cell.arguments).seed) + LATER
  return RunOf((*cell.arguments, f"--seed={','.join(map(str, seeds))}"))


def claims_of(
  name: str, runner: RecipeRunner
) -> tuple[list[Claim], list[Claim]]:
  """The claims of a design, from its published and from other seeds."""
  artefact = ARTEFACTS[name]
  records = publishing.records_of(artefact.paper)
  first = dataclasses.replace(runner, only_found=True).run(
    artefact, "cpu", records
  )

  def other_cells(choices: GridChoices) -> dict[Key, Recipe]:
    cells = artefact.recipes(choices)
    return {key: with_other_seeds(cells[key]) for key in first.cell_records}

  other_artefact = dataclasses.replace(artefact, recipes=other_cells)
  second = runner.run(other_artefact, "cpu", records)
  claims = lambda run: [item for item in run.blocks if isinstance(item, Claim)]
  return claims(first), claims(second)


def agrees(one: Quantity, other: Quantity) -> bool | None:
  """Whether the means over both sets agree; None if a run has no number."""
  a, b = (np.asarray(quantity.values, float) for quantity in (one, other))
  if not np.isfinite([*a, *b]).all():
    return None
  if not a.std() and not b.std():
    return bool(a[0] == b[0])
  return bool(stats.ttest_ind(a, b, equal_var=False).pvalue >= 0.05)


def compared(first: Sequence[Claim], second: Sequence[Claim]) -> dict[str, Any]:
  """How many quantities agree, and how verdicts changed."""
  pairs = [
    (a, b)
    for claim, other in zip(first, second, strict=True)
    for a, b in zip(claim.quantities, other.quantities, strict=True)
  ]
  counts = collections.Counter(agrees(a, b) for a, b in pairs)
  verdicts = collections.Counter(
    (claim.verdict, other.verdict)
    for claim, other in zip(first, second, strict=True)
  )
  return {
    "quantities": counts[True] + counts[False],
    "agree": counts[True],
    "without a number": counts[None],
    "claims": len(first),
    "same verdict": sum(n for (a, b), n in verdicts.items() if a == b),
    "held, then not held, or the reverse": sum(
      verdicts[pair] for pair in (("held", "not held"), ("not held", "held"))
    ),
  }


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.formatter_class = argparse.RawDescriptionHelpFormatter
  parser.add_argument("designs", nargs="*", default=DESIGNS, metavar="DESIGN")
  parser.add_argument("--data_dir", required=True)
  parser.add_argument("--output_dir", required=True, type=pathlib.Path)
  parser.add_argument("--jobs", type=int, default=1)
  options = parser.parse_args()
  runner = RecipeRunner(options.output_dir, options.data_dir, options.jobs)
  heads = None
  for name in options.designs:
    row = compared(*claims_of(name, runner))
    if heads is None:
      heads = ["design", *row]
      print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    print(f"| {name} | {' | '.join(map(str, row.values()))} |", flush=True)


if __name__ == "__main__":
  main()
