"""Several cells at a time: whatever ends one process, none stays behind."""

import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from experiments import command, workers
from tests.experiments import some_cells

REPOSITORY = pathlib.Path(__file__).parents[2]


def lives(pid):
  try:
    state = pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2]
  except OSError:
    return False
  return state != "Z"


def until(is_true, seconds=20):
  end = time.monotonic() + seconds
  while not is_true() and time.monotonic() < end:
    time.sleep(0.05)
  return is_true()


def test_what_cells_give(tmp_path):
  found = workers.run_all(some_cells.square, range(5), tmp_path, jobs=2)
  assert sorted(found) == [0, 1, 4, 9, 16]


def test_a_failure_ends_the_others(tmp_path):
  start = time.monotonic()
  with pytest.raises(workers.RunFailed, match="of no use"):
    list(workers.run_all(some_cells.fail, range(4), tmp_path, jobs=2))
  assert time.monotonic() - start < 30


def test_a_worker_that_dies(tmp_path):
  with pytest.raises(workers.RunFailed, match="a worker process ended by itse"):
    list(workers.run_all(some_cells.die, range(3), tmp_path, jobs=2))


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
  program = "tests.experiments.some_cells"
  process = subprocess.Popen(
    [sys.executable, "-m", program, str(tmp_path), *as_what],
    cwd=REPOSITORY,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  assert until(lambda: len(list(tmp_path.iterdir())) == 2, seconds=60)
  pids = [int(path.read_text()) for path in tmp_path.iterdir()]
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
    with command.answered_after():
      signal.raise_signal(signal.SIGTERM)
      answered.append("inside")
  finally:
    signal.signal(signal.SIGTERM, before)
  assert answered == ["inside", "after"]


def test_other_children_of_the_caller_stay(tmp_path):
  context = multiprocessing.get_context("spawn")
  other = context.Process(target=time.sleep, args=(60,))
  other.start()
  try:
    flags = os.environ.get("XLA_FLAGS", "")
    found = workers.run_all(some_cells.flags, range(2), tmp_path, jobs=2)
    assert list(found) == 2 * [f"{flags} --xla_cpu_multi_thread_eigen=false"]
    assert os.environ.get("XLA_FLAGS", "") == flags
    assert other.is_alive()
  finally:
    other.kill()
