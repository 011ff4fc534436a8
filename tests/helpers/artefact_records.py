"""Records that never ran, and what artefacts say of them."""

import numpy as np

from experiments.artefacts import ARTEFACTS
from experiments.artefacts.artefact import GridChoices, RunOf, spec_of
from experiments.artefacts.blocks import Claim
from experiments.stored.records import Record
from fedjax_opt import grid_points
from fedjax_opt.results.history import History


def flags_by_key(name, size="paper"):
  """Key -> all flags of each run of an artefact."""
  return {
    key: spec_of(cell.arguments).identity
    for key, cell in ARTEFACTS[name].recipes(GridChoices(size)).items()
    if isinstance(cell, RunOf)
  }


def record(curves, points, rounds=None, cell=None, arrays=None):
  """A record with these curves, metric -> [points, rounds]."""
  curves = {name: np.asarray(values, float) for name, values in curves.items()}
  rounds = rounds or [*range(next(iter(curves.values())).shape[1])]
  arguments = cell.arguments if cell else ("--task=lasso",)
  flags = spec_of(cell.arguments).identity if cell else {}
  about = {"date": "2026-01-01", "seconds": 1.0, "device": None}
  history = History(rounds, curves)
  return Record(arguments, flags, about, points, history, arrays or {})


def of_finals(cell, finals):
  """A record with these last accuracies, one for each seed."""
  curves = {"test_accuracy": [np.linspace(0.1, final, 3) for final in finals]}
  points = [{"seed": seed, "client_lr": 0.05} for seed in range(len(finals))]
  return record(curves, points, cell=cell)


def of_points(cell, accuracy):
  """A record of all points of a cell, with a last accuracy for each."""
  spec = spec_of(cell.arguments)
  points = [dict(each) for each in grid_points(spec.grid, list(spec.seed))]
  ends = [accuracy(p) + 0.001 * (p["seed"] % 3) for p in points]
  curves = {"test_accuracy": np.outer(ends, np.linspace(0.1, 1, 3))}
  return record(curves, points, cell=cell)


def filled(name, size, of_key, make=of_finals):
  """All runs of an artefact, with records of what `of_key` says of a key."""
  cells = ARTEFACTS[name].recipes(GridChoices(size))
  return {
    key: make(cell, of_key(key))
    for key, cell in cells.items()
    if isinstance(cell, RunOf)
  }


def of(blocks, kind):
  """The blocks of a kind."""
  return [each for each in blocks if isinstance(each, kind)]


def claims(name, found):
  """Text -> claim, of what was found of an artefact."""
  return {each.text: each for each in of(ARTEFACTS[name].blocks(found), Claim)}
