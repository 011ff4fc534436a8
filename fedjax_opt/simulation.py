"""Simulating a federated algorithm: one run, or a grid.

Both make a `Simulator` (engine/simulator.py). CONTRIBUTING.md says how it goes
on from there, file by file, to the averaged update.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import jax
import numpy as np

from fedjax_opt.base import Algorithm, Batch, Params
from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import SeedOfRun
from fedjax_opt.checks.values import brief
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import inputs
from fedjax_opt.engine.run_options import (
  GRID_DEFAULTS,
  GridOptions,
  RunOptions,
  check_option_names,
)
from fedjax_opt.engine.simulator import SimulationState as SimulationState
from fedjax_opt.engine.simulator import Simulator
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.results.result import Report, Result

fields.KINDS[Checkpoints] = fields.instance_of(
  Checkpoints, 'a Checkpoints, such as Checkpoints("folder", every=50)'
)
_ORDER = "the order is algorithm, params, data"
_DATA = fields.instance_of(
  ClientData | Population,
  "clients, such as ClientData.from_partition(pool, rows), or a Population; "
  + _ORDER,
)
_REPORTED = fields.function("(report)")


def _check_first(name: str, algorithm: Any) -> None:
  """Checks that the first argument is no model; the rest is `Simulator`'s."""
  if isinstance(algorithm, Mapping | np.ndarray | jax.Array):
    raise TypeError(
      f"{name}={brief(algorithm)}: must be an Algorithm; {_ORDER}"
    )


def _check_second(name: str, params: Any) -> None:
  """Checks that the second argument is no data."""
  if isinstance(params, ClientData | Population):
    raise TypeError(
      f"{name}={brief(params)}: must be a pytree of arrays; {_ORDER}"
    )


# `params` is checked where it is also known whether it may be a function.
@fields.checked(
  algorithm=fields.Field(_check_first),
  params=fields.Field(_check_second),
  data=_DATA,
  on_evaluation=_REPORTED,
)
def simulate(
  algorithm: Algorithm,
  params: Params,
  data: ClientData | Population,
  *,
  rounds: int,
  seed: SeedOfRun = 0,
  test: Batch | ClientData | None = None,
  validation: Batch | ClientData | None = None,
  on_evaluation: Callable[[Report], Any] | None = None,
  checkpoints: Checkpoints | None = None,
  progress: bool = False,
  **options: Unpack[RunOptions],
) -> Result:
  """Simulates an algorithm on a population of clients.

  Args:
    algorithm: from `fedjax_opt`, or your own.
    params: the initial model, a pytree of floating-point arrays.
    data: the clients' examples, in memory or on disk. From disk, the examples
      of each cohort are read while the rounds before it are computed, and
      metrics of training are measured on a sample of the clients.
    rounds: R, communication rounds.
    seed: of cohorts, batches and dropout.
    test: test examples, {name: [N, ...]}, passed to `evaluate`; or clients,
      such as a part of `data.split`, whose examples count once each.
    validation: validation examples, as `test`, on which settings are chosen;
      passed to `evaluate` as `validation=`, if given.
    on_evaluation: called with a `Report` after each evaluation; in a resumed
      run first with the reports from before. The run ends if the function
      returns True, or an array that is true everywhere, such as a comparison of
      metrics [S].
    checkpoints: where to save the run, and whether to resume it.
    progress: whether a bar shows the rounds done.
    **options: see `RunOptions`: cohort_size, batch_size, local_steps, evaluate,
      eval_every and others.

  Returns:
    The final model, and everything that was recorded.

  Raises:
    ValueError: naming the invalid argument, before anything is compiled.
    TypeError: naming the argument of a wrong type, likewise.
  """
  check_option_names(options)
  simulator = Simulator(
    algorithm, data, test=test, validation=validation, **options
  )
  return simulator.run_all(
    params,
    rounds,
    seed=seed,
    on_evaluation=on_evaluation,
    checkpoints=checkpoints,
    progress=progress,
  )


@fields.checked(
  make=fields.Field(inputs.check_factory),
  grid=fields.Field(inputs.check_is_grid),
  seeds=inputs.SEEDS,
  on_evaluation=_REPORTED,
)
def sweep(
  make: Callable[..., Algorithm],
  grid: Mapping[str, Sequence[float]],
  params: Params | Callable[[jax.Array], Params],
  data: ClientData | Population | Callable[[int], ClientData | Population],
  *,
  rounds: int,
  seeds: Sequence[int] = (0,),
  test: Batch | ClientData | None = None,
  validation: Batch | ClientData | None = None,
  on_evaluation: Callable[[Report], Any] | None = None,
  checkpoints: Checkpoints | None = None,
  progress: bool = False,
  **options: Unpack[GridOptions],
) -> Result:
  """Simulates an algorithm at every point of a grid, in one program.

  Args:
    make: `(**hyperparameters) -> Algorithm`; called with traced scalars, for
      all points at once.
    grid: {name: values}, the hyperparameters to combine; {} for none.
    params: the initial model, or a function from a random key to one.
    data: the clients' examples, or a function from a seed to them. The clients
      of all seeds must share the pooled examples.
    rounds: R, communication rounds.
    seeds: each combination of hyperparameters runs once with each seed.
    test, validation, on_evaluation, checkpoints, progress: see `simulate`.
    **options: see `simulate`; also `grid_map`, `grid_chunk` and
      `grid_devices`, see `GridOptions`.

  Returns:
    The result. Its arrays have a leading axis S, in the order of
    `grid_points(grid, seeds)`. Points that diverged may be stopped, see
    `engine.active_settings`; their metrics are NaN from then on.

  Raises:
    ValueError: naming the invalid argument, before anything is compiled.
    TypeError: naming the argument of a wrong type, likewise.
  """
  check_option_names(options, GRID_DEFAULTS)
  simulator = Simulator(
    make,
    data,
    grid=grid,
    seeds=seeds,
    test=test,
    validation=validation,
    **options,
  )
  return simulator.run_all(
    params,
    rounds,
    on_evaluation=on_evaluation,
    checkpoints=checkpoints,
    progress=progress,
  )


def grid_points(
  grid: Mapping[str, Sequence[float]], seeds: Sequence[int] = (0,)
) -> list[dict[str, float]]:
  """All combinations of hyperparameters and seeds; the last name runs fastest.

  Args:
    grid: {name: values}.
    seeds: of the runs.

  Returns:
    S points: {name: value, ..., 'seed': seed}.

  Raises:
    ValueError: naming the invalid argument.
    TypeError: naming the argument of a wrong type.
  """
  inputs.check_is_grid("grid", grid)
  axes = {**grid, "seed": seeds}
  for name, values in axes.items():
    # Texts too: a grid that was read again may have any values.
    field = fields.sequence_of(fields.ANYTHING, "a list of numbers", least=1)
    field.check("seeds" if name == "seed" else f"grid[{name!r}]", values)
  return [
    dict(zip(axes, values, strict=True))
    for values in itertools.product(*axes.values())
  ]
