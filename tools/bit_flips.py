"""Damages all that is written and read again; counts what is unnoticed.

  python -m tools.bit_flips --seed=0
  python -m tools.bit_flips --kind=study --number=60

Each time one bit of one file becomes the other, or the file is cut, or bytes
within it are lost; then all is read, or the same command goes on. What comes
must be what came of the undamaged files, to the last bit but for times, or a
refusal in one line that names the file.
"""

import argparse
import collections
import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from experiments import compare, convert
from experiments import run as runner
from experiments.stored import records
from experiments.stored.records import Record
from fedjax_opt import load_run
from fedjax_opt.data.population import Population
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.results.history import History
from fedjax_opt.results.run_writer import RunWriter
from fedjax_opt.results.selection import Criterion
from tools.kills import contents
from tools.signals import COMMANDS, REPOSITORY, SMALL, STUDY

SIZES = (3, 0, 5, 1, 0, 4, 2)


def bits(tree):
  """All of a tree, as bytes with their types and shapes."""
  leaves, structure = jax.tree.flatten(tree)
  leaves = [np.asarray(leaf) for leaf in leaves]
  return structure, [(a.dtype, a.shape, a.tobytes()) for a in leaves]


# Each of these writes into a folder that is not there, and gives a function
# that reads all of such a folder.


def run(folder, is_whole=True):
  """The folder of a run that ended, with all the files that are read again."""
  rng = np.random.default_rng(3)
  points = [{"client_lr": 0.1, "seed": seed} for seed in (0, 1)]
  writer = RunWriter(folder, {"rounds": 20}, points, flags="--rounds=20\n")
  history = History()
  for round_number in (0, 10, 20):
    values = {n: rng.uniform(size=2) for n in ("train_loss", "test_accuracy")}
    history.append(round_number, values)
    writer.write(history)
  if is_whole:
    (folder / "per_client.csv").write_text("client,global_accuracy\n0,0.5\n")
    np.savez(folder / "traces.npz", step_size=rng.normal(size=(2, 3, 1, 4)))
    model = {"w": rng.normal(size=(6, 3))}
    writer.finish(history, Criterion(), params=lambda _: model)
  else:  # A kill came after these rows, before their digest.
    with open(folder / "metrics.csv", "a") as file:
      file.write("0,30,0,0.25,0.5\n1,30,1,0.25,0.5\n")
  writer.close()
  shutil.rmtree(folder / "tensorboard", ignore_errors=True)

  def read(folder):
    saved = load_run(folder)
    texts = repr((saved.config, saved.points, saved.summary, saved.selected))
    history = saved.history
    return texts, bits((history.metrics, history.rounds, saved.params))

  return read


def stopped_run(folder):
  """The folder of a run that was killed."""
  return run(folder, is_whole=False)


def reproduced(folder):
  """What `reproduce` keeps of runs."""
  folder.mkdir()
  history = History([0, 5], {"loss": np.array([[1.0, 0.958], [2.0, np.nan]])})
  about = {"date": "2026-01-01", "seconds": 1.0}
  points = [{"seed": 0}, {"seed": 1}]
  arrays = {"step_size": np.arange(6.0).reshape(2, 3)}
  first = Record(("--rounds=5",), {"rounds": 5}, about, points, history, arrays)
  second = Record((), {"digest": "d"}, about, points, history)
  records.write(folder / "records.jsonl", [first, second])
  return lambda folder: list(
    map(records.to_line, records.read(folder / "records.jsonl"))
  )


def population(folder):
  """A small population, and how all of it is read."""
  rng = np.random.default_rng(1)
  clients = [
    {
      "x": rng.normal(size=(size, 2, 4)).astype(np.float32),
      "y": rng.integers(0, 9, size),
    }
    for size in SIZES
  ]
  Population.write(folder, clients)

  def read(folder):
    opened = Population.open(folder)
    examples = opened.gather(np.arange(len(SIZES)), sum(SIZES))
    return bits((examples, opened.sizes))

  return read


def checkpoints(folder):
  """Two checkpoints of a small state; whether the newest is what it was."""
  rng, expected = np.random.default_rng(2), {}
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  for step in (3, 6):
    server = {"w": jnp.asarray(draw(40, 8)), "count": jnp.int32(step)}
    state = server, draw(6, 3)
    record = {"loss": draw(1, 5), "rounds": np.arange(step)}
    Checkpoints(folder, 3, resume=step > 3).save(step, state, record)
    expected[step] = bits((state, record))

  def read(folder):
    latest = Checkpoints(folder, 3, resume=True).load(state)
    return bits((latest.state, latest.record)) == expected[latest.round]

  return read


def _called(program, *arguments):
  """Runs a command here; one that refuses is a ValueError."""
  output = io.StringIO()
  with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
    status = program.main([program.__name__, *arguments])
  if status:
    raise ValueError(output.getvalue().strip())


def killed_run(folder):
  """The folder of a run that was killed; the same command goes on."""
  _, *flags = COMMANDS["run, checkpoints"]
  go_on = lambda folder: _called(runner, *flags, f"--output_dir={folder}")
  go_on(folder)
  (folder / "summary.json").unlink()

  def read(folder):
    go_on(folder)
    return contents(folder)

  return read


def study(folder):
  """The folder of a study; the same command makes its report again."""
  _, *flags = STUDY

  def read(folder):
    _called(compare, *flags, f"--output_dir={folder}")
    files = contents(folder)
    return {name: files[name] for name in files if "/" not in name}

  read(folder)
  return read


def converted(folder):
  """Clients that `convert` wrote; a run reads them."""
  _called(convert, *SMALL, f"--population_dir={folder}")
  flags = [flag for flag in SMALL if not flag.startswith("--num_clients")]

  def read(folder):
    with tempfile.TemporaryDirectory() as out:
      where = f"--population_dir={folder}", f"--output_dir={out}/run"
      _called(runner, *flags, *where)
      return contents(pathlib.Path(out))

  return read


def compilation_cache(folder):
  """What a run keeps by --compilation_cache; it is called again with it.

  Each time in a process of its own, because a process keeps programs itself.
  """
  env = {n: v for n, v in os.environ.items() if "COMPILATION_CACHE" not in n}

  def read(folder):
    with tempfile.TemporaryDirectory() as out:
      program = sys.executable, "-m", "experiments.run"
      where = f"--output_dir={out}/run", f"--compilation_cache={folder}"
      process = subprocess.run(
        [*program, *SMALL, *where],
        cwd=REPOSITORY,
        env=env | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
      )
      if process.returncode or "Traceback" in process.stderr:
        raise ValueError(process.stderr.strip())
      return contents(pathlib.Path(out))

  folder.mkdir()
  read(folder)
  return read


# What writes, and how often it is damaged.
KINDS = {
  "run": (run, 100),
  "stopped run": (stopped_run, 100),
  "killed run": (killed_run, 100),
  "checkpoints": (checkpoints, 100),
  "study": (study, 60),
  "records": (reproduced, 100),
  "population": (population, 100),
  "converted": (converted, 40),
  "compilation cache": (compilation_cache, 20),
}


def damage(folder, rng):
  """Flips a bit of a file, all of which are as likely, or takes bytes out.

  These are all from somewhere to the end, or a few within.
  """
  files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
  files = [path for path in files if path.stat().st_size]
  path = files[rng.integers(len(files))]
  content = bytearray(path.read_bytes())
  kind, place = rng.integers(3), rng.integers(len(content))
  if kind == 0:
    content[place] ^= 1 << rng.integers(8)
  elif kind == 1:
    del content[place:]
  else:
    del content[place : place + 1 + rng.integers(50)]
  path.write_bytes(content)
  return str(path.relative_to(folder))


def outcomes(write, number, folder, seed=0):
  """How often each outcome came, and what went unnoticed.

  Args:
    write: one of the functions above.
    number: of what is damaged, each a fresh copy.
    folder: an empty one.
    seed: of the damage.
  """
  rng, counts = np.random.default_rng(seed), collections.Counter()
  read = write(folder / "whole")
  expected = read(folder / "whole")
  for i in range(number):
    copy = folder / str(i)
    shutil.copytree(folder / "whole", copy)
    name = damage(copy, rng)
    file = name.rpartition("/")[2]
    try:
      with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = "same" if read(copy) == expected else f"wrong: {name}"
    except (ValueError, OSError) as error:
      lines = str(error).splitlines()
      outcome = "refused" if len(lines) == 1 else f"{len(lines)} lines: {name}"
      if file not in lines[0]:
        outcome = f"not named: {name}"
    except Exception as error:
      outcome = f"{type(error).__name__}: {name}"
    counts[outcome] += 1
    shutil.rmtree(copy)
  return dict(counts)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--kind", choices=KINDS)
  parser.add_argument("--number", type=int)
  parser.add_argument("--seed", type=int, default=0)
  options = parser.parse_args()
  is_right = True
  for kind in [options.kind] if options.kind else KINDS:
    write, number = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
      number = options.number or number
      counts = outcomes(write, number, pathlib.Path(folder), options.seed)
    print(f"{kind}: {counts}", flush=True)
    is_right &= set(counts) <= {"same", "refused"}
  return int(not is_right)


if __name__ == "__main__":
  sys.exit(main())
