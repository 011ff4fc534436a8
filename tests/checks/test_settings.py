"""Settings of a run, rounds and seeds: each checker by itself."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import samplers, simulate
from fedjax_opt.engine import client_state, inputs
from fedjax_opt.engine.config import Config, check_names
from tests.checks import given
from tests.checks.given import (
  ALGORITHM,
  DATA,
  PARAMS,
  SGD,
  Each,
  fails_on,
  refused,
)

WHOLE, NUMBER, SWITCH = "a whole number", "a number", "True or False"
FROM_1 = "from 1 to the number of clients, 4"
NO_WHOLE = ("2", [2], True, 1.5)
NAN, INF = float("nan"), float("inf")


def settings(bad):
  return Config.create(DATA, {"batch_size": 2} | bad, PARAMS)


def of_grid(bad):
  return Config.create(DATA, {"batch_size": 2} | bad, num_settings=2)


def run(bad):
  simulate(ALGORITHM, PARAMS, DATA, **{"rounds": 1} | bad)


def evaluate(value):
  settings({"evaluate": value})


def seed(value):
  inputs.SEED.check("seed", value)


def seeds(value):
  inputs.check_seeds({}, value)


def seeds_of_a_run(value):
  inputs.check_seeds(None, value)


def name(value):
  check_names([value])


def sampler(value):
  samplers.resolve(value, 4, 4)


def on_host(algorithm):
  config = settings({"client_memory": "host"})
  client_state.resolve(config, algorithm, None)


TABLES = {
  (settings, TypeError): {
    "weighting=an array float64[4]: ": {"weighting": np.ones(4)},
    "precision=the class bfloat16: ": {"precision": jnp.bfloat16},
    "trace='x': must be a list or tuple of names; write trace=(\"x\",)": {
      "trace": "x"
    },
    "batchsize: is no setting; did you mean batch_size?": {"batchsize": 3},
  },
  (evaluate, TypeError): {
    "evaluate=": Each(
      "accuracy", {"loss": 1}, 3, lambda p, d: {}, given.per_example
    ),
    "evaluate=the function fedjax_opt.evaluation.": Each(
      given.evaluation.federated, given.evaluation.grad_norm_sq
    ),
  },
  (settings, ValueError): {
    "client_map='pmap': must be one of auto, vmap, scan; did you mean vmap?": {
      "client_map": "pmap"
    },
    "local_steps=10000000000: ": {"local_steps": 10**10},
    "local_epochs=1e+12: gives a client more than": {"local_epochs": 1e12},
    "batch_size=99: larger than every client": {"batch_size": 99},
    "max_update_action='clip': needs max_update_norm": {
      "max_update_action": "clip"
    },
    "client_devices=3: must divide the number of": {"client_devices": 3},
    "model_devices=3: must divide the number of": {"model_devices": 3},
    "local_epochs=1 and local_steps=2: give only one": {
      "local_epochs": 1,
      "local_steps": 2,
    },
    "client_chunk=2 with client_map='scan': ": {
      "client_chunk": 2,
      "client_map": "scan",
    },
  },
  (on_host, ValueError): {
    "client_memory='host': this algorithm keeps nothing": ALGORITHM
  },
  (of_grid, ValueError): {
    "grid_map='pmap': ": {"grid_map": "pmap"},
    "grid_devices=3: must divide the number of": {"grid_devices": 3},
    "grid_chunk=2 with grid_map='scan': ": {
      "grid_chunk": 2,
      "grid_map": "scan",
    },
  },
  (run, TypeError): {
    "on_evaluation=": Each(
      {"on_evaluation": 3}, {"on_evaluation": lambda: None}
    ),
    "checkpoints=": Each({"checkpoints": "folder"}, {"checkpoints": True}),
  },
  (run, ValueError): {
    "rounds=-1: must not be negative": {"rounds": -1},
    "rounds=1000000000000: must be at most": {"rounds": 10**12},
  },
  (seed, TypeError): {"seed=": Each(None, "0", 0.5, NAN, True, [0, 1], [0])},
  (seed, ValueError): {
    "seed=-1: must not be negative": -1,
    "seed=4294967296: must be at most 4294967295": 2**32,
  },
  (seeds, TypeError): {
    "seeds=": Each(3, "01", {0, 1}),
    "seeds[0]=": Each([0.5], np.zeros(2), np.zeros((2, 2), int)),
  },
  (seeds, ValueError): {
    "seeds=[]: must be a list of seeds": [],
    "seeds[1]=-1: ": [0, -1],
    "seeds: 0 is repeated; give it once": [0, 1, 0],
  },
  (seeds_of_a_run, ValueError): {"seeds=[0, 1]: belongs to a grid": [0, 1]},
  (name, TypeError): {
    "cohort: is no setting; did you mean cohort_size?": "cohort",
    "num_rounds: is no setting; did you mean rounds?": "num_rounds",
    "lr: is no setting; see fedjax_opt.Settings": "lr",
    "rounds: is no setting, but an argument of simulate, sweep": "rounds",
    "seeds: is no setting, but an argument of sweep": "seeds",
    "grid_map: is no setting, but an argument of sweep": "grid_map",
  },
  (sampler, TypeError): {
    "sampler=": Each(3, None, SGD, samplers.cyclic, lambda key: jnp.arange(4)),
  },
  (sampler, ValueError): {
    "sampler='random': must be one of uniform, weighted, fixed": "random",
    "sampler: fixed has a client outside [0, 4)": samplers.fixed(
      [[0, 9, 1, 2]]
    ),
    "sampler: draws ": Each(
      lambda k, r: jnp.arange(3),
      lambda k, r: jnp.ones(4),
      lambda k, r: None,
      lambda k, r: (jnp.arange(4), jnp.ones(3)),
      samplers.Sampler(lambda *a: jnp.arange(4)),
    ),
  },
}
# Checker, fields that want the same, what that is, and arguments that are a
# TypeError or a ValueError.
ALIKE = (
  (settings, ("cohort_size", "client_devices"), WHOLE, NO_WHOLE, ()),
  (settings, ("local_steps", "client_chunk"), WHOLE, NO_WHOLE, ()),
  (settings, ("model_devices",), WHOLE, NO_WHOLE, ()),
  (settings, ("batch_size", "eval_every"), WHOLE, (*NO_WHOLE, None), ()),
  (settings, ("batch_size", "eval_every"), "at least 1", (), (0, -2)),
  (settings, ("local_steps", "client_chunk"), "at least 1", (), (0, -2)),
  (settings, ("client_devices", "model_devices"), "at least 1", (), (0,)),
  (settings, ("cohort_size",), FROM_1, (), (0, 5, 9)),
  (settings, ("local_epochs", "client_dropout"), NUMBER, ("1", [1], 1j), ()),
  (settings, ("max_update_norm",), NUMBER, ("1", [1], True), ()),
  (settings, ("client_dropout",), NUMBER, (None, True), ()),
  (settings, ("client_dropout",), "in [0, 1)", (), (1.0, 1, -0.5, NAN, INF)),
  (settings, ("local_epochs",), "above 0", (), (-1, 0, NAN, INF)),
  (settings, ("max_update_norm",), "in (0, inf)", (), (0, -1, NAN, INF)),
  (settings, ("replacement", "drop_remainder"), SWITCH, ("yes", 1, None), ()),
  (settings, ("trace",), "a list or tuple of names", (None, [1], 3), ()),
  (settings, ("weighting", "client_map", "precision"), "one of ", (), ("z",)),
  (settings, ("client_memory", "max_update_action"), "one of ", (None,), ()),
  (of_grid, ("grid_chunk", "grid_devices"), WHOLE, NO_WHOLE, ()),
  (of_grid, ("grid_chunk", "grid_devices"), "at least 1", (), (0,)),
  (of_grid, ("grid_map",), "one of auto, vmap, scan", (None, True), ("x",)),
  (run, ("rounds",), WHOLE, (*NO_WHOLE, None, 2.5), ()),
  (run, ("progress",), SWITCH, ("yes", 1, None), ()),
)
CASES = [
  *refused(TABLES),
  *(case for alike in ALIKE for case in fails_on(*alike)),
]


@pytest.mark.parametrize(("call", "kind", "line"), CASES)
def test_is_refused(call, kind, line):
  given.check(call, kind, line)
