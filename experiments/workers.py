"""Several cells at a time: each in a process of its own, on one core.

Where one ends, by Ctrl-C, SIGTERM or a failure, all end: no process stays
behind, and none takes another cell.
"""

import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.util
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from experiments import command

_GRACE = 20  # Seconds that a run has to save a checkpoint.


class RunFailed(Exception):
  """A run failed, with what it said."""


def run_all(
  run_cell: Callable[[Any, Any], Any],
  cells: Sequence[Any],
  where: Any,
  jobs: int,
) -> Iterator[Any]:
  """Yields what `run_cell(cell, where)` returns, in the order of their ends.

  Args:
    run_cell: a function of a module.
    cells: which.
    where: what all cells are given.
    jobs: cells at a time. One runs in this process, so that cells share what
      was compiled.

  Raises:
    KeyboardInterrupt: by Ctrl-C or SIGTERM, of this process or of a worker.
    RunFailed: if a run failed, with what it said.
  """
  if jobs == 1:
    for cell in cells:
      yield run_cell(cell, where)
    return
  context = multiprocessing.get_context("spawn")
  pool = concurrent.futures.ProcessPoolExecutor(jobs, context, _begin)

  def end():
    _end([*(pool._processes or {}).values()])
    # What a process does at an orderly end; else semaphores leak, and Python
    # says so.
    multiprocessing.util._run_finalizers(0)

  with command.ended_by(end):
    try:
      with _signals_wait():  # The workers inherit that: they are for this one.
        waiting = [pool.submit(_run, run_cell, each, where) for each in cells]
      for done in concurrent.futures.as_completed(waiting):
        yield done.result()
    except BrokenProcessPool:
      raise RunFailed(
        "a worker process ended by itself (was it out of memory?); the same "
        "command goes on, with fewer --jobs if need be"
      ) from None
    finally:
      # Those of this pool alone: the caller may have other children.
      workers = [*(pool._processes or {}).values()]
      pool.shutdown(wait=False, cancel_futures=True)
      _end(workers)


def _end(workers: Sequence[multiprocessing.Process]) -> None:
  """Ends the workers, of which some may be in the middle of a run."""
  for worker in workers:
    worker.terminate()  # A run with checkpoints saves one.
  for worker in workers:
    worker.join(_GRACE)
    if worker.is_alive():
      worker.kill()


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
  """What a terminal sends to all is answered after this, and never by a process
  that is begun in it."""
  of_terminal = {signal.SIGINT, signal.SIGHUP}
  before = signal.pthread_sigmask(signal.SIG_BLOCK, of_terminal)
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


# In a worker.


def _begin() -> None:
  """Begins a worker, which ends with its parent even if that is killed."""
  command.begin()
  command.says_nothing()
  # Read where JAX first asks for a device.
  flags = os.environ.get("XLA_FLAGS", "")
  os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false"
  threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
  multiprocessing.parent_process().join()
  os._exit(1)


def _run(run_cell: Callable, cell: Any, where: Any) -> Any:
  try:
    return run_cell(cell, where)
  except KeyboardInterrupt as error:  # It saved what it had.
    command.exit_now(command.status_of(error) - 128)
