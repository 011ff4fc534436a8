"""Settings that cannot be are refused in one clear line."""

import numpy as np
import optax
import pytest

from fedjax_opt import fed_avg, simulate
from tests.engine.test_cohort import DATA, B, N, reward

BAD = {
  "cohort_size=6: must be from 1 to the number of clients, 5": {
    "cohort_size": 6
  },
  "cohort_size=0: must be from 1 to the number of clients, 5": {
    "cohort_size": 0
  },
  "batch_size=0: must be at least 1": {"batch_size": 0},
  "batch_size=13: larger than every client; the largest has 12 examples": {
    "batch_size": 13
  },
  "local_epochs=2 and local_steps=3: give only one": {
    "local_epochs": 2.0,
    "local_steps": 3,
  },
  "local_steps=0: must be at least 1": {"local_steps": 0},
  "local_epochs=0: must be above 0": {"local_epochs": 0},
  "local_epochs=inf: must be above 0": {"local_epochs": float("inf")},
  "local_epochs=nan: must be above 0": {"local_epochs": float("nan")},
  "rounds=-1: must not be negative": {"rounds": -1},
  "eval_every=0: must be at least 1": {"eval_every": 0},
  "weighting='sizes': must be one of examples, uniform": {"weighting": "sizes"},
  "client_map='pmap': must be one of auto, vmap, scan; did you mean vmap?": {
    "client_map": "pmap"
  },
  "client_chunk=0: must be at least 1": {"client_chunk": 0},
  "client_chunk=2 with client_map='scan': scan takes one client after the "
  "other; use 'vmap' or 'auto'": {"client_chunk": 2, "client_map": "scan"},
  "trace='momentum': the client rule's state has no such field": {
    "trace": ("momentum",)
  },
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_clear_line(message):
  settings = {"rounds": 1, "batch_size": B} | BAD[message]
  with pytest.raises(ValueError) as error:  # noqa: PT011
    simulate(fed_avg(reward, optax.sgd(0.1)), np.zeros(N), DATA, **settings)
  assert str(error.value) == message
