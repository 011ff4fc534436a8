"""How many clients of a cohort are vectorized at a time."""

import jax
import numpy as np

from fedjax_opt import multi_process
from fedjax_opt.arrays import target, trees
from fedjax_opt.base import Params

# Parameters x batch size below which a local step counts as small.
_SMALL_STEP = 1e6
# On CPU, at least this many clients of a small model are vectorized.
_FEWEST_ON_CPU = 16
# Copies of the model in memory: for the server, and for each vectorized
# client. Compiled for a TPU v5e, a transformer of 134M parameters
# (0.54 GB) took 3.5 GB for one client and 19.0 GB for ten. The memory for
# batches is known once the program is compiled, see `RunPrograms.compile`.
_OF_SERVER, _OF_CLIENT = 3.0, 3.5


def fastest_vmapped(params: Params | None, batch_size: int) -> int | None:
  """How many models to train at a time for speed; None for all of them.

  Vectorization fills a GPU or a TPU. On CPU it pays only for small steps, most
  of whose time goes into starting operations. Larger models that are vectorized
  do not fit into the caches, and their matrix products become small batched
  ones, which are slower than plain ones (measured by
  `benchmarks/round_time.py`). The models and batches of a step should stay in
  the caches together: 1,000 clients of least squares in 1,024 dimensions take
  twice as long if all are vectorized as they do a hundred at a time (measured
  by `benchmarks/scaling.py`).

  Args:
    params: one model; large if None.
    batch_size: B.
  """
  if target.platform() != "cpu":
    return None
  if params is None:
    return 1
  size = sum(leaf.size for leaf in jax.tree.leaves(params)) * batch_size
  if size >= _SMALL_STEP:
    return 1
  return max(_FEWEST_ON_CPU, int(_SMALL_STEP / max(size, batch_size)))


def most_in_memory(params: Params | None) -> int:
  """How many clients at a time fit into a device, by the model's size."""
  memory, size = target.device_bytes(), trees.num_bytes(params)
  count = np.iinfo(np.int32).max
  if memory is not None and size:
    models = memory / size
    count = min(count, max(1, int((models - _OF_SERVER) / _OF_CLIENT)))
  # All processes must run the same program.
  return multi_process.least_of_processes(count)


def largest_that_fits(chunk: int, needed: int, available: int | None) -> int:
  """How many vectorized clients or points fit into memory, at least one.

  Args:
    chunk: how many there are.
    needed: bytes that they need together.
    available: bytes that there are; None if that is not known.
  """
  if available is not None and needed > available:
    chunk = max(1, min(int(chunk * available / max(needed, 1)), chunk - 1))
  # All processes must run the same program.
  return multi_process.least_of_processes(chunk)


def typical_steps(num_steps, cohort_size):
  """[C] local steps of a typical cohort, the most first.

  They are evenly spaced quantiles of all clients' numbers of steps.
  """
  steps = -np.sort(-num_steps, axis=None)
  ranks = (np.arange(cohort_size) + 0.5) / cohort_size
  return steps[(ranks * len(steps)).astype(int)]


# If more than this part of the local steps is padding, 'auto' computes fewer
# clients at a time.
_MUCH_WASTE = 0.25


def _waste(steps, at_once):
  """The part of all steps that is padding, with `at_once` clients at a time."""
  slowest = steps[::at_once]
  return 1 - np.sum(steps) / max(np.sum(slowest) * at_once, 1)


def even_chunk(number: int, most: int) -> int:
  """The size of the chunks: as few as possible, about equally large.

  Args:
    number: how many clients.
    most: clients in a chunk.
  """
  return -(-number // -(-number // most))


def chunk_size(
  client_map: str,
  client_chunk: int | None,
  steps: np.ndarray,
  devices: int,
  params: Params | None = None,
  batch_size: int = 1,
  model_devices: int = 1,
) -> int:
  """How many clients each device vectorizes at a time.

  Args:
    client_map: see `RunOptions`.
    client_chunk: see `RunOptions`.
    steps: [C] local steps of a typical cohort, the most first.
    devices: number of devices that the cohort is divided over.
    params: the model; large if None.
    batch_size: B.
    model_devices: number of devices that each model is divided over.
  """
  at_most = -(-len(steps) // devices)
  fastest = fastest_vmapped(params, batch_size)
  if client_chunk is not None:
    return min(client_chunk, at_most)
  if client_map == "vmap":
    return at_most
  # A model that is divided is large. With one client at a time, devices
  # exchange and move less data, as programs compiled for a TPU show
  # (docs/compiled.md).
  if client_map == "scan" or fastest == 1 or model_devices > 1:
    return 1
  most = most_in_memory(params)
  at_most = even_chunk(at_most, min(fastest or most, most))
  # If clients differ much in size: the largest chunks with little padding, but
  # at most eight chunks.
  for num_chunks in (1, 2, 4, 8):
    chunk = -(-at_most // num_chunks)
    if _waste(steps, chunk * devices) <= _MUCH_WASTE:
      break
  return chunk
