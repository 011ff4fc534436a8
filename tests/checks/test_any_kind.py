"""Values of any kind: accepted, or refused in one line that says which it is.

What else is refused of each argument, and how, is in the other files.
"""

import math
import re

import jax
import numpy as np
import optax
import pytest
import scipy.sparse

import fedjax_opt as fo
from fedjax_opt.engine.executor import Executor
from tests.checks import given
from tests.checks.test_fields import FACTORIES

KINDS = {
  "True": True,
  "huge": 10**400,
  "NaN": math.nan,
  "complex": 1j,
  "text": "zzz",
  "bytes": b"abc",
  "object": object(),
  "class": dict,
  "module": fo,
  "function": lambda: 0,
  "set": {1, 2},
  "no list": [],
  "list of None": [None],
  "ragged": [[[1.0]], [2.0, 3.0]],
  "no dict": {},
  "dict of text": {"x": "a"},
  "empty array": np.zeros((0, 3)),
  "array of text": np.array(["a"]),
  "array of objects": np.array([None]),
  "other byte order": np.ones(3, ">f4"),
  "masked": np.ma.masked_array(np.ones(2), [0, 1]),
  "sparse": scipy.sparse.eye(3),
  "key": jax.random.key(0),
  "shape": jax.ShapeDtypeStruct((3,), float),
}


def test_given_to_what_makes_a_part():
  for name, (factory, argument, _) in FACTORIES.items():
    for kind, value in KINDS.items():
      try:
        factory(**{argument: value})
      except (ValueError, TypeError) as error:
        line = str(error)
        assert "\n" not in line, (name, kind)
        assert line.startswith(argument) or "missing" in line, (name, kind)


def make(lr):
  return fo.fed_avg(given.loss_fn, optax.sgd(lr))


TRAIN, HELD_OUT = given.DATA.split(0.4)
WHOLE_GRID = given.SETTINGS | {
  "make": make,
  "grid": {"lr": [0.1, 0.2]},
  "seeds": [0, 1],
  "params": given.PARAMS,
  "data": given.DATA,
}
PERSONALIZED = {
  "model": given.PARAMS,
  "per_example": given.per_example,
  "held_out": HELD_OUT,
  "train": TRAIN,
  "loss_fn": given.loss_fn,
  "client": given.SGD,
  "local_steps": 1,
  "batch_size": 1,
}
# Function -> its valid arguments, and those that are not needed.
CALLS = {
  fo.simulate: (
    given.DEFAULTS,
    ("seed", "test", "validation", "checkpoints", "on_evaluation", "progress"),
    fo.Settings.__annotations__,
  ),
  fo.sweep: (WHOLE_GRID, ("grid_map", "grid_chunk", "grid_devices")),
  fo.evaluate_clients: (PERSONALIZED, ("algorithm", "point", "seed")),
}
# Argument -> kinds that are accepted.
ACCEPTED = {
  "replacement": {"True"},
  "drop_remainder": {"True"},
  "progress": {"True"},
  "trace": {"no list"},
}


class Accepted(Exception):
  """Instead of a compilation."""


@pytest.mark.parametrize("function", CALLS, ids=lambda each: each.__name__)
def test_given_to_what_runs(function, monkeypatch):
  def accept(*_):
    raise Accepted

  monkeypatch.setattr(Executor, "compile", accept)
  good, *others = CALLS[function]
  for argument in dict.fromkeys((*good, *(n for each in others for n in each))):
    accepted = set()
    for kind, value in KINDS.items():
      try:
        function(**good | {argument: value})
      except (ValueError, TypeError) as error:
        line = str(error)
        assert "\n" not in line, (argument, kind)
        # A model of another structure fails in the function of it.
        names = rf"({argument}|loss_fn|per_example|make)\b"
        assert re.match(names, line), (argument, kind, line)
      except Accepted:
        accepted.add(kind)
      else:
        accepted.add(kind)
    assert accepted == ACCEPTED.get(argument, set()), argument
