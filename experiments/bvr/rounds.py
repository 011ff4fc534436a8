"""Rounds until the gradient is small, against heterogeneity and local steps.

How many rounds local steps save depends on how much the clients' Hessians
differ (zeta). `fedjax_opt.data.synthetic.heterogeneous` has zeta as a dial; its
clients' gradients differ in any case. All methods have the same K B examples of
each client in a round.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_opt as fo
from experiments.tasks import nonconvex
from fedjax_opt import algorithms
from fedjax_opt.data import synthetic
from fedjax_opt.metrics import History

METHODS = {
  "Minibatch SGD": algorithms.minibatch_sgd,
  "Minibatch SARAH": algorithms.minibatch_sarah,
  "Local SGD": algorithms.local_sgd,
  "SCAFFOLD": algorithms.scaffold,
  "BVR-L-SGD": algorithms.bvr_l_sgd,
}
IN_STAGES = ("Minibatch SARAH", "BVR-L-SGD")


def metric(eps: float, counts_stages: bool = True) -> str:
  """The name of the rounds until the squared gradient norm is at most eps.

  Args:
    eps: what is to be reached.
    counts_stages: whether the large gradient that begins a stage counts as a
      round of its own. In the paper it does not.
  """
  return f"{'rounds' if counts_stages else 'iterations'}_to_{eps:g}"


def rounds_to_small_gradient(
  method: str,
  local_steps: int,
  zetas: Sequence[float],
  rates: Sequence[float],
  seeds: Sequence[int],
  batch_size: int,
  rounds: int,
  eps: Sequence[float],
) -> tuple[History, list[dict[str, Any]]]:
  """Runs a method at all zetas and rates, in one program.

  Args:
    method: key of `METHODS`.
    local_steps: K.
    zetas: how far the clients' Hessians differ.
    rates: learning rates.
    seeds: of the runs.
    batch_size: B, examples of a local step.
    rounds: at most, both as the paper counts them and with large gradients.
    eps: squared gradient norms to be reached.

  Returns:
    The metrics of `metric`, NaN where that was not reached; and the points.
  """
  problem = synthetic.heterogeneous(zetas[0])

  def make(zeta, client_lr):
    return METHODS[method](problem._replace(zeta=zeta).loss_fn, client_lr)

  def evaluate(params, data, test):
    del data, test  # The objective is known, and the same for all zetas.
    gradient = jax.grad(problem.objective)(params)
    return {"grad_norm_sq": jnp.sum(jnp.square(gradient))}

  grid = {"zeta": list(zetas), "client_lr": list(rates)}
  result = fo.sweep(
    make,
    grid,
    nonconvex.start(problem),
    problem.data,
    rounds=rounds,
    seeds=list(seeds),
    local_steps=local_steps,
    batch_size=batch_size,
    replacement=True,
    evaluate=evaluate,
    eval_every=1,
  )
  stage = None
  if method in IN_STAGES:
    stage = math.ceil(1 + problem.data.max_size / (local_steps * batch_size))
  found = {}
  for each in eps:
    first = _first(result.history.values("grad_norm_sq"), each)
    found[metric(each, False)] = first[:, None]
    with_stages = first if stage is None else first + np.ceil(first / stage)
    is_late = with_stages > rounds
    found[metric(each)] = np.where(is_late, np.nan, with_stages)[:, None]
  points = fo.grid_points(grid, seeds)
  return History([rounds], found), [dict(point) for point in points]


def _first(values: np.ndarray, eps: float) -> np.ndarray:
  """The first round with a value of at most eps, NaN if there is none. [S]"""
  reached = values <= eps
  return np.where(reached.any(axis=1), reached.argmax(axis=1), np.nan)
