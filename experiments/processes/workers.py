"""Several cells at a time: each in a process of its own, on one core.

If one ends by Ctrl-C, SIGTERM or a failure, all end: no process stays behind,
and none takes another cell.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from experiments.processes import command, failures
from experiments.processes.command import RunFailed

_GRACE = 20  # Seconds in which a run may save a checkpoint.
# Cells after which a new process takes the place of a worker: what libraries
# keep of each cell would grow.
_CELLS = 100


def map_cells(
  run_cell: Callable[[Any, Any], Any],
  cells: Sequence[Any],
  shared: Any,
  jobs: int,
) -> Iterator[Any]:
  """Yields what `run_cell(cell, shared)` returns, in the order of their ends.

  Args:
    run_cell: a function of a module.
    cells: which.
    shared: what all cells are given.
    jobs: cells at a time. With 1, all run in this process, so that they share
      compiled programs.

  Raises:
    KeyboardInterrupt: by Ctrl-C or SIGTERM, of this process.
    RunFailed: if a run failed, with what it said, or a worker ended by itself.
  """
  if jobs == 1:
    for cell in cells:
      yield run_cell(cell, shared)
    return
  waiting_cells = list(reversed(cells))
  workers: dict[Connection, _Worker] = {}

  def begin():
    with command.signals_deferred(), _terminal_blocked():
      worker = _Worker(run_cell, shared)
      workers[worker.connection] = worker
      worker.start()
      worker.give(waiting_cells.pop())

  with command.calling_on_signal(lambda: _end(workers.values())):
    try:
      # Python's helper process would receive signals while it starts.
      resource_tracker.ensure_running()
      with _dying():
        for _ in range(min(jobs, len(cells))):
          begin()
      num_left = len(cells)
      while num_left:
        for connection in wait(workers):
          worker = workers[connection]
          with _dying():
            value, error = connection.recv()
            if waiting_cells and error is None:
              if worker.num_given < _CELLS:
                worker.give(waiting_cells.pop())
              else:
                worker.end()
                del workers[connection]
                begin()
          if error is not None:
            raise error
          yield value
          num_left -= 1
    finally:
      _end(workers.values())


class _Worker:
  """A process that runs cells, seen from the first process.

  Attributes:
    connection: to it; a pipe, because a kill would leave behind other things
      that processes share.
    process: not begun before `start`.
    num_given: the cells that it was given.
  """

  def __init__(self, run_cell: Callable[[Any, Any], Any], shared: Any):
    context = multiprocessing.get_context("spawn")
    self.connection, self._its_end = context.Pipe()
    self.process = context.Process(
      target=_work, args=(self._its_end, run_cell, shared)
    )
    self.num_given = 0

  def start(self) -> None:
    """Begins the process."""
    self.process.start()
    self._its_end.close()

  def give(self, cell: Any) -> None:
    """Sends a cell to run."""
    self.connection.send(cell)
    self.num_given += 1

  def end(self) -> None:
    """Ends the process, which waits for a cell."""
    _end([self])
    self.connection.close()


@contextlib.contextmanager
def _dying() -> Iterator[None]:
  """If a pipe ends inside, raises that its worker has ended."""
  try:
    yield
  except (EOFError, ConnectionError):
    raise RunFailed(
      "a worker process ended by itself (was it out of memory?); the same "
      "command continues; with fewer --jobs it needs less memory"
    ) from None


def _end(workers: Iterable[_Worker]) -> None:
  """Ends the workers; some may be in the middle of a run."""
  processes = [worker.process for worker in workers]
  begun = [process for process in processes if process.pid is not None]
  for process in begun:
    process.terminate()  # A run with checkpoints saves one.
  for process in begun:
    process.join(_GRACE)
    if process.is_alive():
      process.kill()


@contextlib.contextmanager
def _terminal_blocked() -> Iterator[None]:
  """Processes that start inside get no signals that a terminal sends to all.

  Such signals are for the first process, which then ends the others.
  """
  of_terminal = {signal.SIGINT, signal.SIGHUP}
  former_mask = signal.pthread_sigmask(signal.SIG_BLOCK, of_terminal)
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, former_mask)


# In a worker.


def _work(connection: Connection, run_cell: Callable, shared: Any) -> None:
  """Runs the cells that come, until this process is ended."""
  _begin()
  while True:
    cell = connection.recv()
    try:
      answer = run_cell(cell, shared), None
    except KeyboardInterrupt as error:  # The run saved what it had.
      command.exit_now(command.status_of(error) - 128)
    except Exception as error:
      answer = None, failures.across_processes(error)
    connection.send(answer)


def _begin() -> None:
  """Begins a worker, which ends with its parent even if that is killed."""
  command.begin()
  command.clear_last_line()
  # JAX reads it when it first asks for a device.
  flags = os.environ.get("XLA_FLAGS", "")
  os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false"
  threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
  multiprocessing.parent_process().join()
  os._exit(1)
