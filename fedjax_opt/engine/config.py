"""The options of a run, resolved: `Config`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_opt.arrays import sharding
from fedjax_opt.base import EvaluateFn, Params
from fedjax_opt.checks.values import brief, check_integer
from fedjax_opt.engine.batch_plan import BatchPlan, default_batch_size
from fedjax_opt.engine.chunks import (
  chunk_size,
  fastest_vmapped,
  typical_steps,
)
from fedjax_opt.engine.clock import Clock
from fedjax_opt.engine.run_options import (
  GRID_DEFAULTS,
  check_option_names,
  check_options,
)
from fedjax_opt.samplers import Sampler, resolve

# A buffer of more rounds takes memory, and saves no time.
_MOST_ROUNDS = 1000


@dataclasses.dataclass(frozen=True)
class Config:
  """The options of a run, resolved; static in the compiled program.

  Attributes:
    num_clients: M.
    cohort_size: C.
    sampler: who takes part.
    plan: how clients go through their examples.
    weights_by_examples: whether a client's weight in means is its number of
      examples; if not, all weigh the same.
    client_dropout: probability that a client drops out of a round.
    max_update_norm: the largest norm of a message, or None.
    max_update_action: 'reject' or 'clip', of longer messages.
    client_chunk: how many clients are vectorized at a time, on each device.
    chooses_client_chunk: whether 'auto' chose it.
    trace: fields of the client rule's state to record at each local step.
    evaluate: metrics of a model, or None.
    eval_every: rounds from one evaluation to the next.
    mean_sizes: examples of a client, on average over the population of each
      seed; one number if seeds share the clients.
    seeds_differ: whether the mean size or the most local steps of a client are
      others for one seed than for another; `plan` has those of all seeds.
    max_size: n_max, examples of the largest client.
    layout: the devices over which clients and grid are divided.
    vmaps_points: whether the points of a grid are vectorized; if not, they are
      computed one after the other.
    grid_chunk: settings of a grid that are vectorized at a time; None for all.
    precision: the types in which clients compute, see `traced.precision`.
    client_memory: 'auto', 'device' or 'host', see `engine.client_state`.
    has_secret_noise: see `Algorithm`.
    costs_differ: see `Algorithm`.
    clock: the clock of a schedule, else None.
  """

  num_clients: int
  cohort_size: int
  sampler: Sampler
  plan: BatchPlan
  weights_by_examples: bool
  client_dropout: float
  max_update_norm: float | None
  max_update_action: str
  client_chunk: int
  trace: tuple[str, ...]
  evaluate: EvaluateFn | None
  eval_every: int
  mean_sizes: tuple[float, ...]
  seeds_differ: bool
  max_size: int
  layout: sharding.Layout
  vmaps_points: bool
  grid_chunk: int | None
  precision: str
  client_memory: str
  chooses_client_chunk: bool = False
  has_secret_noise: bool = False
  costs_differ: bool = False
  clock: Clock | None = None

  @property
  def segment_rounds(self) -> int:
    """The most rounds that run before the program returns to the host.

    Buffers, such as those of traces, have a row for each of them.
    """
    return min(self.eval_every, _MOST_ROUNDS)

  @property
  def has_empty_places(self) -> bool:
    """Whether a cohort may have fewer clients than it has places."""
    if self.clock is not None:
      return self.clock.has_empty_places
    return self.sampler.expected is not None

  @property
  def expected_size(self) -> float:
    """Clients of a round, on average, with those that drop out.

    A schedule has its own, see `Clock.expected_sizes`.
    """
    expected = self.sampler.expected
    return self.cohort_size if expected is None else expected

  @property
  def has_axes(self) -> bool:
    """Whether there is a grid, with axes [settings, seeds]."""
    return self.layout.has_axes

  @property
  def clips_updates(self) -> bool:
    """Whether messages that are too long are clipped, not rejected."""
    return self.max_update_norm is not None and self.max_update_action == "clip"

  @property
  def reported_counts(self) -> tuple[str, ...]:
    """Names of counts of clients that are reported with the metrics."""
    clip_counts = ("clipped_clients",) if self.clips_updates else ()
    return ("rejected_clients", *clip_counts)

  @property
  def counted_events(self) -> tuple[str, ...]:
    """Names of counts that are no costs; those of a point are its own."""
    return (*self.reported_counts, "lost_rounds")

  @property
  def starts_on_host(self) -> bool:
    """Whether the first state is made on the host, as no device may hold it."""
    return self.state_is_on_host or self.layout.model_devices > 1

  @property
  def state_is_on_host(self) -> bool:
    """Whether the rows of what clients keep are on the host."""
    return self.client_memory == "host"

  @property
  def computation(self) -> dict[str, Any]:
    """The options with which another run gives the same bits as this one."""
    options = {
      "client_map": "vmap",
      "client_chunk": self.client_chunk,
      "client_memory": self.client_memory,
      "client_devices": self.layout.client_devices,
      "model_devices": self.layout.model_devices,
    }
    if not self.has_axes:
      return options
    return options | {
      "grid_map": "vmap" if self.vmaps_points else "scan",
      "grid_chunk": self.grid_chunk if self.vmaps_points else None,
      "grid_devices": self.layout.grid_devices,
    }

  @classmethod
  def create(
    cls,
    data: Any,
    options: Mapping[str, Any],
    params: Params | None = None,
    *,
    num_settings: int | None = None,
    clock: Clock | None = None,
  ) -> "Config":
    """Checks options against the data, and resolves what is 'auto'.

    Args:
      data: a `ClientData` or a `Population`; of the former `indices` and
        `sizes` may have a leading axis, of seeds.
      options: the options given, see `GridOptions`.
      params: the model, on which some choices of 'auto' depend; None if it is
        not known.
      num_settings: how many settings a grid has; None without a grid.
      clock: made from the option `schedule`; None if that was not given.

    Raises:
      ValueError: naming the invalid option.
      TypeError: naming one that is unknown or of a wrong type.
    """
    check_option_names(options, GRID_DEFAULTS)
    sizes = np.asarray(data.sizes)
    check_options(options)
    options, given = GRID_DEFAULTS | options, options
    if "batch_size" not in given:
      options["batch_size"] = default_batch_size(
        options["batch_size"],
        int(np.max(sizes)),
        options["replacement"] or options["drop_remainder"],
      )
    mean_sizes = np.atleast_1d(np.mean(sizes, axis=-1))
    num_clients = sizes.shape[-1]
    if clock is None:
      cohort_size = _cohort_size(options["cohort_size"], num_clients)
    else:
      cohort_size = clock.places  # A client may come twice.
    plan_names = ("batch_size", "local_epochs", "local_steps", "replacement")
    plan = BatchPlan.create(
      sizes, *(options[name] for name in (*plan_names, "drop_remainder"))
    )
    most_steps = np.atleast_1d(np.max(plan.num_steps(sizes), axis=-1))
    if clock is not None and clock.is_partial:
      plan = dataclasses.replace(plan, min_steps=0)
    layout = _layout(options, num_settings, cohort_size)
    chunk = chunk_size(
      options["client_map"],
      options["client_chunk"],
      typical_steps(plan.num_steps(sizes), cohort_size),
      layout.client_devices,
      params=params,
      batch_size=plan.batch_size,
      model_devices=layout.model_devices,
    )
    resolved = {
      "num_clients": num_clients,
      "cohort_size": cohort_size,
      # A schedule draws clients itself, perhaps more than there are.
      "sampler": resolve(
        options["sampler"], num_clients, min(cohort_size, num_clients)
      ),
      "plan": plan,
      "weights_by_examples": options["weighting"] == "examples",
      "client_chunk": chunk,
      "chooses_client_chunk": (options["client_map"], options["client_chunk"])
      == ("auto", None),
      "trace": tuple(options["trace"]),
      "mean_sizes": tuple(mean_sizes.tolist()),
      "seeds_differ": len({*zip(mean_sizes, most_steps, strict=True)}) > 1,
      "max_size": data.max_size,
      "layout": layout,
      "vmaps_points": _vmaps_points(options, params, plan.batch_size),
      "clock": clock,
    }
    names = [field.name for field in dataclasses.fields(cls)]
    plain_fields = {name: options[name] for name in names if name in options}
    return cls(**plain_fields | resolved)


def _layout(
  options: Mapping[str, Any], num_settings: int | None, cohort_size: int
) -> sharding.Layout:
  """The devices of clients, settings and models."""
  mesh = sharding.make_mesh(
    options["client_devices"],
    options["grid_devices"],
    num_settings or 1,
    cohort_size,
    options["model_devices"],
  )
  return sharding.Layout(
    mesh, num_settings is not None, options["model_sharding"]
  )


def _vmaps_points(
  options: Mapping[str, Any], params: Params, batch_size: int
) -> bool:
  if options["grid_map"] == "auto" and options["grid_chunk"] is None:
    return fastest_vmapped(params, batch_size) != 1
  return options["grid_map"] != "scan"


def _cohort_size(cohort_size: int | None, num_clients: int) -> int:
  if cohort_size is None:
    return num_clients
  check_integer("cohort_size", cohort_size)
  if not 1 <= cohort_size <= num_clients:
    raise ValueError(
      f"cohort_size={brief(cohort_size)}: must be from 1 to the number "
      f"of clients, {num_clients}"
    )
  return int(cohort_size)
