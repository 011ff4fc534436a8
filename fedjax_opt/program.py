"""What shapes the compiled program of a simulation, checked once."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from fedjax_opt.base import Batch, Params
from fedjax_opt.batches import BatchPlan
from fedjax_opt.data.clients import ClientData

# (params, data, test) -> {name: scalar}, inside the compiled program.
EvaluateFn = Callable[[Params, ClientData, Batch | None], dict[str, jax.Array]]


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
    traffic: filled in while tracing: `bytes_down`, `bytes_up` per client.
  """

  cohort_size: int
  plan: BatchPlan
  by_examples: bool
  chunk: int
  trace: tuple[str, ...]
  evaluate: EvaluateFn | None
  eval_every: int
  traffic: dict[str, int] = dataclasses.field(default_factory=dict)

  @classmethod
  def create(
    cls,
    data: ClientData,
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
  ) -> "Program":
    """Checks the settings of `simulate` against the data.

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
    if weighting not in ("examples", "uniform"):
      raise ValueError(
        f"weighting={weighting!r}: must be 'examples' or 'uniform'"
      )
    if eval_every < 1:
      raise ValueError(f"eval_every={eval_every}: must be at least 1")
    plan = BatchPlan.create(
      sizes, batch_size, local_epochs, local_steps, replacement, drop_remainder
    )
    return cls(
      cohort_size=cohort_size,
      plan=plan,
      by_examples=weighting == "examples",
      chunk=_chunk_size(client_map, client_chunk, cohort_size),
      trace=tuple(trace),
      evaluate=evaluate,
      eval_every=eval_every,
    )


def _chunk_size(client_map, client_chunk, cohort_size):
  """How many clients to compute side by side."""
  if client_map not in ("auto", "vmap", "scan"):
    raise ValueError(
      f"client_map={client_map!r}: must be 'auto', 'vmap' or 'scan'"
    )
  if client_chunk is not None:
    if client_chunk < 1:
      raise ValueError(f"client_chunk={client_chunk}: must be at least 1")
    if client_map == "scan":
      raise ValueError(
        f"client_chunk={client_chunk} with client_map='scan': scan takes one "
        "client after the other; use 'vmap' or 'auto'"
      )
    return min(client_chunk, cohort_size)
  if client_map == "auto":
    # Side by side, the models of all clients leave the caches and their matrix
    # products become small batched ones: on CPU one after the other is faster
    # for every model measured (see benchmarks/). A GPU or TPU must be filled.
    client_map = "scan" if jax.default_backend() == "cpu" else "vmap"
  return 1 if client_map == "scan" else cohort_size
