"""One of several processes is killed: the others end, and all can go on.

FEDJAX_OPT_KILLS=10 kills one of four processes at ten moments.
"""

import os
import random
import signal
import subprocess
import sys
import time

import jax
import pytest

from experiments.processes import hosts
from tests.helpers.commands import free_address, start
from tests.helpers.resumed_runs import ARGUMENTS, assert_same, rounds_saved

# So long that it is killed before its end.
LONG = (*ARGUMENTS, "--rounds=60")
KILLS = int(os.environ.get("FEDJAX_OPT_KILLS", 1))
NUMBER = 4 if "FEDJAX_OPT_KILLS" in os.environ else 2
# What a run has reached, by a file that is there then.
MOMENTS = (
  "checkpoints/5.npz", "config.json", "metrics.csv", "checkpoints/20.npz",
)  # fmt: skip
LOG = "I1122 10:26:18.996162   18739 file.cc:147] of something\n"
OF_OTHERS = (
  "E1122 10:26:18.996188   18739 coordination_service_agent.cc:289] Polled\n"
  "[external/gloo/gloo/transport/tcp/debug_logger.cc:25] ERROR failed\n"
)
END = (
  "F1122 10:26:18.996217   18739 client.h:80] Terminating process because the "
  "JAX distributed service detected fatal errors. This most likely indicates "
  "that another task died. absl::Status: UNAVAILABLE: Tasks are unhealthy "
  "(stopped sending heartbeats):\n1\n    @     0x7fa2ffe40634  absl::Die()\n"
)


def processes(folder, number, *flags):
  shared = (f"--coordinator={free_address()}", f"--num_processes={number}")
  return [
    start(*LONG, *shared, f"--process_id={i}", f"--output_dir={folder}",
          *flags)
    for i in range(number)
  ]  # fmt: skip


def run(folder, number, *flags):
  """A run to its end."""
  children = processes(folder, number, *flags)
  outputs = [process.communicate(timeout=600) for process in children]
  assert [process.returncode for process in children] == [0] * number, outputs


def kill_one(folder, number, seed):
  """Kills one of them at a moment; returns the seconds the others take."""
  rng = random.Random(seed)
  moment = folder / MOMENTS[seed % len(MOMENTS)]
  children, victim = processes(folder, number), rng.randrange(number)
  while not moment.exists():
    assert all(p.poll() is None for p in children), children[0].communicate()
    time.sleep(0.002)
  time.sleep(rng.uniform(0, 1) if seed else 0)
  killed = children.pop(victim)
  is_over = killed.poll() is not None
  killed.kill()
  start = time.monotonic()
  for process in children:
    _, err = process.communicate(timeout=600)
    context = (moment, victim, process.returncode, err)
    if is_over and process.returncode == 0:
      continue
    assert process.returncode == 1, context
    assert err.startswith("error: another process has ended ("), context
    assert err.endswith("; start all of them again\n"), context
    assert err.count("\n") == 1, context
  seconds = time.monotonic() - start
  killed.communicate()
  last_round = rounds_saved(folder / "checkpoints")
  print(f"{moment.name}, process {victim}: {seconds:.1f} s, round {last_round}")
  return seconds


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
  folder = tmp_path_factory.mktemp("whole") / "run"
  run(folder, NUMBER)
  return folder


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_process_is_killed(full_run, tmp_path, seed):
  folder = tmp_path / "run"
  seconds = kill_one(folder, NUMBER, seed)
  if "FEDJAX_OPT_KILLS" in os.environ:
    assert seconds < 30
  run(folder, NUMBER, "--resume")
  assert_same(folder, full_run, "coordinator")


def passed_on(text, monkeypatch):
  """What reaches stderr of a log, and the reasons of an end."""
  log, end = os.pipe()
  output, stderr = os.pipe()
  monkeypatch.setattr(hosts, "_stderr", stderr)
  os.write(end, text.encode())
  os.close(end)
  reasons = []
  hosts.copy_log(log, reasons.append)
  os.close(stderr)
  with os.fdopen(output) as file:
    return file.read(), reasons


@pytest.mark.parametrize("ending", ["", "no end of a line"])
def test_a_log_is_passed_on(ending, monkeypatch):
  """Also what may become an end, but does not."""
  text = LOG + "more of it\n" + OF_OTHERS + "more\n" + LOG + ending
  output, reasons = passed_on(text, monkeypatch)
  assert sorted(output.splitlines()) == sorted(text.splitlines())
  assert reasons == []


def test_of_an_end_nothing_is_passed_on_but_the_reason(monkeypatch):
  text = LOG + OF_OTHERS + "more\n" + END
  output, (reason,) = passed_on(text, monkeypatch)
  assert output == LOG
  assert hosts.message(reason) == (
    "another process has ended (UNAVAILABLE: Tasks are unhealthy (stopped "
    "sending heartbeats)); start all of them again"
  )


WATCHED = """
import ctypes, os, sys
from experiments.processes import hosts
hosts.watch()
print("of this process", file=sys.stderr)
{}
"""


UNHEALTHY = hosts.message(
  "UNAVAILABLE: Tasks are unhealthy (stopped sending heartbeats):"
)
ABORT = "os.write(2, {!r}.encode()); ctypes.CDLL(None).abort()"
AT_EXIT = "import atexit; atexit.register(os.write, 2, b'the common end')"


@pytest.mark.parametrize(
  ("program", "status", "last"),
  [
    # An abort waits until the log was read; for another reason it stays one.
    (ABORT.format(END), 1, f"of this process\nerror: {UNHEALTHY}\n"),
    pytest.param(
      *(ABORT.format("F1 of\n"), -signal.SIGABRT, "of this process\nF1 of\n"),
      marks=pytest.mark.slow,
    ),
    # An error ends a process at once.
    (f"{AT_EXIT}\n1 / 0", 1, "ZeroDivisionError: division by zero\n"),
  ],
)
def test_how_a_watched_process_ends(program, status, last):
  command = [sys.executable, "-c", WATCHED.format(program)]
  process = subprocess.run(command, capture_output=True, text=True, check=False)
  assert process.returncode == status
  assert process.stderr.endswith(last)
  assert "common end" not in process.stderr


@pytest.mark.parametrize(
  ("error", "number", "is_loss"),
  [
    (ValueError("UNKNOWN: Gloo failed: [a/b.cc:1] closed"), 2, True),
    (RuntimeError("UNAVAILABLE: Socket closed"), 2, True),
    (RuntimeError("UNAVAILABLE: Socket closed"), 1, False),
    (RuntimeError("RESOURCE_EXHAUSTED: out of memory"), 2, False),
    (ValueError("rounds=-1: must be at least 0"), 2, False),
  ],
)
def test_errors_that_mean_a_loss(error, number, is_loss, monkeypatch):
  monkeypatch.setattr(jax, "process_count", lambda: number)
  assert hosts.is_loss(error) == is_loss
