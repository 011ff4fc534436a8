"""The settings of a run: typed, documented and checked once."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import jax
import numpy as np
import optax

from fedjax_opt.aggregators import Aggregator
from fedjax_opt.base import EvaluateFn, Params
from fedjax_opt.checks import values as checks
from fedjax_opt.engine import sharding
from fedjax_opt.engine.chunks import (
  chunk_size,
  is_faster_vmapped,
  typical_steps,
)
from fedjax_opt.engine.plan import BatchPlan
from fedjax_opt.engine.settings import check_kinds, check_names
from fedjax_opt.faults import Fault
from fedjax_opt.samplers import Sampler, resolve
from fedjax_opt.transforms.upload import Upload


class Settings(TypedDict, total=False):
  """The settings of `simulate`, `sweep` and `Simulator`; all have defaults.

  Attributes:
    cohort_size: C, clients in a round. Default: all clients.
    sampler: who takes part: a `Sampler` of `fedjax_opt.samplers`, its name
      ('uniform', 'weighted', 'fixed'), or a function `(key, round) -> [C]
      int32 clients`. Default: 'uniform', without replacement.
    batch_size: B, examples in a local batch. Default: 32.
    local_epochs: passes of a client over its examples in a round, any
      fraction. Default: 1, unless `local_steps` is given.
    local_steps: local steps in a round, instead of `local_epochs`.
    replacement: whether each batch is drawn with replacement, instead of
      going through a new shuffle in each epoch. Default: False.
    drop_remainder: whether the last batch of an epoch is dropped when it is
      not full. Default: False.
    weighting: 'examples' or 'uniform', clients' weights in means. Default:
      'examples'.
    client_dropout: probability in [0, 1) that a client drops out of a round.
      Default: 0.
    max_update_norm: the largest Euclidean norm of the differences of models,
      and gradients, that a client sends (`Algorithm.sends`), together; what it
      sends beside them has no limit. Of all its floats, if the algorithm does
      not say what they are. Default: no limit.
    max_update_action: what becomes of a longer one: 'reject' (the client is
      left out, as with numbers that are not finite) or 'clip' (it is scaled to
      the limit). Both are counted. Default: 'reject'.
    evaluate: `(params, data, test) -> {name: scalar}`, such as
      `fedjax_opt.evaluation.federated` makes. Default: nothing is measured.
    eval_every: rounds between evaluations; round 0 and the last one are always
      evaluated. Default: 10.
    trace: names of fields of the client rule's state, recorded at each local
      step. Default: none.
    client_map: how a cohort is computed: 'vmap' (all clients vectorized),
      'scan' (one after the other) or 'auto' (what is faster). Default: 'auto'.
    client_chunk: how many clients are vectorized at a time. Default: as
      `client_map` says.
    client_memory: where what clients keep between rounds is: 'device', 'host'
      (the cohort's rows are copied to the device before each round) or 'auto'
      (the host where they would fill half of a device). Default: 'auto'.
    client_devices: devices over which a cohort is divided. Default: all that
      are not needed for the grid.
    upload: how clients send their differences: an `Upload` of
      `fedjax_opt.transforms`, or any optax transformation. Default: as they
      are.
    fault: what some clients send instead, to test aggregators: a `Fault` of
      `fedjax_opt.faults`. Default: none.
    aggregator: how the server combines messages: an `Aggregator` of
      `fedjax_opt.aggregators`; all but `mean` need weighting='uniform'.
      Default: the weighted mean.
    precision: 'float32' (the types of `params`), 'mixed' (losses and gradients
      in bfloat16) or 'bfloat16' (local steps too). Default: 'float32'.
  """

  cohort_size: int | None
  sampler: str | Sampler | Callable[[jax.Array, jax.Array], Any]
  batch_size: int
  local_epochs: float | None
  local_steps: int | None
  replacement: bool
  drop_remainder: bool
  weighting: str
  client_dropout: float
  max_update_norm: float | None
  max_update_action: str
  evaluate: EvaluateFn | None
  eval_every: int
  trace: Sequence[str]
  client_map: str
  client_chunk: int | None
  client_memory: str
  client_devices: int | None
  upload: Upload | optax.GradientTransformation | None
  fault: Fault | None
  aggregator: Aggregator | None
  precision: str


DEFAULTS = Settings(
  cohort_size=None,
  sampler="uniform",
  batch_size=32,
  local_epochs=None,
  local_steps=None,
  replacement=False,
  drop_remainder=False,
  weighting="examples",
  client_dropout=0.0,
  max_update_norm=None,
  max_update_action="reject",
  evaluate=None,
  eval_every=10,
  trace=(),
  client_map="auto",
  client_chunk=None,
  client_memory="auto",
  client_devices=None,
  upload=None,
  fault=None,
  aggregator=None,
  precision="float32",
)
# How rounds are computed. Results do not depend on it, but for rounding.
HOW = ("client_map", "client_chunk", "client_memory", "client_devices")


@dataclasses.dataclass(frozen=True)
class Config:
  """The settings of a run, resolved; static in the compiled program.

  Attributes:
    num_clients: M.
    cohort_size: C.
    sampler: who takes part.
    plan: how clients go through their examples.
    by_examples: whether a client weighs as many as it has examples in means;
      all weigh the same if not.
    client_dropout: probability that a client drops out of a round.
    max_update_norm: the largest norm of a message, or None.
    max_update_action: 'reject' or 'clip', of longer messages.
    chunk: how many clients are vectorized at a time, on each device.
    trace: fields of the client rule's state to record at each local step.
    evaluate: metrics of a model, or None.
    eval_every: rounds from one evaluation to the next.
    mean_size: examples of a client, on average over the population.
    max_size: n_max, examples of the largest client.
    layout: over which devices clients and grid are.
    vmaps_points: whether the points of a grid are vectorized, or computed one
      after the other.
    grid_chunk: settings of a grid that are vectorized at a time; None for all.
    precision: in which types clients compute, see `engine.precision`.
    client_memory: 'auto', 'device' or 'host', see `engine.client_state`.
    has_secret_noise: see `Algorithm`.
  """

  num_clients: int
  cohort_size: int
  sampler: Sampler
  plan: BatchPlan
  by_examples: bool
  client_dropout: float
  max_update_norm: float | None
  max_update_action: str
  chunk: int
  trace: tuple[str, ...]
  evaluate: EvaluateFn | None
  eval_every: int
  mean_size: float
  max_size: int
  layout: sharding.Layout
  vmaps_points: bool
  grid_chunk: int | None
  precision: str
  client_memory: str
  has_secret_noise: bool = False

  @property
  def expected_size(self) -> float:
    """Clients of a round on average, those that drop out included."""
    expected = self.sampler.expected
    return self.cohort_size if expected is None else expected

  @property
  def has_points(self) -> bool:
    """Whether there is a grid, with axes [settings, seeds]."""
    return self.layout.has_points

  @property
  def clips_updates(self) -> bool:
    """Whether messages that are too long are clipped, not rejected."""
    return self.max_update_norm is not None and self.max_update_action == "clip"

  @property
  def reported_counts(self) -> tuple[str, ...]:
    """Names of counts of clients that are reported with the metrics."""
    clipped = ("clipped_clients",) if self.clips_updates else ()
    return ("rejected_clients", *clipped)

  @property
  def state_is_on_host(self) -> bool:
    """Whether the rows of what clients keep are on the host."""
    return self.client_memory == "host"

  @classmethod
  def create(
    cls,
    data: Any,
    settings: Mapping[str, Any],
    params: Params | None = None,
    *,
    num_settings: int | None = None,
    grid_devices: int | None = None,
    grid_map: str = "auto",
    grid_chunk: int | None = None,
  ) -> "Config":
    """Checks `Settings` against the data, and resolves what is 'auto'.

    Args:
      data: a `ClientData` or a `Population`; of the former `indices` and
        `sizes` may have a leading axis, of seeds.
      settings: those given, see `Settings`.
      params: the model, for what 'auto' chooses; any if None.
      num_settings: of a grid; None if there is none.
      grid_devices, grid_map, grid_chunk: see `sweep`.

    Raises:
      ValueError: naming the setting that cannot be.
      TypeError: naming one that is unknown or of a wrong type.
    """
    check_names(settings, DEFAULTS)
    of_grid = {
      "grid_map": grid_map,
      "grid_chunk": grid_chunk,
      "grid_devices": grid_devices,
    }
    given = DEFAULTS | settings | of_grid
    sizes = np.asarray(data.sizes)
    num_clients = sizes.shape[-1]
    cohort_size = _cohort_size(given["cohort_size"], num_clients)
    check_kinds(given, DEFAULTS | {"grid_map": "auto"})
    plan = _plan(given, sizes)
    mesh = sharding.make_mesh(
      given["client_devices"], grid_devices, num_settings or 1, cohort_size
    )
    layout = sharding.Layout(mesh, has_points=num_settings is not None)
    chunk = chunk_size(
      given["client_map"],
      given["client_chunk"],
      typical_steps(plan.num_steps(sizes), cohort_size),
      layout.client_devices,
      params=params,
      batch_size=plan.batch_size,
    )
    return cls(
      num_clients=num_clients,
      cohort_size=cohort_size,
      sampler=resolve(given["sampler"], num_clients, cohort_size),
      plan=plan,
      by_examples=given["weighting"] == "examples",
      chunk=chunk,
      trace=tuple(given["trace"]),
      mean_size=float(np.mean(sizes)),
      max_size=data.max_size,
      layout=layout,
      vmaps_points=_vmaps_points(grid_map, grid_chunk, params, plan),
      grid_chunk=grid_chunk,
      **{name: given[name] for name in _TAKEN_OVER},
    )


# Settings that need no more than a check.
_TAKEN_OVER = (
  "client_dropout",
  "max_update_norm",
  "max_update_action",
  "evaluate",
  "eval_every",
  "precision",
  "client_memory",
)


def _plan(given: Mapping[str, Any], sizes: np.ndarray) -> BatchPlan:
  return BatchPlan.create(
    sizes,
    given["batch_size"],
    given["local_epochs"],
    given["local_steps"],
    given["replacement"],
    given["drop_remainder"],
  )


def check_grid_map(grid_map: str, grid_chunk: int | None) -> None:
  """That these arguments of `sweep` can be.

  Raises:
    ValueError: naming the one that cannot.
  """
  of_grid = {"grid_map": grid_map, "grid_chunk": grid_chunk}
  check_kinds(DEFAULTS | of_grid, DEFAULTS | {"grid_map": "auto"})


def _vmaps_points(grid_map, grid_chunk, params, plan):
  """Whether points are vectorized."""
  if grid_map == "auto" and grid_chunk is None:
    return is_faster_vmapped(params, plan.batch_size)
  return grid_map != "scan"


def _cohort_size(cohort_size: int | None, num_clients: int) -> int:
  if cohort_size is None:
    return num_clients
  checks.whole("cohort_size", cohort_size)
  if not 1 <= cohort_size <= num_clients:
    raise ValueError(
      f"cohort_size={cohort_size}: must be from 1 to the number of clients, "
      f"{num_clients}"
    )
  return int(cohort_size)
