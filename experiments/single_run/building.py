"""The algorithm and the options of a simulation, as a specification says."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

import fedjax_opt as fo
from experiments.specification.choice_flags import CLIENT, SERVER
from experiments.specification.spec import FLAGS, Spec
from experiments.tasks import Task
from fedjax_opt.engine.run_options import GridOptions
from fedjax_opt.rules import step_decay
from fedjax_opt.transforms import faults


def algorithm_of(spec: Spec, task: Task) -> Callable[..., fo.Algorithm]:
  """`(**point) -> Algorithm`, where a point is {flag: number}, for `sweep`."""
  functions = task.loss_fn, task.features_fn
  paths = trained_paths(spec, task)

  def make(**point: Any) -> fo.Algorithm:
    of_loss = lambda loss_fn, features_fn=None: _algorithm(
      spec, point, paths, loss_fn, features_fn
    )
    if not paths or spec.algorithm.entry.takes("paths"):
      return of_loss(*functions)
    return fo.trainable.train_only(of_loss, paths, *functions)

  return make


def trained_paths(spec: Spec, task: Task) -> tuple[str, ...]:
  """The paths of the leaves that are trained; () for all."""
  return spec.trainable_paths or task.trainable


def _algorithm(
  spec: Spec,
  point: Mapping[str, Any],
  paths: tuple[str, ...],
  loss_fn: Any,
  features_fn: Any,
) -> fo.Algorithm:
  """The algorithm at a point."""
  entry = spec.algorithm.entry
  arguments = {"loss_fn": loss_fn}
  if entry.takes("features_fn"):
    arguments["features_fn"] = features_fn
  if entry.takes("paths") and paths:
    arguments["paths"] = paths
  if entry.takes("psi"):
    arguments["psi"] = spec.regularizer.make(point)
  if entry.client_takes == "rule":
    arguments["client"] = client_rule(spec, point)
  else:
    arguments["learning_rate"] = _rate(spec, point)
  if entry.server_takes == "rule":
    arguments["server"] = spec.server.make(point)
  elif entry.server_takes == "rate":
    arguments["server_learning_rate"] = point[SERVER.rate_flag]
  algorithm = spec.algorithm.make(point, **arguments)
  if spec.privacy is None:
    return algorithm
  return spec.privacy.make(point, algorithm=algorithm, noise_seed=spec.dp_seed)


def client_rule(spec: Spec, point: Mapping[str, Any]) -> Any:
  """The clients' rule at a point, or a function from the round to it."""
  rate = _rate(spec, point)
  if not callable(rate):
    return spec.client.make(point)
  return lambda round: spec.client.make(
    {**point, CLIENT.rate_flag: rate(round)}
  )


def _rate(spec: Spec, point: Mapping[str, Any]) -> Any:
  """The clients' learning rate, or a function from the round to it."""
  rate = point.get(CLIENT.rate_flag)  # Some rules have none.
  if spec.client_schedule == "exponential":
    # A power of the factor in float32 has an error of 5e-5 after 2,000 rounds.
    exponent = math.log(spec.client_decay)
    return lambda round: rate * jnp.exp(round * exponent)
  if spec.client_schedule == "step_decay":
    milestones = tuple(map(float, spec.client_milestones.split(",")))
    return lambda round: rate * step_decay(round, spec.rounds, milestones)
  return rate


def options_of(spec: Spec, task: Task) -> dict[str, Any]:
  """The options of the simulator, as `GridOptions` has them, but `schedule`."""
  evaluate = task.evaluate
  if spec.grad_norm:
    loss_fn = task.loss_fn
    if paths := trained_paths(spec, task):
      loss_fn = fo.trainable.differentiated(loss_fn, paths)
    norm = fo.evaluation.grad_norm_sq(loss_fn)
    evaluate = lambda *args, **held: task.evaluate(*args, **held) | norm(*args)
  upload = spec.upload and spec.upload.make({})
  if spec.error_feedback:
    upload = fo.transforms.error_feedback(upload)
  names = [name for name in GridOptions.__annotations__ if name in FLAGS]
  return {name: getattr(spec, name) for name in names} | {
    "replacement": spec.sampling == "replacement",
    "evaluate": evaluate,
    # A schedule decides who takes part.
    "cohort_size": spec.cohort_size if spec.schedule is None else None,
    "trace": spec.client.entry.traced if spec.trace else (),
    "sampler": (
      spec.sampler.make({}) if spec.sampler.name != "uniform" else "uniform"
    ),
    "upload": upload,
    "fault": spec.fault and fault_of(spec),
    "aggregator": (
      spec.aggregator.make({}) if spec.aggregator.name != "mean" else None
    ),
  }


def fault_of(spec: Spec) -> faults.Fault:
  """What faulty clients send, and who is faulty."""
  return spec.fault.make({}, fraction=spec.faulty_fraction)
