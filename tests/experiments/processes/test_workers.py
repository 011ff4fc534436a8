"""Several cells at a time, in processes here or of Dask and submitit."""

import collections
import contextlib
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

from experiments import compare
from experiments.processes import command, executors, workers
from experiments.studies import cell_runs
from fedjax_opt.engine import compilation
from fedjax_opt.study.report import pictures
from tests.helpers import refusals, worker_cells
from tests.helpers.commands import REPOSITORY, call
from tools import kills


def lives(pid):
  try:
    state = pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2]
  except OSError:
    return False
  return state != "Z"


def until(is_true, seconds=20):
  end = time.monotonic() + seconds
  while not (result := is_true()) and time.monotonic() < end:
    time.sleep(0.05)
  return result


def test_after_some_cells_another_process_takes_over(tmp_path, monkeypatch):
  monkeypatch.setattr(workers, "_CELLS", 2)
  pids = workers.map_cells(worker_cells.process, range(6), tmp_path, jobs=2)
  cells_of_pid = collections.Counter(pids)
  assert sorted(cells_of_pid.values()) in ([2, 2, 2], [1, 1, 2, 2])
  assert not any(map(lives, cells_of_pid))


def test_a_failure_ends_the_others(tmp_path):
  start = time.monotonic()
  with pytest.raises(workers.RunFailed, match="of no use"):
    list(workers.map_cells(worker_cells.fail, range(4), tmp_path, jobs=2))
  assert time.monotonic() - start < 30


def test_a_worker_that_dies(tmp_path):
  with pytest.raises(workers.RunFailed, match="a worker process ended by itse"):
    list(workers.map_cells(worker_cells.die, range(3), tmp_path, jobs=2))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
@pytest.mark.parametrize(
  ("number", "whom", "as_what", "status"),
  [
    (signal.SIGINT, "group", (), 130),  # As a terminal sends it.
    (signal.SIGINT, "parent", (), 130),
    (signal.SIGTERM, "parent", (), 143),
    (signal.SIGTERM, "group", (), 143),  # As Slurm and systemd send it.
    (signal.SIGTERM, "parent", ("program",), -15),
    (signal.SIGKILL, "parent", (), -9),
  ],
)
def test_signals_leave_no_process(tmp_path, number, whom, as_what, status):
  program = "tests.helpers.worker_cells"
  process = subprocess.Popen(
    [sys.executable, "-m", program, str(tmp_path), *as_what],
    cwd=REPOSITORY,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  assert until(lambda: len(list(tmp_path.iterdir())) == 2, seconds=60)
  pids = [int(path.name.split("-")[1]) for path in tmp_path.iterdir()]
  assert all(map(lives, pids))
  if whom == "group":
    os.killpg(process.pid, number)
  else:
    process.send_signal(number)
  _, err = process.communicate(timeout=30)
  assert process.returncode == status
  assert "Traceback" not in err
  assert until(lambda: not any(map(lives, pids)))
  assert len(list(tmp_path.iterdir())) == 2  # None took another cell.


def test_a_signal_while_workers_begin_is_answered_after():
  """Else a worker that is half begun waits for what the first process says."""
  answered = []
  before = signal.signal(signal.SIGTERM, lambda *_: answered.append("after"))
  try:
    with command.signals_deferred():
      signal.raise_signal(signal.SIGTERM)
      answered.append("inside")
  finally:
    signal.signal(signal.SIGTERM, before)
  assert answered == ["inside", "after"]


@jax.jit
def double(x):
  return 2 * x


def compiles(number, folder):
  """A cell: has programs of its own; says how many are there now."""
  double(np.ones(number))
  compilation.quickly_compiled(lambda x: x + number)(1.0)
  return double._cache_size(), compilation.num_compiled()


@pytest.mark.slow
def test_what_cells_have_compiled_is_freed(tmp_path, monkeypatch):
  monkeypatch.setattr(executors, "_PROGRAMS", 3)
  compilation.clear()
  counts = run(compiles, range(1, 6), tmp_path, None)
  assert tuple(map(max, zip(*counts, strict=True))) == (3, 3)


def test_other_children_of_the_caller_stay(tmp_path):
  context = multiprocessing.get_context("spawn")
  other = context.Process(target=time.sleep, args=(60,))
  other.start()
  try:
    flags = os.environ.get("XLA_FLAGS", "")
    results = workers.map_cells(worker_cells.flags, range(2), tmp_path, jobs=2)
    assert list(results) == 2 * [f"{flags} --xla_cpu_multi_thread_eigen=false"]
    assert os.environ.get("XLA_FLAGS", "") == flags
    assert other.is_alive()
  finally:
    other.kill()


# Cells of studies by the executors of Dask and submitit.


@contextlib.contextmanager
def scheduler(*, processes):
  """The address of two workers of Dask, in processes or in threads here."""
  distributed = pytest.importorskip("distributed")
  with distributed.LocalCluster(
    n_workers=2,
    threads_per_worker=1,
    processes=processes,
    protocol="tcp",
    dashboard_address=None,
    # Nothing but the loopback device.
    host="127.0.0.1",
  ) as cluster:
    yield f"dask:{cluster.scheduler_address.removeprefix('tcp://')}"


def run(cell, cells, folder, executor):
  return list(executors.map_cells(cell, cells, folder, 1, executor, folder))


@pytest.mark.slow
def test_a_killed_worker_has_only_its_cell_done_by_another(
  tmp_path, monkeypatch
):
  """A study of 40 cells: the bits of one process; only what was lost reruns."""
  flags = (
    *("--task=digits_logistic", "--num_clients=10", "--cohort_size=3"),
    *("--examples_per_client=30", "--local_steps=2", "--rounds=20"),
    *("--batch_size=10", "--report_seeds=2", "--method=scaffold"),
    *("--method=fed_avg client=sgd", "--eval_every=10"),
    "--alpha=" + ",".join(f"{n / 10}" for n in range(1, 21)),
  )
  monkeypatch.setattr(pictures, "of_study", lambda *_: [])
  start = time.monotonic()
  assert call(*flags, f"--output_dir={tmp_path / 'one'}", program=compare) == 0
  print(f"one process: {time.monotonic() - start:.0f} s")
  monkeypatch.setattr(cell_runs, "run_cell", worker_cells.counted)
  killed = []

  def is_killed():
    logs = [path.read_text().split() for path in tmp_path.glob("log-*")]
    begun = [log[-1] for log in logs if log and log[-1] != "end"]
    if begun and len(logs) - len(begun) >= 20:
      os.kill(int(begun[0]), signal.SIGKILL)
      killed.append(begun[0])
    return killed

  killer = threading.Thread(target=until, args=(is_killed, 600))
  killer.start()
  start, folder = time.monotonic(), f"--output_dir={tmp_path / 'two'}"
  with scheduler(processes=True) as address:
    flags = (*flags, f"--executor={address}")
    assert call(*flags, folder, program=compare) == 0
  killer.join()
  print(f"two workers, one killed: {time.monotonic() - start:.0f} s")
  logs = [path.read_text().split() for path in tmp_path.glob("log-*")]
  again = [log for log in logs if len(log) > 2]
  print(f"begun twice: {again}")
  assert len(logs) == 40
  # The killed worker had one cell in hand, and perhaps one just done.
  assert 1 <= len(again) <= 2
  assert {log[0] for log in again} == set(killed)
  assert all(len(log) <= 4 for log in again)
  one, two = (kills.contents(tmp_path / name) for name in ("one", "two"))
  [one_request], [two_request] = one.pop("study.json"), two.pop("study.json")
  assert one_request | {"executor": address} == two_request
  assert len([name for name in one if "summary.json" in name]) == 40
  assert one == two


def test_what_workers_give_and_what_fails_is_one_line(tmp_path):
  with scheduler(processes=False) as address:
    results = run(worker_cells.square, range(3), tmp_path, address)
    assert sorted(results) == [0, 1, 4]
    with pytest.raises(workers.RunFailed, match="of no use"):
      run(worker_cells.fail, [0], tmp_path, address)


@pytest.mark.slow
def test_jobs_of_submitit(tmp_path):
  pytest.importorskip("submitit")
  results = run(worker_cells.square, range(3), tmp_path, "submitit:local")
  assert sorted(results) == [0, 1, 4]
  with pytest.raises(workers.RunFailed, match="of no use"):
    run(worker_cells.fail, [0], tmp_path, "submitit:local,timeout_min=2")


def test_a_scheduler_that_is_not_there(tmp_path, monkeypatch):
  pytest.importorskip("distributed")
  monkeypatch.setattr(executors, "_WAIT", 1)
  with pytest.raises(workers.RunFailed, match="does not answer"):
    run(worker_cells.square, [1], tmp_path, "dask:127.0.0.1:1")


test_is_refused = refusals.of_table("executors.txt", executors)
