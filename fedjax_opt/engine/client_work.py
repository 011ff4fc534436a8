"""The work of clients between download and upload, for a clock's durations.

A round is traced, as for the program, and its verbs note what each client
receives, computes and sends. Nothing is compiled.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_opt import contract
from fedjax_opt.arrays import trees
from fedjax_opt.base import Algorithm, Params, run_key
from fedjax_opt.data.population import Population
from fedjax_opt.engine.batch_plan import BatchPlan
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced.cohort import Cohort
from fedjax_opt.engine.traced.mapping import RoundData


class Work(NamedTuple):
  """The work of a round of M clients, of one seed.

  Attributes:
    seed: the run's seed.
    steps: [M] float64, the number of batch gradients: one for each local step,
      or two for a rule that takes two; at least 1.
    per_step: the gradients of one local step, of any size: 1, 2 or more.
    bytes_down: bytes that a client receives.
    bytes_up: bytes that a client sends, after any compression.
  """

  seed: int
  steps: np.ndarray
  per_step: float
  bytes_down: float
  bytes_up: float


def work_of_seeds(
  config: Config,
  algorithm: Algorithm,
  params: Params,
  data: Any,
  seeds: tuple[int, ...],
) -> list[Work]:
  """The work of each seed.

  Args:
    config: options without a schedule, on one device.
    algorithm: the algorithm of any grid point.
    params: the model, or its shapes.
    data: the clients; `sizes` [M], or [seeds, M].
    seeds: the runs' seeds.

  Raises:
    ValueError: if clients do not all do the same work, or the size of a message
      depends on the data.
  """
  phases = _phases(config, algorithm, params, data)
  if not all(phase and phase.bytes_up is not None for phase in phases.values()):
    raise ValueError(
      "schedule: what clients of this algorithm do or send differs between "
      "rounds or clients, so durations are not known before the rounds; take "
      "another algorithm, such as fed_avg, or in Python give a Timetable"
    )
  total = lambda name: float(sum(getattr(p, name) for p in phases.values()))
  down, up = total("bytes_down"), total("bytes_up")
  counts = [pair for phase in phases.values() for pair in phase.gradient_counts]
  per_step = max(1.0, float(sum(n for n, kind in counts if kind is None)))
  sizes = np.asarray(data.sizes)
  sizes = np.broadcast_to(sizes, (len(seeds), sizes.shape[-1]))
  return [
    Work(int(seed), _steps(counts, of_seed, config.plan), per_step, down, up)
    for seed, of_seed in zip(seeds, sizes, strict=True)
  ]


def _phases(config, algorithm, params, data) -> Mapping[int, Any]:
  """What the phases of a round noted, see `Cohort.work`."""
  phases: dict[int, Any] = {}

  def round(params, key, examples, indices, sizes):
    server, rows = contract.initial_states(
      algorithm, params, config.num_clients
    )
    starts = sizes if indices is None else None  # If they are on disk.
    round_data = RoundData(
      examples, sizes, indices, client_state=rows, starts=starts
    )
    cohort = Cohort(config, key, np.int32(0), round_data)
    new_server, _ = contract.call_function("round", algorithm, server, cohort)
    phases.update(cohort.work)
    return new_server

  if isinstance(data, Population):
    example = lambda field: jax.ShapeDtypeStruct((1, *field[1]), field[0])
    examples, indices = {n: example(f) for n, f in data.fields.items()}, None
    sizes = data.sizes
  else:
    seed_lists = data.indices, data.sizes
    if np.ndim(data.sizes) == 2:
      seed_lists = trees.take(seed_lists, 0)
    examples, (indices, sizes) = data.examples, seed_lists
  key = jax.eval_shape(run_key, 0)
  jax.eval_shape(round, params, key, examples, indices, sizes)
  return phases


def _steps(gradient_counts, sizes: np.ndarray, plan: BatchPlan) -> np.ndarray:
  """[M], gradients of a batch that clients of these sizes compute.

  Args:
    gradient_counts: (number, of what). What is None for the local batches,
      "all" for all examples of the client, or a number of examples.
    sizes: [M].
    plan: the plan of the local steps.
  """
  num_batches = lambda examples: -(-examples // plan.batch_size)
  total = np.zeros(len(sizes))
  for number, kind in gradient_counts:
    steps = plan.num_steps(sizes) if kind is None else num_batches(sizes)
    total += number * (num_batches(kind) if isinstance(kind, int) else steps)
  return np.maximum(total, 1.0)
