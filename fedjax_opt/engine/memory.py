"""What programs need of a device's memory, and what to do if it is too much."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import jax

from fedjax_opt import target
from fedjax_opt.engine import processes
from fedjax_opt.engine.config import Config


def needed_bytes(program: Any) -> int | None:
  """The memory that a compiled program needs on each of its devices.

  None where the backend does not tell.
  """
  analysis = program.memory_analysis()
  if analysis is None:
    return None
  return (
    analysis.argument_size_in_bytes
    + analysis.output_size_in_bytes
    - analysis.alias_size_in_bytes
    + analysis.temp_size_in_bytes
  )


def advise(config: Config, programs: list[Any]) -> None:
  """Warns if a program will not fit, before it is run.

  Args:
    config: static settings.
    programs: compiled.
  """
  needs = [needed_bytes(program) for program in programs]
  have = processes.device_bytes()
  if None in needs or have is None or not needs:
    return
  # Of a processor's memory a run takes half by choice, and can take all.
  limit = 2 * have if target.platform() == "cpu" else have
  if max(needs) > limit:
    warnings.warn(_text(config, max(needs), limit), stacklevel=2)


@contextlib.contextmanager
def explained(config: Config, programs: list[Any]) -> Iterator[None]:
  """Where memory may run out: says so in one line, and what to change.

  Args:
    config: static settings.
    programs: those that were compiled.

  Raises:
    MemoryError: if a device had too little memory.
  """
  try:
    yield
  except jax.errors.JaxRuntimeError as error:
    if "RESOURCE_EXHAUSTED" not in str(error):
      raise
    needs = [needed_bytes(program) for program in programs]
    known = max([n for n in needs if n is not None], default=None)
    text = _text(config, known, processes.device_bytes())
    raise MemoryError(text) from error


def _text(config: Config, needs: int | None, have: int | None) -> str:
  """What is needed, what there is, and which settings make it less."""
  said = "a device's memory is too small"
  if needs is not None and have is not None:
    said += f": a program needs {_gigabytes(needs)} of {_gigabytes(have)}"
  ways = []
  if config.chunk > 1:
    ways.append(
      f"client_chunk below {config.chunk}, the clients computed at once"
    )
  if config.has_points and config.grid_chunk != 1:
    ways.append("grid_chunk=1, the points of a grid computed at once")
  if not config.state_is_on_host:
    ways.append("client_memory='host', if clients keep a state")
  if config.precision == "float32":
    ways.append("precision='bfloat16'")
  ways.append("a smaller batch_size")
  return f"{said}; try {', or '.join(ways)}"


def _gigabytes(number: int) -> str:
  return f"{number / 1e9:.1f} GB"
