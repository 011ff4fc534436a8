"""Whether what goes on for long stays as fast, and takes no more memory.

  python -m tools.soak --kind=run --minutes=20

`run` is the command line: rounds with evaluations, all files of the output
folder, and checkpoints. `disk` reads each cohort from a population on disk.
`settings` calls `simulate` again and again, each time with other sizes of the
local work. `study` compares two methods with --jobs=2 under one condition after
the other. Each kind is a call of its own.

Ten times this prints, of all processes of the kind together, the work done and
the memory without pages of files, which the system takes back as it likes. It
is the mean over the seconds of a tenth of the time, because a compilation takes
more for a while, and a worker of a study more from cell to cell until another
takes its place. The time begins when most caches are full in which JAX keeps
what it has traced: after 600 calls, or 60 cells. At the end this compares the
last three tenths with the first: memory, and the work for each second of CPU
time, which other programs on the machine change little, and for each second of
the clock. By more than 3 % of memory, or less speed by CPU time, the exit
status is 1. What must grow are results: by 0.5 kB for each evaluation of a run,
and by 30 kB for each run of a study. Linux only.
"""

import argparse
import contextlib
import csv
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo
from tools.signals import begin, processes_of

PARTS = 10
MOST = 3.0  # Percent.
ROUNDS = 2_000_000_000  # More than it comes to.
CONDITIONS = 500  # Each is checked before the first one runs.
# Work before the first reading; of other kinds until they have compiled.
FIRST = {"settings": 600, "study": 60}


class Reading(NamedTuple):
  """Of the processes of a kind, at one moment."""

  work: int  # done
  seconds: float  # of the clock
  cpu_seconds: float
  megabytes: float


# What goes on for long; each appends to a file, or folder, what is done.


def loss_fn(params, batch, rng):
  return (batch["x"] @ params["w"] - batch["y"]) ** 2


def disk(folder):
  """Rounds of FedAvg, of clients on disk."""
  rng, size = np.random.default_rng(0), 30
  noise = rng.normal(size=(2 * size, 800)).astype(np.float32)

  def clients():
    for start in rng.integers(size, size=2_000):
      x = noise[start : start + size]
      yield {"x": x, "y": x.sum(axis=1)}

  with open(folder / "done.csv", "w", buffering=1) as file:
    file.write("round\n")
    fo.simulate(
      fo.fed_avg(loss_fn, optax.sgd(0.001)), {"w": jnp.zeros(800)},
      fo.Population.write(folder / "clients", clients()), rounds=ROUNDS,
      cohort_size=10, batch_size=16, eval_every=20,
      evaluate=lambda *_: {"none": jnp.float32(0)},
      on_evaluation=lambda report: file.write(f"{report.round}\n") < 0,
    )  # fmt: skip


def settings(folder):
  """Calls of `simulate`, none with the sizes of another.

  Most of their time is compilation: less of it makes room for more calls.
  """
  jax.config.update("jax_disable_most_optimizations", True)
  x = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
  pool = {"x": x, "y": x.sum(axis=1)}
  data = fo.ClientData.from_partition(pool, np.arange(600).reshape(20, 30))
  sizes = [(c, b, k) for c in range(2, 20) for b in range(2, 30)
           for k in range(1, 30)]  # fmt: skip
  random.Random(0).shuffle(sizes)
  with open(folder / "done.csv", "w", buffering=1) as file:
    file.write("round\n")
    for number, (cohort, batch, steps) in enumerate(sizes, 1):
      fo.simulate(
        fo.fed_avg(loss_fn, optax.sgd(0.01)), {"w": jnp.zeros(8)}, data,
        rounds=2, cohort_size=cohort, batch_size=batch, local_steps=steps,
      )  # fmt: skip
      file.write(f"{number}\n")


def command_of(kind, folder):
  """The command of a kind."""
  module = [sys.executable, "-m"]
  if kind == "run":
    return [
      *module, "experiments.run", "--task=digits_logistic", "--client=sgd",
      "--client_lr=0.01", f"--rounds={ROUNDS}", "--eval_every=500",
      "--checkpoint_every=10000", "--noprogress", f"--output_dir={folder}/run",
    ]  # fmt: skip
  if kind == "study":
    # In no order, so that the conditions stay as hard as they are. Two methods
    # of one algorithm, as the second comes after all conditions of the first.
    alphas = [f"{0.1 + 0.01 * i:.2f}" for i in range(CONDITIONS)]
    random.Random(0).shuffle(alphas)
    return [
      *module, "experiments.compare", "--task=digits_logistic", "--jobs=2",
      "--num_clients=10", "--rounds=3000", "--eval_every=300",
      "--cohort_size=4",
      "--method=fed_avg client=sgd label=SGD", "--report_seeds=1",
      "--method=fed_avg client=sgd client_lr=0.02 label=slower",
      f"--alpha={','.join(alphas)}", f"--output_dir={folder}/study",
    ]  # fmt: skip
  program = f"from tools import soak; soak.{kind}(soak.pathlib.Path(%r))"
  return [sys.executable, "-c", program % str(folder)]


# How far it is.


def work_done(kind, folder):
  """Rounds, calls or runs that are done."""
  if kind == "study":
    return len(list(folder.glob("study/runs/*/summary.json")))
  return last_round(
    folder / ("run/metrics.csv" if kind == "run" else "done.csv")
  )


def last_round(path):
  """The round of the last whole row of a CSV file; 0 if there is none."""
  if not path.exists():
    return 0
  with open(path, "rb") as file:
    header = file.readline().decode().strip().split(",")
    file.seek(max(file.tell(), path.stat().st_size - 10_000))
    lines = file.read().decode().split("\n")[:-1]
  rows = [row for row in csv.reader(lines) if len(row) == len(header)]
  return int(rows[-1][header.index("round")]) if rows else 0


def read(kind, folder, group):
  """How far the processes of a group are."""
  ticks = kilobytes = 0
  for process, fields in processes_of(group):
    ticks += sum(map(int, fields[11:15]))  # Of those that ended, too.
    with contextlib.suppress(OSError):  # It ended just now.
      lines = (process / "status").read_text().splitlines()
      kilobytes += sum(int(n.split()[1]) for n in lines if "RssAnon" in n)
  return Reading(
    work_done(kind, folder),
    time.monotonic(),
    ticks / os.sysconf("SC_CLK_TCK"),
    kilobytes * 1024 / 1e6,
  )


def read_after(seconds, kind, folder, group):
  """How far a group is after so many seconds; memory is the mean since."""
  end, megabytes = time.monotonic() + seconds, []
  while True:
    now = read(kind, folder, group.pid)
    assert group.poll() is None, f"{kind}: ended with {group.returncode}"
    megabytes.append(now.megabytes)
    seconds_left = end - now.seconds
    if seconds_left <= 0:
      return now._replace(megabytes=float(np.mean(megabytes)))
    time.sleep(min(seconds_left, 1))


def watch(kind, folder, minutes):
  """Runs a kind for some minutes; readings at the ends of its parts."""
  group, readings = begin(command_of(kind, folder)), []
  try:
    while work_done(kind, folder) < FIRST.get(kind, 1):
      assert group.poll() is None, f"{kind}: ended with {group.returncode}"
      time.sleep(0.1)
    for number in range(PARTS + 1):
      seconds = 60 * minutes / PARTS if number else 0
      now = read_after(seconds, kind, folder, group)
      print(f"{kind} {number:2}: {now.work:11,} done, {now.megabytes:7.1f} MB")
      sys.stdout.flush()
      readings.append(now)
  finally:
    group.send_signal(signal.SIGTERM)
    status = group.wait(120)
  is_command = kind in ("run", "study")
  assert status == (143 if is_command else -15), f"SIGTERM gave {status}"
  return readings


def change(readings):
  """By how many percent the last three tenths differ from the first three.

  In memory, in work for each second of CPU time, and for each of the clock.
  """
  work, seconds, cpu_seconds, megabytes = np.array(readings).T
  done = np.diff(work)
  series = megabytes[1:], done / np.diff(cpu_seconds), done / np.diff(seconds)
  ratios = [np.mean(x[-3:]) / np.mean(x[:3]) for x in series]
  return [100 * (ratio - 1) for ratio in ratios]


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  kinds = ["run", "disk", "settings", "study"]
  parser.add_argument("--kind", choices=kinds, required=True)
  parser.add_argument("--minutes", type=float, default=20)
  options = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    readings = watch(options.kind, pathlib.Path(folder), options.minutes)
  memory, per_cpu_second, per_second = change(readings)
  print(
    f"{options.kind}: memory {memory:+.1f} %, work per CPU second "
    f"{per_cpu_second:+.1f} %, per second {per_second:+.1f} %"
  )
  return int(memory > MOST or per_cpu_second < -MOST)


if __name__ == "__main__":
  sys.exit(main())
