"""Flips bits in all that is written and read again; counts what is unnoticed.

  python -m tests.tools.bit_flips 300

Each time one bit of one file becomes the other; then all is read. What is read
must be what was written, to the last bit, or be refused in one line that names
the file. Of a damaged checkpoint the one before it is read.
"""

import collections
import pathlib
import shutil
import sys
import tempfile
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from experiments.artefacts import record as records
from experiments.artefacts.record import Record
from fedjax_opt import load_run
from fedjax_opt.data.population import Population
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion
from fedjax_opt.results.writers import RunWriter

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
  for done in (0, 10, 20):
    values = {n: rng.uniform(size=2) for n in ("train_loss", "test_accuracy")}
    history.append(done, values)
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
    found = load_run(folder)
    texts = repr((found.config, found.points, found.summary, found.selected))
    history = found.history
    return texts, bits((history.metrics, history.rounds, found.params))

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
  one = Record(("--rounds=5",), {"rounds": 5}, about, points, history, arrays)
  other = Record((), {"digest": "d"}, about, points, history)
  records.write(folder / "records.jsonl", [one, other])
  return lambda folder: list(
    map(records.to_json, records.read(folder / "records.jsonl"))
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
    found = opened.gather(np.arange(len(SIZES)), sum(SIZES))
    return bits((found, opened.sizes))

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
    found = Checkpoints(folder, 3, resume=True).load(state)
    return bits((found.state, found.record)) == expected[found.round]

  return read


def flip(folder, rng):
  """Flips a bit of a file, all of which are as likely."""
  files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
  path = files[rng.integers(len(files))]
  content = bytearray(path.read_bytes())
  bit = rng.integers(8 * len(content))
  content[bit // 8] ^= 1 << (bit % 8)
  path.write_bytes(content)
  return str(path.relative_to(folder))


def outcomes(write, number, folder, seed=0):
  """How often each outcome came, and what went unnoticed.

  Args:
    write: one of the functions above.
    number: of flips, each in a fresh copy.
    folder: an empty one.
    seed: of the flips.
  """
  rng, counts = np.random.default_rng(seed), collections.Counter()
  read = write(folder / "whole")
  expected = read(folder / "whole")
  for i in range(number):
    copy = folder / str(i)
    shutil.copytree(folder / "whole", copy)
    name = flip(copy, rng)
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
  number = int(sys.argv[1])
  for write in (run, stopped_run, reproduced, population, checkpoints):
    with tempfile.TemporaryDirectory() as folder:
      found = outcomes(write, number, pathlib.Path(folder))
      print(write.__name__, found)


if __name__ == "__main__":
  main()
