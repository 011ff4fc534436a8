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


class OfRun:
  """The folder of a run that ended, with all the files that are read again."""

  is_whole = True

  def write(self, folder):
    rng = np.random.default_rng(3)
    points = [{"client_lr": 0.1, "seed": seed} for seed in (0, 1)]
    writer = RunWriter(folder, {"rounds": 20}, points, flags="--rounds=20\n")
    history = History()
    for done in (0, 10, 20):
      values = {n: rng.uniform(size=2) for n in ("train_loss", "test_accuracy")}
      history.append(done, values)
      writer.write(history)
    if self.is_whole:
      (folder / "per_client.csv").write_text("client,global_accuracy\n0,0.5\n")
      np.savez(folder / "traces.npz", step_size=rng.normal(size=(2, 3, 1, 4)))
      model = {"w": rng.normal(size=(6, 3))}
      writer.finish(history, Criterion(), params=lambda _: model)
    else:  # A kill came after these rows, before their digest.
      with open(folder / "metrics.csv", "a") as file:
        file.write("0,30,0,0.25,0.5\n1,30,1,0.25,0.5\n")
    writer.close()
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    self._expected = self._read(folder)

  def is_right(self, folder):
    return self._read(folder) == self._expected

  def _read(self, folder):
    run = load_run(folder)
    texts = repr((run.config, run.points, run.summary, run.selected))
    return texts, bits((run.history.metrics, run.history.rounds, run.params))


class OfStoppedRun(OfRun):
  """The folder of a run that was killed."""

  is_whole = False


class OfRecords:
  """What `reproduce` keeps of runs."""

  def write(self, folder):
    folder.mkdir()
    history = History([0, 5], {"loss": np.array([[1.0, 0.958], [2.0, np.nan]])})
    about = {"date": "2026-01-01", "seconds": 1.0}
    points = [{"seed": 0}, {"seed": 1}]
    arrays = {"step_size": np.arange(6.0).reshape(2, 3)}
    one = Record(("--rounds=5",), {"rounds": 5}, about, points, history, arrays)
    other = Record((), {"digest": "d"}, about, points, history)
    records.write(folder / "records.jsonl", [one, other])
    self._expected = self._read(folder)

  def is_right(self, folder):
    return self._read(folder) == self._expected

  def _read(self, folder):
    return list(map(records.to_json, records.read(folder / "records.jsonl")))


class OfPopulation:
  """A small population, and how all of it is read."""

  def write(self, folder):
    rng = np.random.default_rng(1)
    clients = [
      {
        "x": rng.normal(size=(size, 2, 4)).astype(np.float32),
        "y": rng.integers(0, 9, size),
      }
      for size in SIZES
    ]
    Population.write(folder, clients)
    self._expected = [self._read(folder)]

  def is_right(self, folder):
    return self._read(folder) in self._expected

  def _read(self, folder):
    population = Population.open(folder)
    read = population.gather(np.arange(len(SIZES)), sum(SIZES))
    return bits((read, population.sizes))


class OfCheckpoints:
  """Two checkpoints of a small state, and how the newest is read."""

  def write(self, folder):
    rng = np.random.default_rng(2)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    self._expected = {}
    for step in (3, 6):
      server = {"w": jnp.asarray(draw(40, 8)), "count": jnp.int32(step)}
      self._state = server, draw(6, 3)
      record = {"loss": draw(1, 5), "rounds": np.arange(step)}
      checkpoints = Checkpoints(folder, 3, resume=step > 3)
      checkpoints.save(step, self._state, record)
      self._expected[step] = bits((self._state, record))

  def is_right(self, folder):
    found = Checkpoints(folder, 3, resume=True).load(self._state)
    return bits((found.state, found.record)) == self._expected[found.round]


def flip(folder, rng):
  """Flips a bit of a file, all of which are as likely."""
  files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
  path = files[rng.integers(len(files))]
  content = bytearray(path.read_bytes())
  bit = rng.integers(8 * len(content))
  content[bit // 8] ^= 1 << (bit % 8)
  path.write_bytes(content)
  return str(path.relative_to(folder))


def outcomes(what, number, folder, seed=0):
  """How often each outcome came, and what went unnoticed.

  Args:
    what: an `OfPopulation` or `OfCheckpoints`.
    number: of flips, each in a fresh copy.
    folder: an empty one.
    seed: of the flips.
  """
  rng, counts = np.random.default_rng(seed), collections.Counter()
  what.write(folder / "whole")
  for i in range(number):
    copy = folder / str(i)
    shutil.copytree(folder / "whole", copy)
    name = flip(copy, rng)
    file = name.rpartition("/")[2]
    try:
      with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = "same" if what.is_right(copy) else f"wrong: {name}"
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
  for kind in (OfRun, OfStoppedRun, OfRecords, OfPopulation, OfCheckpoints):
    what = kind()
    with tempfile.TemporaryDirectory() as folder:
      found = outcomes(what, number, pathlib.Path(folder))
      print(type(what).__name__, found)


if __name__ == "__main__":
  main()
