"""Several processes, on one host or on many, that do one run."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from experiments import shared_end
from fedjax_opt import processes

# After so long without a sign of it, a process counts as dead. Machines that
# are busy are late by seconds.
_SECONDS_TO_NOTICE = 20

# Of a collective, which JAX raises as this error or that one.
_LOSS = re.compile(
  "(UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|CANCELLED|DEADLINE_EXCEEDED|"
  "FAILED_PRECONDITION|DATA_LOSS): "
)


def join(flags: Mapping[str, Any], is_program: bool = False) -> None:
  """Waits for the other processes, if there are to be any.

  To be called before anything else asks for devices.

  Args:
    flags: values of all flags.
    is_program: whether this process is there for the run alone, so that it may
      end with the others.

  Raises:
    ValueError: naming the flag that cannot be, or if the others do not come.
  """
  coordinator, number = flags["coordinator"], flags["num_processes"]
  own = {n: flags[n] for n in ("num_processes", "process_id")}
  if coordinator is None:
    if flags["cluster"]:
      _start("cluster=True", is_program)
    return
  if flags["cluster"]:
    raise ValueError(
      f"coordinator={coordinator!r} with cluster: on a cluster processes find "
      "each other; give only one of them"
    )
  if not re.fullmatch(r"[^:\s]+:\d+|\[[^\]\s]+\]:\d+", coordinator):
    raise ValueError(
      f"coordinator={coordinator!r}: must be HOST:PORT, such as 10.0.0.1:1234"
    )
  for name, value in own.items():
    if value is None:
      raise ValueError(f"{name}: must be given with coordinator")
  if number < 1:
    raise ValueError(f"num_processes={number}: must be at least 1")
  if not 0 <= own["process_id"] < number:
    raise ValueError(
      f"process_id={own['process_id']}: must be from 0 to {number - 1}"
    )
  _start(
    f"coordinator={coordinator!r}",
    is_program,
    coordinator_address=coordinator,
    # Else JAX listens on all interfaces, and asks nobody who they are.
    coordinator_bind_address=coordinator,
    **own,
  )


def is_loss(error: Exception) -> bool:
  """Whether an error of JAX may come from the end of another process."""
  return jax.process_count() > 1 and bool(_LOSS.match(str(error)))


@contextlib.contextmanager
def together() -> Iterator[None]:
  """Goes on only if all processes could do what is inside.

  Raises:
    ValueError: if another process could not.
  """
  try:
    yield
  except Exception:
    processes.of_any_process(1)
    raise
  if processes.of_any_process(0):
    raise ValueError("another process cannot do this run, and says why")


def _start(what: str, is_program: bool, **arguments: Any) -> None:
  # JAX's own is 100. At the end the others may wait for the first for longer,
  # which still writes files.
  arguments["heartbeat_timeout_seconds"] = _SECONDS_TO_NOTICE
  # It would answer SIGTERM itself.
  if hasattr(jax.config, "jax_enable_preemption_service"):
    jax.config.update("jax_enable_preemption_service", False)
  if is_program:
    shared_end.watch()
  try:
    jax.distributed.initialize(**arguments)
  except (RuntimeError, ValueError) as error:
    reason = str(error).strip().splitlines() or [type(error).__name__]
    raise ValueError(f"{what}: no processes to join ({reason[0]})") from error
