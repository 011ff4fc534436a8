"""Signals that end a run, at random moments: a status and whole files.

FEDJAX_OPT_KILLS=40 tries 40 of them.
"""

import concurrent.futures
import csv
import json
import os
import random
import re
import signal
import sys
import time

import pytest

from tests.experiments.commands import call, start, wait_for

SMALL = (
  "--task=digits_logistic",
  "--num_clients=20",
  "--cohort_size=4",
  "--local_steps=2",
  "--eval_every=5",
  "--noprogress",
)
KINDS = {
  "plain": ("--client=sgd",),
  "checkpoints": ("--client=sgd", "--checkpoint_every=10"),
  "grid": ("--client=sgd", "--client_lr=0.1,1", "--seed=0,1"),
  "trace": ("--client=delta_sgd", "--trace"),
  "own tests": ("--client=sgd", "--client_test_fraction=0.2"),
}
# What a run has reached, by a file that is there then.
MOMENTS = ("", "config.json", "metrics.csv", "curves.png")


def heeds_signals(process):
  """Whether it has come so far as to answer SIGTERM."""
  with open(f"/proc/{process.pid}/status") as file:
    caught = next(line for line in file if line.startswith("SigCgt"))
  return int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1


def check_files(folder):
  """Every file is whole, and there is nothing beside them."""
  files = [path for path in folder.rglob("*") if path.is_file()]
  assert [path for path in files if path.suffix == ".tmp"] == []
  for path in files:
    content = path.read_bytes()
    if path.suffix == ".png":
      assert content.endswith(b"IEND\xaeB`\x82"), path
    elif path.suffix == ".json" and path.parent == folder:
      json.loads(content)
    elif path.suffix == ".csv":
      rows = list(csv.reader(content.decode().splitlines()))
      assert content.endswith(b"\n")
      assert len({len(row) for row in rows}) == 1, path
  if (folder / "summary.json").exists():
    assert (folder / "curves.png").exists()


def interrupt(folder, seed):
  """Ends a run at a moment, by one signal or by many."""
  draw = random.Random(seed)
  kind, moment = draw.choice(list(KINDS)), draw.choice(MOMENTS)
  number = draw.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
  rounds = 40 if moment == "curves.png" else draw.choice([40, 100_000])
  process = start(
    *SMALL, *KINDS[kind], f"--rounds={rounds}", f"--output_dir={folder}"
  )
  reached = lambda: not moment or (folder / moment).exists()
  wait_for(process, lambda: heeds_signals(process), may_end=True)
  wait_for(process, reached, may_end=True)
  time.sleep(draw.uniform(0, 1))
  for _ in range(draw.choice([1, 2, 10])):
    process.send_signal(number)
    time.sleep(draw.uniform(0, 0.1))
  out, err = process.communicate(timeout=600)
  what = (seed, kind, moment, number, process.returncode, out, err)
  assert "Traceback" not in err, what
  # It may have been done before the signal came.
  ends = {128 + number} | ({0} if rounds == 40 else set())
  assert process.returncode in ends, what
  if process.returncode:
    assert out.splitlines()[-1].startswith(("interrupted", "picture")), what
  check_files(folder)
  if process.returncode == 0:
    assert (folder / "summary.json").exists()
  done = re.findall(r"^interrupted: only (\d+) of ", out, re.MULTILINE)
  if done and kind == "checkpoints":
    assert (folder / "checkpoints" / f"{done[0]}.npz").is_file(), what


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
  "seed", range(1, 1 + int(os.environ.get("FEDJAX_OPT_KILLS", 3)))
)
def test_signals_at_random_moments(tmp_path, seed):
  interrupt(tmp_path / "run", seed)


def test_another_thread_leaves_signals_to_its_caller(tmp_path):
  """There a run cannot answer them, and runs."""
  arguments = (*SMALL, "--rounds=1", f"--output_dir={tmp_path / 'run'}")
  with concurrent.futures.ThreadPoolExecutor() as pool:
    assert pool.submit(call, *arguments).result() == 0
