"""Minimizers of regularized least squares, by FISTA on the data of all clients.

The coefficients that they recover show which strengths of the regularizer make
sense. The paper chooses its strength so that a centralized solver recovers the
truth, but does not say which strength that is.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_opt as fo
from experiments.artefacts.artefact import Entries, Records
from experiments.artefacts.blocks import Block, Table
from experiments.tasks import composite
from fedjax_opt import prox
from fedjax_opt.results.history import History

_TASKS = {
  "lasso": (composite.lasso, prox.l1),
  "low_rank": (composite.low_rank, prox.nuclear),
}
_THRESHOLD = 1e-2  # Coefficients below this count as zero.


def optima(
  task: str,
  variant: str,
  strengths: Sequence[float],
  max_iterations: int = 10_000,
) -> tuple[History, list[dict[str, Any]]]:
  """The minimizers of loss plus regularizer, one for each strength.

  Args:
    task: 'lasso' or 'low_rank'.
    variant: 'I' to 'IV'.
    strengths: strengths of the regularizer.
    max_iterations: the most steps of FISTA, which stops at a residual of 0.001.

  Returns:
    What the minimizers recover, their loss with and without regularizer, and
    the points, one for each strength.
  """
  make, regularizer = _TASKS[task]
  problem = make(variant, _THRESHOLD, eval_every=1)
  start = problem.init(jax.random.key(0))
  results = []
  for strength in strengths:
    psi = prox.kernels(regularizer(strength))
    solution = fo.optimum(
      problem.loss_fn,
      psi,
      start,
      problem.clients,
      tolerance=1e-3,
      max_iterations=max_iterations,
    )
    results.append(_metrics(problem, solution))
  metrics = {n: np.array([[m[n]] for m in results], float) for n in results[0]}
  points = [{"variant": variant, "strength": s, "seed": 0} for s in strengths]
  return History([0], metrics), points


def _metrics(problem, solution) -> dict[str, float]:
  """The metrics of the task's runs, for a minimizer."""
  params = jax.tree.map(
    lambda leaf: jnp.asarray(leaf, jnp.float32), solution.params
  )
  measured = problem.evaluate(
    params, problem.clients, problem.test, validation=problem.validation
  )
  return measured | {
    "regularized_train_loss": solution.value,
    "residual": solution.residual,
  }


# What is shown.

# Task -> its name in titles, and a further metric of recovery.
_TITLES = {
  "lasso": ("Sparse least squares", "f1"),
  "low_rank": ("Low-rank least squares", "rank"),
}


def strength(entries: Entries, records: Records) -> list[Block]:
  """What the optima recover, and their error, against the strength."""
  del entries
  blocks: list[Block] = []
  for task, (name, recovered) in _TITLES.items():
    by_variant = {k[1]: r for k, r in records.items() if k[0] == task}
    for metric in (recovered, "recovery_error", "validation_loss"):
      rows = [
        [variant, *(f"{number:.4g}" for number in record.final(metric))]
        for variant, record in by_variant.items()
      ]
      title = f"{name}, {metric.replace('_', ' ')} of the optimum"
      if by_variant:
        points = next(iter(by_variant.values())).points
        heads = ["", *(f"λ = {point['strength']:g}" for point in points)]
        blocks.append(Table(heads, rows, title))
  return blocks
