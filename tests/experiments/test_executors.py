"""Cells of studies by the executors of Dask and submitit."""

import contextlib
import os
import re
import signal
import threading
import time

import pytest

from experiments import executors, workers
from tests.experiments import some_cells


@pytest.fixture(scope="module")
def scheduler():
  """The address of two workers of Dask, each a process."""
  distributed = pytest.importorskip("distributed")
  with distributed.LocalCluster(
    n_workers=2,
    threads_per_worker=1,
    dashboard_address=None,
    # Nothing but the loopback device.
    host="127.0.0.1",
  ) as cluster:
    yield f"dask:{cluster.scheduler_address.removeprefix('tcp://')}"


def run(cell, cells, folder, executor):
  return list(executors.run_all(cell, cells, folder, 1, executor, folder))


def test_a_killed_worker_has_its_cell_done_by_another(scheduler, tmp_path):
  def kill():
    end = time.monotonic() + 30
    while time.monotonic() < end:
      with contextlib.suppress(OSError, ValueError):
        os.kill(int((tmp_path / "0").read_text()), signal.SIGKILL)
        return
      time.sleep(0.1)

  killer = threading.Thread(target=kill)
  killer.start()
  found = run(some_cells.second_time, range(6), tmp_path, scheduler)
  killer.join()
  assert sorted(found) == list(range(6))
  times = [len((tmp_path / f"{i}").read_text().split()) for i in range(6)]
  # Beside the cell that was lost its worker had at most one more in hand.
  assert times[0] == 2
  assert sum(times) <= 8


def test_what_fails_on_a_worker_is_one_line(scheduler, tmp_path):
  with pytest.raises(workers.RunFailed, match="of no use"):
    run(some_cells.fail, [0], tmp_path, scheduler)


@pytest.mark.slow
def test_jobs_of_submitit(tmp_path):
  pytest.importorskip("submitit")
  found = run(some_cells.square, range(3), tmp_path, "submitit:local")
  assert sorted(found) == [0, 1, 4]
  with pytest.raises(workers.RunFailed, match="of no use"):
    run(some_cells.fail, [0], tmp_path, "submitit:local,timeout_min=2")


def test_a_scheduler_that_is_not_there(tmp_path, monkeypatch):
  pytest.importorskip("distributed")
  monkeypatch.setattr(executors, "_WAIT", 1)
  with pytest.raises(workers.RunFailed, match="does not answer"):
    run(some_cells.square, [1], tmp_path, "dask:127.0.0.1:1")


@pytest.mark.parametrize(
  ("executor", "message"),
  [
    ("ray:1", "executor='ray:1': must be dask:HOST:PORT, or submitit:slurm"),
    ("dask", "executor='dask': must be dask:HOST:PORT"),
    ("submitit:pbs", "must have slurm or local after submitit:"),
    ("submitit:slurm,gpu", "'gpu' must be NAME=VALUE, such as timeout_min="),
  ],
)
def test_what_is_no_executor(executor, message):
  pytest.importorskip("submitit")
  with pytest.raises(ValueError, match=re.escape(message)):
    executors.check(executor)
