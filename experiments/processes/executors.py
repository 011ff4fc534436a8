"""Cells on other machines, by the executor of a library that has one.

--executor=dask:HOST:PORT uses the workers of a Dask scheduler. If a worker
dies, another one runs its cell. --executor=submitit:slurm makes each cell a job
of Slurm. Parameters of the jobs follow after commas, as in
submitit:slurm,timeout_min=600,slurm_partition=gpu. submitit:local uses
processes of this machine. A job that Slurm stops is queued again.

All machines must see the same folders, work in the same one, and have this
package. A cell whose worker stopped resumes from its last checkpoint, if it has
any.
"""

import contextlib
import functools
import gc
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from experiments.processes import command, failures, workers
from experiments.processes.command import RunFailed
from experiments.processes.failures import CellFailed
from fedjax_opt.checks import errors
from fedjax_opt.engine import compilation

_WAIT = 30  # Seconds until a scheduler answers.
_PROGRAMS = 50  # If cells have left so many in memory, all are freed.


class CellExecutor(NamedTuple):
  """What runs cells.

  Attributes:
    submit: `(function, *arguments) -> future`.
    as_completed: futures -> the same futures in the order in which they end.
    end: cancels what is not done.
  """

  submit: Callable[..., Any]
  as_completed: Callable[[Iterable[Any]], Iterable[Any]]
  end: Callable[[], None]


def check(executor: str | None) -> None:
  """Checks the name of an executor, and its library; asks no other machine.

  Raises:
    ValueError: if the name is invalid.
    ImportError: if the library is not installed.
  """
  if executor is None:
    return
  kind, _, details = executor.partition(":")
  if kind not in _POOLS or not details:
    raise ValueError(
      f"executor={executor!r}: must be dask:HOST:PORT, or submitit:slurm or "
      "submitit:local, perhaps with parameters after commas"
    )
  if kind == "submitit":
    _parameters(executor)
  module, _ = _POOLS[kind]
  errors.imported(module, f"executor={executor}", "fedjax_opt[clusters]")


def map_cells(
  run_cell: Callable[[Any, Any], Any],
  cells: Sequence[Any],
  shared: Any,
  jobs: int,
  executor: str | None,
  folder: pathlib.Path,
) -> Iterator[Any]:
  """Yields what `run_cell(cell, shared)` returns, in the order of their ends.

  Args:
    run_cell: a function of a module.
    cells: which.
    shared: what all cells are given.
    jobs: cells at a time on this machine, see `workers.map_cells`.
    executor: what runs them instead, see `check`.
    folder: where an executor may write the output of its workers.

  Raises:
    RunFailed: if a run failed, or the executor does not answer.
  """
  run_cell = functools.partial(_run, run_cell)
  if executor is None:
    yield from workers.map_cells(run_cell, cells, shared, jobs)
    return
  _, make = _POOLS[executor.partition(":")[0]]
  try:
    pool = make(executor, folder)
  except OSError as error:
    raise RunFailed(
      f"executor={executor!r}: does not answer ({error})"
    ) from None
  except (RuntimeError, AssertionError, TypeError) as error:
    # submitit's words: no such cluster here, or a parameter of a wrong type.
    why = errors.first_line(error)
    raise ValueError(f"executor={executor!r}: cannot be used ({why})") from None
  with command.calling_on_signal(pool.end):
    try:
      run_apart = functools.partial(_run_apart, run_cell)
      futures = [pool.submit(run_apart, cell, shared) for cell in cells]
      for future in pool.as_completed(futures):
        yield _result(future)
    finally:
      pool.end()


def _run(run_cell: Callable[[Any, Any], Any], cell: Any, shared: Any) -> Any:
  """Runs a cell; after some cells of a process, frees what they left.

  Programs are kept for cells that share them, and JAX keeps what it has traced
  for each shape. A queue of hundreds of cells would grow by both.
  """
  result = run_cell(cell, shared)
  if compilation.num_compiled() >= _PROGRAMS:
    compilation.clear()
    jax.clear_caches()
    gc.collect()
  return result


def _run_apart(run_cell: Callable[..., Any], *arguments: Any) -> Any:
  try:
    return run_cell(*arguments)
  except Exception as error:
    raise failures.across_processes(error) from None


def _result(future: Any) -> Any:
  try:
    return future.result()
  except (RunFailed, CellFailed):
    raise
  except Exception as error:  # From the library, or from JAX elsewhere.
    # submitit shows the whole traceback, which ends with the error.
    error_lines = re.findall(r"^[\w.]+: .+", str(error), re.MULTILINE)
    line = error_lines[-1] if error_lines else errors.first_line(error)
    line = line.removeprefix(f"{RunFailed.__module__}.RunFailed: ")
    raise RunFailed(f"a cell failed: {line}") from error


def _dask(executor: str, folder: pathlib.Path) -> CellExecutor:
  import distributed  # Only where it is asked for.

  del folder
  address = executor.partition(":")[2]
  client = distributed.Client(address, timeout=_WAIT, set_as_default=False)
  submit = functools.partial(client.submit, pure=False)
  futures: list[Any] = []

  def as_completed(cell_futures):
    futures.extend(cell_futures)
    for future in distributed.as_completed(cell_futures, loop=client.loop):
      yield future
      # Otherwise the finished cells of a worker that dies would run again.
      future.release()

  def end():
    with contextlib.suppress(Exception):
      client.cancel([future for future in futures if not future.done()])
      client.close(timeout=_WAIT)

  return CellExecutor(submit, as_completed, end)


def _submitit(executor: str, folder: pathlib.Path) -> CellExecutor:
  import submitit  # Only where it is asked for.

  cluster, parameters = _parameters(executor)
  logs = folder.absolute() / "submitit"
  of_cluster = submitit.AutoExecutor(folder=logs, cluster=cluster)
  of_cluster.update_parameters(**parameters)
  jobs: list[Any] = []

  def submit(function, *arguments):
    jobs.append(of_cluster.submit(_Again(function), *arguments))
    return jobs[-1]

  def end():
    for job in jobs:
      if not job.done():
        job.cancel(check=False)

  return CellExecutor(submit, submitit.helpers.as_completed, end)


class _Again:
  """A function that submitit submits again after its job was stopped."""

  def __init__(self, function: Callable[..., Any]):
    self._function = function

  def __call__(self, *arguments: Any) -> Any:
    return self._function(*arguments)

  def checkpoint(self, *arguments: Any) -> Any:
    """The call that is submitted again."""
    import submitit

    return submitit.helpers.DelayedSubmission(self, *arguments)


def _parameters(executor: str) -> tuple[str, dict[str, int | str]]:
  """The cluster, and the parameters of its jobs."""
  cluster, *texts = executor.partition(":")[2].split(",")
  if cluster not in ("slurm", "local"):
    raise ValueError(
      f"executor={executor!r}: must have slurm or local after submitit:"
    )
  parameters: dict[str, int | str] = {"timeout_min": 24 * 60}
  for text in texts:
    name, equals_sign, value = text.partition("=")
    if not equals_sign:
      raise ValueError(
        f"executor={executor!r}: {text!r} must be NAME=VALUE, such as "
        "timeout_min=600"
      )
    parameters[name] = int(value) if value.isdecimal() else value
  return cluster, parameters


# Kind -> the library that it needs, and the function from a text to a pool.
_POOLS: dict[str, tuple[str, Callable[[str, pathlib.Path], CellExecutor]]] = {
  "dask": ("distributed", _dask),
  "submitit": ("submitit", _submitit),
}
