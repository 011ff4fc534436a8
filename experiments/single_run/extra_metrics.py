"""Metrics of a run that the host computes, beside those of its evaluation."""

import sys
from collections.abc import Callable

import jax
import numpy as np

import fedjax_opt as fo
from experiments.single_run.job import Job
from fedjax_opt import multi_process
from fedjax_opt.algorithms import optimum
from fedjax_opt.engine.client_evaluation import STEP_OPTIONS
from fedjax_opt.engine.own_models import OwnModels


def names_of(job: Job) -> list[str]:
  """The names of what `measuring` measures; [] for nothing."""
  gap = ["optimality_gap"] if job.spec.optimum else []
  if job.spec.select_on != "clients":
    return gap
  return _own_models(job).names(job.task.init) + gap


def measuring(job: Job) -> Callable[[fo.Report], dict[str, np.ndarray]] | None:
  """Measures clients' own models, and the gap to the least objective.

  The first with `--select_on=clients`, the second with `--optimum`, whose least
  objectives are computed now.

  Returns:
    A function of a report, to {name: [S]}; None if nothing is measured.
  """
  spec = job.spec
  own_models = _own_models(job) if spec.select_on == "clients" else None
  minima = _minima(job) if spec.optimum else None
  if own_models is None and minima is None:
    return None

  def measure(report: fo.Report) -> dict[str, np.ndarray]:
    metrics = {} if own_models is None else own_models(report)
    if minima is not None:
      objective = report.metrics["regularized_train_loss"]
      metrics["optimality_gap"] = np.asarray(objective, np.float64) - minima
    return metrics

  return measure


def _own_models(job: Job) -> OwnModels:
  """What measures the clients' own models on the examples they hold out."""
  parts = job.loaded.client_parts.per_client
  of_all = lambda part: [getattr(of_seed, part) for of_seed in parts.values()]
  return OwnModels(
    job.make,
    job.points,
    job.task.per_example,
    parts,
    [part for part in ("validation", "test") if None not in of_all(part)],
    **{name: job.options[name] for name in STEP_OPTIONS},
  )


def _minima(job: Job) -> np.ndarray:
  """[S] float64, the least value of the objective of each grid point."""
  regularizer = job.spec.regularizer
  names = list(regularizer.grid)
  problem = lambda point: (
    id(job.clients[point["seed"]]),
    *(point[name] for name in names),
  )
  minima: dict[tuple, float] = {}
  for point in job.points:
    if problem(point) in minima:
      continue
    start = job.task.init(jax.random.key(point["seed"]))
    data, psi = job.clients[point["seed"]], regularizer.make(point)
    best = optimum(job.task.loss_fn, psi, start, data)
    label = ", ".join(f"{name} {point[name]:g}" for name in names)
    if multi_process.is_first_process():
      print(
        f"optimum{f' at {label}' if label else ''}: {best.value:.9g}, to a "
        f"residual of {best.residual:.1e}, in {best.iterations} iterations",
        file=sys.stderr,
      )
    minima[problem(point)] = best.value
  return np.array([minima[problem(point)] for point in job.points])
