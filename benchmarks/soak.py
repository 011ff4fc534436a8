"""Whether a run of hours stays as fast, and takes no more memory.

  PYTHONPATH=. python benchmarks/soak.py --folder=NEW_FOLDER --minutes=30

Two programs share the time, one after the other. `run` is the command line:
rounds with evaluations, all files of the output folder, and checkpoints. `disk`
reads each cohort from a population on disk. Each minute after compilation this
prints the memory that the program has, without pages of files, which the system
takes back as it likes; and its rounds per second of all its threads' CPU time,
so other programs on the machine matter little. At the end it compares the last
third of the minutes with the first, without the first minute, in which the
first checkpoint is written. What must grow is the history, by 0.5 kB for each
evaluation; and orbax keeps 13 kB of each checkpoint (0.12.8). Linux only; the
folder is new, and stays.
"""

import argparse
import csv
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

import jax.numpy as jnp
import optax
import sizes

import fedjax_opt as fo

CLIENTS = 2_000  # On disk, of 98 KB each.
ROUNDS = 2_000_000_000  # More than it comes to.


class Reading(NamedTuple):
  """Of a process, at one moment."""

  rounds: int
  cpu_seconds: float
  megabytes: float


class Minute(NamedTuple):
  """What one minute was like."""

  megabytes: float
  rounds_per_cpu_second: float


def read(pid: int, rounds: pathlib.Path) -> Reading:
  """Reads how far a process is.

  Args:
    pid: of the process.
    rounds: CSV file whose column `round` it appends to.
  """
  # After the name, which may hold spaces: the state is field 3.
  fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
  ticks = sum(map(int, fields.split()[11:13]))
  lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
  (kilobytes,) = (line.split()[1] for line in lines if "RssAnon" in line)
  return Reading(
    last_round(rounds),
    ticks / os.sysconf("SC_CLK_TCK"),
    int(kilobytes) * 1024 / 1e6,
  )


def last_round(path: pathlib.Path) -> int:
  """The round of the last whole row of a CSV file; 0 if there is none."""
  if not path.exists():
    return 0
  with open(path, "rb") as file:
    header = file.readline().decode().strip().split(",")
    file.seek(max(file.tell(), path.stat().st_size - 10_000))
    whole = file.read().decode().split("\n")[:-1]
  rows = [row for row in csv.reader(whole) if len(row) == len(header)]
  return int(rows[-1][header.index("round")]) if rows else 0


def watch(
  what: str, command: list[str], rounds: pathlib.Path, minutes: int
) -> list[Minute]:
  """Runs a program for some minutes, and prints what each was like."""
  process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
  while not last_round(rounds):  # It compiles.
    if process.poll() is not None:
      raise RuntimeError(f"{what}: ended with status {process.returncode}")
    time.sleep(0.1)
  found, before = [], read(process.pid, rounds)
  for number in range(1, minutes + 1):
    time.sleep(60)
    if process.poll() is not None:
      raise RuntimeError(f"{what}: ended with status {process.returncode}")
    now = read(process.pid, rounds)
    cpu_seconds = now.cpu_seconds - before.cpu_seconds
    speed = (now.rounds - before.rounds) / cpu_seconds
    found.append(Minute(now.megabytes, speed))
    print(
      f"{what:>4} {number:3}: round {now.rounds:11,}, {now.megabytes:7.1f} MB, "
      f"{speed:8.2f} rounds per CPU second",
      flush=True,
    )
    before = now
  process.send_signal(signal.SIGTERM)
  status = process.wait(120)
  if status not in (128 + signal.SIGTERM, -signal.SIGTERM):
    raise RuntimeError(f"{what}: SIGTERM gave the status {status}")
  return found


def change(minutes: list[Minute]) -> Minute:
  """By how many percent the last third differs from the first."""
  minutes = minutes[1:]
  third = max(1, len(minutes) // 3)
  first, last = (
    [statistics.median(column) for column in zip(*part, strict=True)]
    for part in (minutes[:third], minutes[-third:])
  )
  return Minute(*(100 * (b / a - 1) for a, b in zip(first, last, strict=True)))


def stream(folder: pathlib.Path) -> None:
  """Rounds of FedAvg, of clients on disk, until the process is ended."""
  loss_fn, params = sizes.mlp(20)
  with open(folder / "rounds.csv", "w", buffering=1) as file:
    file.write("round\n")
    fo.simulate(
      fo.fed_avg(loss_fn, optax.sgd(0.001)), params,
      fo.Population.open(folder / "clients"), rounds=ROUNDS,
      cohort_size=10, batch_size=16, eval_every=20,
      evaluate=lambda *_: {"none": jnp.float32(0)},
      on_evaluation=lambda report: file.write(f"{report.round}\n") < 0,
    )  # fmt: skip


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--folder", required=True, help="a new one")
  parser.add_argument("--minutes", type=int, default=30)
  parser.add_argument("--eval_every", type=int, default=500)
  parser.add_argument("--stream", action="store_true", help=argparse.SUPPRESS)
  options = parser.parse_args()
  folder = pathlib.Path(options.folder)
  if options.stream:
    stream(folder)
    return
  if options.minutes < 6:
    parser.error(f"--minutes={options.minutes}: must be at least 6")
  folder.mkdir(parents=True)
  sizes.make_population(folder / "clients", CLIENTS)
  run = [
    sys.executable, "-m", "experiments.run", "--task=digits_logistic",
    "--client=sgd", "--client_lr=0.01", f"--rounds={ROUNDS}",
    f"--eval_every={options.eval_every}", "--checkpoint_every=10000",
    "--noprogress", f"--output_dir={folder / 'run'}",
  ]  # fmt: skip
  disk = [sys.executable, __file__, f"--folder={folder}", "--stream"]
  half = options.minutes // 2
  found = {
    "run": watch("run", run, folder / "run" / "metrics.csv", half),
    "disk": watch("disk", disk, folder / "rounds.csv", options.minutes - half),
  }
  for what, minutes in found.items():
    memory, speed = change(minutes)
    print(
      f"{what:>4}: memory {memory:+.1f} %, rounds per CPU second {speed:+.1f} %"
    )


if __name__ == "__main__":
  main()
