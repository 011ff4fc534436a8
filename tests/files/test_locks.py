"""One process at a time writes to a folder."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import threading
from unittest.mock import Mock

import pytest

from experiments import compare, run
from experiments.artefacts import artefact, recipe_runner
from experiments.stored.store import Store
from fedjax_opt.files import folders, json_files, locks
from tests.helpers.commands import call
from tests.helpers.refusals import refusal

# The module alone: the rest of the package takes seconds to import.
_ALONE = f"""
import sys, types
package = types.ModuleType("fedjax_opt")
package.__path__ = [{os.path.dirname(os.path.dirname(locks.__file__))!r}]
sys.modules["fedjax_opt"] = package
from fedjax_opt.files import locks
"""
_HOLD = """
import pathlib, time
with locks.held("output_dir", pathlib.Path(sys.argv[1])):
  print("held", flush=True)
  time.sleep(600)
"""


@contextlib.contextmanager
def held_by(program, *arguments):
  """Another process that holds a lock, and is killed at the end."""
  command = [sys.executable, "-c", _ALONE + program, *map(str, arguments)]
  with subprocess.Popen(command, stdout=-1, text=True) as process:
    try:
      assert process.stdout.readline() == "held\n"
      yield process
    finally:
      process.kill()


def hold(folder):
  with locks.held("output_dir", folder):
    pass


def in_use(folder, process, host=None):
  return (
    f"output_dir={str(folder)!r}: is in use by process {process} on host "
    f"{host or socket.gethostname()}; wait for its end, or give another folder"
  )


def test_the_second_is_refused_until_the_first_ends(tmp_path):
  folder = tmp_path / "run"
  with held_by(_HOLD, folder) as process:
    assert refusal(hold, folder) == in_use(folder, process.pid)
  assert (folder / folders.LOCK).exists()  # What the kill left is no obstacle.
  with locks.held("output_dir", folder):
    owner = json.loads((folder / folders.LOCK).read_text())
    assert owner == {"host": socket.gethostname(), "process": os.getpid()}
    assert refusal(hold, folder) == in_use(folder, os.getpid())
  assert os.listdir(folder) == []


def test_a_lock_that_a_kill_left_half_written(tmp_path):
  (tmp_path / folders.LOCK).write_text('{"host": "el')
  hold(tmp_path)
  assert os.listdir(tmp_path) == []


# Of another host as its lock shows it, or of a file system without locks.
_ELSEWHERE = """
import errno, fcntl, pathlib, socket, time
socket.gethostname = lambda: sys.argv[2]
if sys.argv[3] == "without":
  def flock(*_): raise OSError(errno.ENOLCK, "No locks available")
else:
  def flock(*_): pass
fcntl.flock = flock
locks._BEAT, locks._PATIENCE = 0.1, 60.0
with locks.held("output_dir", pathlib.Path(sys.argv[1])):
  print("held", flush=True)
  time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["not shared", "without"])
@pytest.mark.default_cases("not shared")
def test_an_owner_elsewhere_is_seen_to_live_and_to_end(
  tmp_path, monkeypatch, kind
):
  """As a job that Slurm queues again on another host, or a new container."""
  if kind == "without":  # Also of this host.
    no_locks = OSError(errno.ENOLCK, "No locks available")
    monkeypatch.setattr(locks.fcntl, "flock", Mock(side_effect=no_locks))
  monkeypatch.setattr(locks, "_BEAT", 0.1)
  monkeypatch.setattr(locks, "_PATIENCE", 60.0)
  host = socket.gethostname() if kind == "without" else "elsewhere"
  with held_by(_ELSEWHERE, tmp_path, host, kind) as process:
    assert refusal(hold, tmp_path) == in_use(tmp_path, process.pid, host)
  assert (tmp_path / folders.LOCK).exists()
  monkeypatch.setattr(locks, "_PATIENCE", 0.5)
  with locks.held("output_dir", tmp_path):
    owner = json.loads((tmp_path / folders.LOCK).read_text())
    assert owner == {"host": socket.gethostname(), "process": os.getpid()}
  assert os.listdir(tmp_path) == []


def test_an_owner_elsewhere_ends_while_it_is_watched(tmp_path, monkeypatch):
  path = tmp_path / folders.LOCK
  path.write_text('{"host": "elsewhere", "process": 7}')
  sleep = locks.time.sleep
  monkeypatch.setattr(
    locks.time, "sleep", lambda s: (path.unlink(missing_ok=True), sleep(0.01))
  )
  with locks.held("output_dir", tmp_path):
    assert path.exists()


def test_a_new_folder_goes_if_nothing_was_written(tmp_path):
  hold(tmp_path / "a")
  with locks.held("output_dir", tmp_path / "b"):
    (tmp_path / "b" / "mine").touch()
  assert os.listdir(tmp_path) == ["b"]


@pytest.mark.parametrize(
  ("program", "others"),
  [(run, ()), (run, ("--resume",)), (compare, ("--method=fed_avg",))],
)
def test_commands(program, others, tmp_path, capsys):
  flags = ("--task=nonconvex", "--rounds=0", f"--output_dir={tmp_path}")
  with locks.held("output_dir", tmp_path):
    assert call(*flags, *others, program=program) == 1
    assert os.listdir(tmp_path) == [folders.LOCK]
  line = in_use(tmp_path, os.getpid())
  assert capsys.readouterr().err == f"error: --{line}\n"
  if program is run:
    assert call(*flags, *others) == 0
    assert folders.LOCK not in os.listdir(tmp_path)
    assert "summary.json" in os.listdir(tmp_path)


def test_a_computation_of_an_artefact(tmp_path):
  folder = tmp_path / "one"
  cell = artefact.Computed(lambda: pytest.fail("must not be computed"), {})
  store = Store(tmp_path)
  with locks.held("output_dir", folder):
    message = refusal(recipe_runner._run_recipe, ("one", cell), store)
  assert message == in_use(folder, os.getpid())


@pytest.mark.slow
def test_of_many_at_the_same_time_one_has_it(tmp_path):
  """Also while locks come and go."""
  log = tmp_path / "log"
  program = f"""{_ALONE}
import pathlib, time, os
folder, log = pathlib.Path({str(tmp_path / "run")!r}), {str(log)!r}
taken = 0
end = time.monotonic() + 300
while taken < 5 and time.monotonic() < end:
  try:
    with locks.held("output_dir", folder):
      owned = os.open(log, os.O_CREAT | os.O_EXCL)
      os.close(owned)
      os.unlink(log)
      taken += 1
  except ValueError:
    time.sleep(0.01)
print(taken)
"""
  command = [sys.executable, "-c", program]
  begin = lambda: subprocess.Popen(command, stdout=-1, text=True)
  processes = [begin() for _ in range(3)]
  for process in processes:
    assert process.communicate()[0] == "5\n"
    assert process.returncode == 0


def test_a_signal_while_the_thread_starts_leaves_no_lock(tmp_path, monkeypatch):
  folder, names = tmp_path / "run", []
  start = threading.Thread.start

  def ended_here(thread):
    json_files.remove_unfinished()  # As a command that a signal ends.
    names.extend(os.listdir(folder))
    start(thread)

  monkeypatch.setattr(threading.Thread, "start", ended_here)
  with locks.held("output_dir", folder):
    assert names == []
