"""Ends each command by each signal in each of its phases; prints a table.

  python -m tools.signals --number=100 --seed=0
  python -m tools.signals --command=reproduce --phases=load --times=2

Each time one command, phase and kind of signal is drawn, and whether the signal
comes once, twice or ten times. The command must end with its status and one
line that says so, without a traceback; it must leave no process, no lock and no
half of a file; and the same command must then go on to its end. --number=all
tries all.
"""

import argparse
import collections
import contextlib
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).parents[1]
HOOK = pathlib.Path(__file__).parent / "at_moments"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TIMES = (1, 2, 10)
SMALL = (
  "--task=digits_logistic", "--num_clients=20", "--cohort_size=4",
  "--local_steps=2", "--rounds=20", "--eval_every=5",
)  # fmt: skip
STUDY = (
  "compare", *SMALL, "--method=fed_avg client=sgd",
  "--method=scaffold", "--report_seeds=2", "--checkpoint_every=5",
)  # fmt: skip
# name -> the command and its flags but for the folder.
COMMANDS = {
  "run": ("run", *SMALL, "--resume"),
  "run, checkpoints": ("run", *SMALL, "--resume", "--checkpoint_every=5"),
  "compare": STUDY,
  "compare --jobs=2": (*STUDY, "--jobs=2"),
  "reproduce": ("reproduce", "--artefact=domo/table1", "--size=smoke"),
  "convert": ("convert", *SMALL),
}
# phase -> the function that begins it; see at_moments.
PHASES = {
  "import": "jax",
  "flags": "experiments.specification.resolve:resolve",
  "load": "experiments.single_run.loading:load_data",
  "partition": "fedjax_opt.data.clients:ClientData.from_partition",
  "trace": "fedjax_opt.engine.run_programs:RunPrograms.trace_programs",
  "compile": "fedjax_opt.engine.compilation:compiled",
  "rounds": "fedjax_opt.engine.run_programs:RunPrograms.advance",
  "evaluate": "fedjax_opt.engine.run_programs:RunPrograms.evaluate",
  "checkpoint": "fedjax_opt.results.checkpoint:Checkpoints.save",
  "write": "fedjax_opt.results.run_writer:RunWriter.write",
  "draw": "fedjax_opt.study.plots:curves",
  "end": "fedjax_opt.results.run_writer:RunWriter.finish",
  "report": "fedjax_opt.study.study:Study.write",
  "population": "fedjax_opt.data.population_files:write",
}


def words(command, folder):
  """The words of a command that writes to a folder."""
  name, *flags = COMMANDS[command]
  where = "population_dir" if name == "convert" else "output_dir"
  program = f"experiments.{name}"
  return [sys.executable, "-m", program, *flags, f"--{where}={folder}"]


def begin(words, stdout=subprocess.DEVNULL, **others):
  """Begins a command in a session of its own.

  Args:
    words: of the command.
    stdout: where its output goes, errors too.
    **others: of its environment.
  """
  return subprocess.Popen(
    words,
    cwd=REPOSITORY,
    env=os.environ | {"JAX_PLATFORMS": "cpu"} | others,
    stdout=stdout,
    stderr=subprocess.STDOUT,
    text=True,
    start_new_session=True,
  )


def call(command, folder, **others):
  """Runs a command in a session of its own: status, output, its group."""
  process = begin(words(command, folder), subprocess.PIPE, **others)
  out, _ = process.communicate(timeout=900)
  return process.returncode, out, process.pid


def processes_of(group):
  """Those of a group that live: their folders in /proc, and what `stat` says.

  What has ended and waits for its parent to ask does not live.
  """
  processes = []
  for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
      fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
      continue
    if int(fields[2]) == group and fields[0] != "Z":
      processes.append((process, fields))
  return processes


def left_of(group, seconds=20):
  """The processes of a group that have not ended by then, in words.

  Python's own helpers are among them.
  """
  deadline = time.monotonic() + seconds
  while (processes := processes_of(group)) and time.monotonic() < deadline:
    time.sleep(0.05)
  words = []
  for process, _ in processes:
    with contextlib.suppress(OSError):
      line = (process / "cmdline").read_text().replace("\0", " ")
      words.append(f"{process.name}: {line}")
  return "; ".join(words)


def mistake(command, phase, number, times, folder):
  """What is wrong with an end by a signal; '' if nothing is.

  A phase that the command does not have is 'no such phase'.
  """
  path = os.pathsep.join([str(HOOK), os.environ.get("PYTHONPATH", "")])
  moment = f"{PHASES[phase]} {int(number)} {times}"
  status, out, group = call(command, folder, PYTHONPATH=path, AT_MOMENT=moment)
  if status == 0:
    return "no such phase"
  if status != 128 + number:
    return f"status {status}: {out[-600:]}"
  if "Traceback" in out or "interrupted" not in out.splitlines()[-1]:
    return f"output: {out[-1500:]}"
  if remaining := left_of(group):
    return f"a process is left: {remaining}"
  files = [f for f in folder.rglob("*") if f.suffix in (".tmp", ".lock")]
  if files or list(folder.rglob(".lock")):
    return f"files: {files or '.lock'}"
  status, out, _ = call(command, folder)
  return "" if status == 0 else f"goes on with {status}: {out[-600:]}"


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--number", default="20")
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--command", choices=COMMANDS)
  parser.add_argument("--phases", default=",".join(PHASES))
  parser.add_argument("--times", type=int, choices=TIMES)
  options = parser.parse_args()
  for number in SIGNALS:  # Commands ignore what their caller ignores (nohup).
    signal.signal(number, signal.SIG_DFL)
  names = [options.command] if options.command else list(COMMANDS)
  phases = options.phases.split(",")
  times = [options.times] if options.times else TIMES
  cases = list(itertools.product(names, phases, SIGNALS, times))
  random.Random(options.seed).shuffle(cases)
  number = len(cases) if options.number == "all" else int(options.number)
  counts = collections.Counter()
  for command, phase, signum, count in cases[:number]:
    with tempfile.TemporaryDirectory() as folder:
      flaw = mistake(command, phase, signum, count, pathlib.Path(folder) / "f")
    counts[flaw.partition(":")[0] or "right"] += 1
    print(f"{command}, {phase}, {signum.name} x {count}: {flaw or 'right'}")
    sys.stdout.flush()
  print(dict(counts))
  return int(bool(set(counts) - {"right", "no such phase"}))


if __name__ == "__main__":
  sys.exit(main())
