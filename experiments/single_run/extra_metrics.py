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

Metrics = dict[str, np.ndarray]


def of_job(job: Job) -> Callable[[fo.Report], Metrics] | None:
  """A function from a report to its extra metrics, {name: [S]}.

  With `--select_on=clients` these are metrics of the clients' own models, with
  `--optimum` the gap to the least value of the objective, which is found now.

  Returns:
    The function; None if there are no such metrics.
  """
  own_models = _own_models(job) if job.spec.select_on == "clients" else None
  minima = _minima(job) if job.spec.optimum else None
  if own_models is None and minima is None:
    return None

  def measure(report: fo.Report) -> Metrics:
    metrics = {} if own_models is None else own_models.measure(report)
    if minima is not None:
      objective = np.asarray(
        report.metrics["regularized_train_loss"], np.float64
      )
      metrics["optimality_gap"] = objective - minima
    return metrics

  return measure


def _own_models(job: Job) -> OwnModels:
  """What measures the clients' own models on the examples they hold out."""
  parts = job.loaded.client_tests.per_client
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
