"""From a specification to what a simulation is given: method and settings."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from experiments import clock
from experiments.specification.spec import DP_DELTA, FLAGS, Spec
from experiments.tasks import Task
from fedjax_opt import Algorithm, evaluation, privacy, trainable, transforms
from fedjax_opt.engine.config import GridSettings
from fedjax_opt.rules import step_decay


def algorithm_of(spec: Spec, task: Task) -> Callable[..., Algorithm]:
  """`(**point) -> Algorithm`, where a point is {flag: number}, for `sweep`."""
  functions = task.loss_fn, task.features_fn
  paths = trained_paths(spec, task)

  def make(**point: Any) -> Algorithm:
    of = lambda loss_fn, features_fn=None: _algorithm(
      spec, point, loss_fn, features_fn
    )
    if not paths:
      return of(*functions)
    return trainable.train_only(of, paths, *functions)

  return make


def trained_paths(spec: Spec, task: Task) -> tuple[str, ...]:
  """Of the leaves that are trained; () for all."""
  return spec.trainable_paths or task.trainable


def _algorithm(
  spec: Spec,
  point: Mapping[str, Any],
  loss_fn: Any,
  features_fn: Any,
) -> Algorithm:
  """The algorithm at a point."""
  choice = spec.algorithm.choice
  arguments = {"loss_fn": loss_fn}
  if choice.takes_features:
    arguments["features_fn"] = features_fn
  if choice.takes_regularizer:
    arguments["psi"] = spec.regularizer.make(point)
  if choice.client == "rule":
    arguments["client"] = client_rule(spec, point)
  else:
    arguments["learning_rate"] = _rate(spec, point)
  if choice.server == "rule":
    arguments["server"] = spec.server.make(point)
  elif choice.server == "rate":
    arguments["server_learning_rate"] = point["server_lr"]
  algorithm = spec.algorithm.make(point, **arguments)
  if spec.privacy is None:
    return algorithm
  return spec.privacy.make(point, algorithm=algorithm, noise_seed=spec.dp_seed)


def client_rule(spec: Spec, point: Mapping[str, Any]) -> Any:
  """The clients' rule at a point, or the function from a round to it."""
  rate = _rate(spec, point)
  if not callable(rate):
    return spec.client.make(point)
  return lambda round: spec.client.make({**point, "client_lr": rate(round)})


def _rate(spec: Spec, point: Mapping[str, Any]) -> Any:
  """The clients' learning rate, or the function from a round to it."""
  rate = point.get("client_lr")  # Some rules have none.
  if spec.client_schedule == "exponential":
    # A power of the factor in float32 would be 5e-5 off after 2,000 rounds.
    exponent = math.log(spec.client_decay)
    return lambda round: rate * jnp.exp(round * exponent)
  if spec.client_schedule == "step_decay":
    milestones = tuple(map(float, spec.client_milestones.split(",")))
    return lambda round: rate * step_decay(round, spec.rounds, milestones)
  return rate


# Settings of a simulation.


def settings_of(spec: Spec, task: Task) -> dict[str, Any]:
  """What `GridSettings` has."""
  evaluate = task.evaluate
  if spec.grad_norm:
    loss_fn = task.loss_fn
    if paths := trained_paths(spec, task):
      loss_fn = trainable.differentiated(loss_fn, paths)
    norm = evaluation.grad_norm_sq(loss_fn)
    evaluate = lambda *args, **held: task.evaluate(*args, **held) | norm(*args)
  same = [name for name in GridSettings.__annotations__ if name in FLAGS]
  return {name: getattr(spec, name) for name in same} | {
    "replacement": spec.sampling == "replacement",
    "evaluate": evaluate,
    # A schedule says itself who takes part.
    "schedule": clock.Clock(spec) if spec.schedule else None,
    "cohort_size": spec.cohort_size if spec.schedule is None else None,
    "trace": spec.client.choice.traced if spec.trace else (),
    "sampler": spec.sampler.make({}) or "uniform",
    "upload": _upload(spec),
    "fault": spec.fault and spec.fault.make({}, fraction=spec.faulty_fraction),
    "aggregator": (
      spec.aggregator.make({}) if spec.aggregator.name != "mean" else None
    ),
  }


def _upload(spec: Spec) -> Any:
  """What clients send instead of their differences."""
  upload = spec.upload and spec.upload.make({})
  return transforms.error_feedback(upload) if spec.error_feedback else upload


# Privacy.


def privacy_summary(
  spec: Spec, points: list[dict[str, Any]], num_clients: int, rounds: int
) -> dict[str, Any] | None:
  """What summary.json says of privacy; None if there is none.

  Args:
    spec: with `cohort_size`.
    points: of the grid.
    num_clients: M.
    rounds: R.

  Returns:
    `delta`; `epsilon` [S], of each point after so many rounds; `is_private`,
    whether nobody can make the noise again.
  """
  if spec.privacy is None:
    return None
  delta = DP_DELTA if spec.dp_delta is None else spec.dp_delta
  size, given = spec.cohort_size, {"sampling": "uniform"}
  if spec.sampler.name == "poisson":
    given = {"places": size}
    size = spec.sampler.static["sampler_expected"]
  noises = [point["dp_noise_multiplier"] for point in points]
  epsilons = {
    noise: privacy.epsilon(noise, rounds, num_clients, size, delta, **given)
    for noise in set(noises)
  }
  return {
    "delta": delta,
    "epsilon": [epsilons[noise] for noise in noises],
    "is_private": spec.dp_seed is None,
  }
