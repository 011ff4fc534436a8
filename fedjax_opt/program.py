"""What shapes the compiled program of a simulation, checked once."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
import optax

from fedjax_opt.base import Batch, Params
from fedjax_opt.batches import BatchPlan
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.precision import PRECISIONS
from fedjax_opt.registry import check_choice
from fedjax_opt.sharding import Layout, make_mesh

# (params, data, test) -> {name: scalar}, inside the compiled program.
EvaluateFn = Callable[[Params, ClientData, Batch | None], dict[str, jax.Array]]


class Phase(NamedTuple):
  """What one client of a phase exchanges with the server."""

  bytes_down: int
  bytes_up: int
  label: str  # "" for all that is not counted apart


@dataclasses.dataclass(frozen=True)
class Program:
  """What shapes the compiled program; static.

  Attributes:
    cohort_size: C, clients drawn per round.
    plan: how clients go through their examples.
    by_examples: whether a client weighs as many as it has examples in the
      cohort's means; all weigh the same if not.
    chunk: how many clients are computed side by side; the chunks follow one
      another.
    trace: fields of the client rule's state to record at each local step.
    evaluate: metrics of a model, or None.
    eval_every: rounds from one evaluation to the next.
    mean_size: examples of a client, on average over the population.
    client_dropout: how likely a client drops out of a round.
    layout: over which devices the clients, or the settings of a grid, are.
    precision: in which types clients compute, see `precision`.
    client_memory: where what clients keep between rounds is, see `host_memory`.
    phases: filled in while tracing: what each phase of a round exchanges.
  """

  cohort_size: int
  plan: BatchPlan
  by_examples: bool
  chunk: int
  trace: tuple[str, ...]
  evaluate: EvaluateFn | None
  eval_every: int
  mean_size: float
  client_dropout: float = 0.0
  layout: Layout = dataclasses.field(default_factory=Layout)
  precision: str = "float32"
  client_memory: str = "auto"
  phases: dict[int, Phase] = dataclasses.field(default_factory=dict)

  @classmethod
  def create(
    cls,
    data: ClientData | Population,
    params: Params | None = None,
    *,
    cohort_size: int | None = None,
    batch_size: int = 32,
    local_epochs: float | None = None,
    local_steps: int | None = None,
    replacement: bool = False,
    drop_remainder: bool = False,
    weighting: str = "examples",
    client_map: str = "auto",
    client_chunk: int | None = None,
    trace: Sequence[str] = (),
    evaluate: EvaluateFn | None = None,
    eval_every: int = 10,
    client_dropout: float = 0.0,
    client_devices: int | None = None,
    grid_devices: int | None = None,
    num_settings: int | None = None,
    precision: str = "float32",
    client_memory: str = "auto",
  ) -> "Program":
    """Checks the settings of `simulate` against the data.

    Args:
      data: the clients' examples; `indices` and `sizes` may be stacked over
        grid points.
      params: the model, for what 'auto' chooses; any if None.
      num_settings: of a grid; None if there is none.
      ...: the others as in `simulate`.

    Raises:
      ValueError: naming the setting that cannot be.
    """
    sizes = np.asarray(data.sizes)
    population = sizes.shape[-1]
    cohort_size = population if cohort_size is None else cohort_size
    if not 1 <= cohort_size <= population:
      raise ValueError(
        f"cohort_size={cohort_size}: must be from 1 to the number of clients, "
        f"{population}"
      )
    check_choice("weighting", weighting, ("examples", "uniform"))
    check_choice("precision", precision, PRECISIONS)
    check_choice("client_memory", client_memory, ("auto", "device", "host"))
    if eval_every < 1:
      raise ValueError(f"eval_every={eval_every}: must be at least 1")
    if not 0 <= client_dropout < 1:
      raise ValueError(f"client_dropout={client_dropout:g}: must be in [0, 1)")
    plan = BatchPlan.create(
      sizes, batch_size, local_epochs, local_steps, replacement, drop_remainder
    )
    mesh = make_mesh(
      client_devices,
      grid_devices,
      num_settings=1 if num_settings is None else num_settings,
      cohort_size=cohort_size,
    )
    layout = Layout(mesh, by_grid=num_settings is not None)
    steps = _typical_steps(plan.num_steps(sizes), cohort_size)
    chunk = _chunk_size(
      client_map,
      client_chunk,
      steps,
      layout.client_devices,
      fastest=_fastest_side_by_side(params, batch_size),
    )
    return cls(
      cohort_size=cohort_size,
      plan=plan,
      by_examples=weighting == "examples",
      chunk=chunk,
      trace=tuple(trace),
      evaluate=evaluate,
      eval_every=eval_every,
      mean_size=float(np.mean(sizes)),
      client_dropout=client_dropout,
      layout=layout,
      precision=precision,
      client_memory=client_memory,
    )


# Parameters x batch size below which a local step counts as small.
_SMALL_STEP = 1e6


def is_faster_side_by_side(params: Params | None, batch_size: int) -> bool:
  """Whether models are better trained side by side than one after the other.

  Side by side fills a GPU or a TPU. On CPU it pays where a step is so small
  that starting its operations is what costs; larger models leave the caches,
  and their matrix products become small batched ones, which are slower than
  plain ones (measured by `benchmarks/round_time.py`).

  Args:
    params: one model; large if None.
    batch_size: B.
  """
  if jax.default_backend() != "cpu":
    return True
  if params is None:
    return False
  return optax.tree.size(params) * batch_size < _SMALL_STEP


# Of small models so many are never too many side by side, on CPU.
_FEW = 16


def _fastest_side_by_side(params, batch_size):
  """How many clients side by side are fastest; None for all of any cohort.

  On CPU the models and batches of a step should stay in the caches, together:
  1,000 clients of least squares in 1,024 dimensions take twice as long all at
  once as a hundred at a time (measured by `benchmarks/scaling.py`).
  """
  if not is_faster_side_by_side(params, batch_size):
    return 1
  if jax.default_backend() != "cpu":
    return None
  size = max(optax.tree.size(params), 1)
  return max(_FEW, int(_SMALL_STEP / (size * batch_size)))


def _typical_steps(num_steps, cohort_size):
  """[C] local steps of a cohort, the most first: quantiles of all clients'."""
  steps = -np.sort(-num_steps, axis=None)
  places = (np.arange(cohort_size) + 0.5) / cohort_size
  return steps[(places * len(steps)).astype(int)]


# The part of the local steps that may be padding before 'auto' computes fewer
# clients at a time.
_MUCH_WASTE = 0.25


def _waste(steps, at_once):
  """The part that is padding if so many are computed at a time."""
  slowest = steps[::at_once]
  return 1 - np.sum(steps) / max(np.sum(slowest) * at_once, 1)


def _chunk_size(client_map, client_chunk, steps, devices, fastest):
  """How many clients each device computes side by side."""
  at_most = -(-len(steps) // devices)
  check_choice("client_map", client_map, ("auto", "vmap", "scan"))
  if client_chunk is not None:
    if client_chunk < 1:
      raise ValueError(f"client_chunk={client_chunk}: must be at least 1")
    if client_map == "scan":
      raise ValueError(
        f"client_chunk={client_chunk} with client_map='scan': scan takes one "
        "client after the other; use 'vmap' or 'auto'"
      )
    return min(client_chunk, at_most)
  if client_map == "vmap":
    return at_most
  if client_map == "scan" or fastest == 1:
    return 1
  if fastest is not None and at_most > fastest:
    at_most = -(-at_most // -(-at_most // fastest))  # Chunks of a size.
  # Clients of very different sizes: the largest chunks that waste little, but
  # no more than eight of them.
  chunks = [-(-at_most // parts) for parts in (1, 2, 4, 8)]
  fit = [c for c in chunks if _waste(steps, c * devices) <= _MUCH_WASTE]
  return (fit or chunks[-1:])[0]
