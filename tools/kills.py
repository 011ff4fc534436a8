"""Kills commands at random moments, goes on, and compares what they leave.

  python -m tools.kills --number=20 --seed=0

Each time one command is killed by SIGKILL, one to three times, alone or with
its workers, which must end with it, and then ends by the same command. All
files must then be those of an undisturbed one, bit for bit but for times, and
the pictures must be there. With --keep=FOLDER, what is undisturbed is kept
there for the next call.
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
from safetensors.numpy import load_file

from tests.helpers import text_data
from tools.signals import COMMANDS, begin, call, left_of, words

KINDS = {
  "grid": ("--client=sgd", "--client_lr=0.1,1", "--seed=0,1"),
  "trace": ("--client=delta_sgd", "--trace"),
  "own tests": ("--client=sgd", "--client_test_fraction=0.2"),
  "state of clients": ("--algorithm=scaffold",),
  "personal": ("--task=digits_mlp", "--algorithm=fed_per"),
  "asynchronous": (
    "--algorithm=fed_buff", "--client=sgd", "--weighting=uniform",
    "--system=lognormal", "--schedule=buffered", "--concurrency=6",
    "--buffer=3",
  ),
  "LoRA": (
    "--task=agnews_distilbert", "--encoder=tiny", "--vocab_size=90",
    "--max_length=8", "--lora_rank=2", "--client=sgd", "--num_clients=6",
    "--partition=iid", "--batch_size=4",
  ),
}  # fmt: skip
COMMANDS |= {
  f"run, {kind}": (*COMMANDS["run, checkpoints"], *flags)
  for kind, flags in KINDS.items()
}
# Its buffer says how many clients a step has.
COMMANDS["run, asynchronous"] = tuple(
  flag for flag in COMMANDS["run, asynchronous"] if "cohort_size" not in flag
)
KILLED = (
  *("run", *(f"run, {kind}" for kind in KINDS)),
  *("compare", "compare --jobs=2", "reproduce"),
)
_TIMES = re.compile(r"seconds|date|timing|command|about|digest")


def without_times(content):
  """A value of JSON without what is another one in each run, or in a copy."""
  if isinstance(content, dict):
    kept = {n: v for n, v in content.items() if not _TIMES.search(n)}
    for name in ("output_dir", "population_dir", "compilation_cache", "resume"):
      kept.pop(name, None)
    return {n: without_times(v) for n, v in kept.items()}
  if isinstance(content, list):
    return [without_times(each) for each in content]
  return content


def content(path):
  """What a file says; of a picture, page or event only that it is there."""
  if path.suffix in (".json", ".jsonl"):
    lines = path.read_text().splitlines()
    texts = lines if path.suffix == ".jsonl" else ["".join(lines)]
    return [without_times(json.loads(text)) for text in texts]
  if path.suffix == ".csv":
    head, *rows = csv.reader(path.read_text().splitlines())
    kept = [i for i, name in enumerate(head) if not _TIMES.search(name)]
    return [[row[i] for i in kept] for row in (head, *rows)]
  if path.suffix == ".safetensors":
    return {n: (v.dtype, v.tobytes()) for n, v in load_file(path).items()}
  if path.suffix == ".npz":
    with np.load(path) as arrays:
      return {name: arrays[name].tobytes() for name in arrays.files}
  return path.stat().st_size > 0


def contents(folder):
  """path -> content of all files, but for checkpoints, events and digests."""
  found = {}
  for path in sorted(folder.rglob("*")):
    name = str(path.relative_to(folder))
    others = re.search(r"checkpoints/|tensorboard/|digests.json$", name)
    if path.is_file() and not others:
      found[name] = content(path)
  return found


def kill(command, folder, seconds, by):
  """Begins a command, and kills it after so many seconds.

  Args:
    command: one of `COMMANDS`.
    folder: its output.
    seconds: after the start.
    by: `os.kill`, or `os.killpg` for its workers too.

  Returns:
    The processes that did not end, in words; '' if all did.
  """
  process = begin(words(command, folder))
  try:
    process.wait(seconds)
  except subprocess.TimeoutExpired:
    by(process.pid, signal.SIGKILL)
    process.wait()
  return left_of(process.pid, seconds=60)


def difference(command, folder, whole, seconds, draw):
  """What is not as in an undisturbed folder after kills; '' if nothing is."""
  for _ in range(draw.choice([1, 2, 3])):
    by = draw.choice([os.kill, os.killpg])
    if left := kill(command, folder, draw.uniform(0.3, seconds), by):
      return f"a process is left: {left}"
  status, out, _ = call(command, folder)
  if status:
    return f"status {status}: {out[-600:]}"
  found, wanted = contents(folder), contents(whole)
  if set(found) != set(wanted):
    return f"files: {sorted(set(found) ^ set(wanted))}"
  return ", ".join(name for name in wanted if found[name] != wanted[name])


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--number", type=int, default=10)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--keep")
  parser.add_argument("--command", choices=KILLED)
  given = parser.parse_args()
  keep = pathlib.Path(given.keep or tempfile.mkdtemp())
  counts, folder = collections.Counter(), pathlib.Path(tempfile.mkdtemp())
  texts = keep / "texts"  # Of the run with LoRA.
  if not texts.exists():
    text_data.prepare_ag_news(texts)
  COMMANDS["run, LoRA"] += (f"--data_dir={texts}",)
  for i in range(given.number):
    draw = random.Random(f"{given.seed} {i}")
    command = given.command or draw.choice(KILLED)
    whole = keep / command.replace(" ", "_")
    if not (whole / "seconds.json").exists():
      shutil.rmtree(whole, ignore_errors=True)
      start = time.monotonic()
      status, out, _ = call(command, whole / "f")
      assert status == 0, out
      seconds = json.dumps(time.monotonic() - start)
      (whole / "seconds.json").write_text(seconds)
    seconds = json.loads((whole / "seconds.json").read_text())
    shutil.rmtree(folder, ignore_errors=True)
    found = difference(command, folder / "f", whole / "f", seconds, draw)
    counts["different" if found else "same"] += 1
    print(f"{i} {command}: {found or 'same'}", flush=True)
  shutil.rmtree(folder, ignore_errors=True)
  print(dict(counts))
  return int("different" in counts)


if __name__ == "__main__":
  sys.exit(main())
