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
    entries = {n: v for n, v in content.items() if not _TIMES.search(n)}
    for name in ("output_dir", "population_dir", "compilation_cache", "resume"):
      entries.pop(name, None)
    return {n: without_times(v) for n, v in entries.items()}
  if isinstance(content, list):
    return [without_times(item) for item in content]
  return content


def content(path):
  """What a file says; of a picture, page or event only that it is there."""
  if path.suffix in (".json", ".jsonl"):
    lines = path.read_text().splitlines()
    texts = lines if path.suffix == ".jsonl" else ["".join(lines)]
    return [without_times(json.loads(text)) for text in texts]
  if path.suffix == ".csv":
    head, *rows = csv.reader(path.read_text().splitlines())
    columns = [i for i, name in enumerate(head) if not _TIMES.search(name)]
    return [[row[i] for i in columns] for row in (head, *rows)]
  if path.suffix == ".safetensors":
    return {n: (v.dtype, v.tobytes()) for n, v in load_file(path).items()}
  if path.suffix == ".npz":
    with np.load(path) as arrays:
      return {name: arrays[name].tobytes() for name in arrays.files}
  return path.stat().st_size > 0


def contents(folder):
  """path -> content of all files, but for checkpoints, events and digests."""
  files = {}
  for path in sorted(folder.rglob("*")):
    name = str(path.relative_to(folder))
    match = re.search(r"checkpoints/|tensorboard/|digests.json$", name)
    if path.is_file() and not match:
      files[name] = content(path)
  return files


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
    if survivors := kill(command, folder, draw.uniform(0.3, seconds), by):
      return f"a process is left: {survivors}"
  status, out, _ = call(command, folder)
  if status:
    return f"status {status}: {out[-600:]}"
  files, expected = contents(folder), contents(whole)
  if set(files) != set(expected):
    return f"files: {sorted(set(files) ^ set(expected))}"
  return ", ".join(name for name in expected if files[name] != expected[name])


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--number", type=int, default=10)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--keep")
  parser.add_argument("--command", choices=KILLED)
  options = parser.parse_args()
  keep = pathlib.Path(options.keep or tempfile.mkdtemp())
  counts, folder = collections.Counter(), pathlib.Path(tempfile.mkdtemp())
  texts = keep / "texts"  # Of the run with LoRA.
  if not texts.exists():
    text_data.prepare_ag_news(texts)
  COMMANDS["run, LoRA"] += (f"--data_dir={texts}",)
  for i in range(options.number):
    draw = random.Random(f"{options.seed} {i}")
    command = options.command or draw.choice(KILLED)
    reference = keep / command.replace(" ", "_")
    if not (reference / "seconds.json").exists():
      shutil.rmtree(reference, ignore_errors=True)
      start = time.monotonic()
      status, out, _ = call(command, reference / "f")
      assert status == 0, out
      seconds = json.dumps(time.monotonic() - start)
      (reference / "seconds.json").write_text(seconds)
    seconds = json.loads((reference / "seconds.json").read_text())
    shutil.rmtree(folder, ignore_errors=True)
    problem = difference(command, folder / "f", reference / "f", seconds, draw)
    counts["different" if problem else "same"] += 1
    print(f"{i} {command}: {problem or 'same'}", flush=True)
  shutil.rmtree(folder, ignore_errors=True)
  print(dict(counts))
  return int("different" in counts)


if __name__ == "__main__":
  sys.exit(main())
