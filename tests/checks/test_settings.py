"""Settings of a run, rounds and seeds: each checker by itself."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import samplers, simulate
from fedjax_opt.engine import client_state, inputs
from fedjax_opt.engine.config import Config, check_names
from tests.checks import given
from tests.checks.given import ALGORITHM, DATA, PARAMS, SGD, fails_on, refused

WHOLE, NUMBER, SWITCH = "a whole number", "a number", "True or False"
FROM_1 = "from 1 to the number of clients, 4"
NO_WHOLE = ("2", [2], True, 1.5)
ONE_OF = {
  "weighting": "examples, uniform",
  "client_map": "auto, vmap, scan",
  "client_memory": "auto, device, host",
  "precision": "float32, mixed, bfloat16",
  "max_update_action": "reject, clip",
}


def settings(bad):
  return Config.create(DATA, {"batch_size": 2} | bad, PARAMS)


def of_grid(bad):
  return Config.create(DATA, {"batch_size": 2} | bad, num_settings=2)


def run(bad):
  simulate(ALGORITHM, PARAMS, DATA, **{"rounds": 1} | bad)


def seed(value):
  inputs.check_seed("seed", value)


def seeds(value):
  inputs.check_seeds_of({}, value)


def names(function):
  return lambda name: check_names([name], function=function)


def sampler(value):
  samplers.resolve(value, 4, 4)


def on_host(algorithm):
  config = settings({"client_memory": "host"})
  client_state.resolve(config, algorithm, None)


SAMPLER = (
  "must be a function (key, round) -> [C] int32, a sampler such as "
  "samplers.cyclic(4), or a name"
)
DRAWN = (
  "; must draw [C] = [4] whole numbers, and [C] factors of weights or None"
)
EVALUATE = "must be a function (params, data, test) -> {name: scalar}"
CHECKPOINTS = 'must be a Checkpoints, such as Checkpoints("folder", every=50)'

MAPS = "must be one of auto, vmap, scan"
NAN, INF = float("nan"), float("inf")
SEVERAL = (
  "must be a whole number; several seeds are for sweep(..., seeds=[0, 1])"
)
NO_LIST = "must be a list of whole numbers, such as [0, 1]"
INSTEAD = {
  ("simulate", "seeds"): "belongs to sweep(make, grid, ...)",
  ("simulate", "grid"): "belongs to sweep(make, grid, ...)",
  ("simulate", "grid_map"): "belongs to sweep(make, grid, ...)",
  ("sweep", "seed"): "give a list, seeds=[0]",
  ("Simulator", "seed"): "belongs to init(params, seed)",
  ("Simulator", "rounds"): "belongs to run(state, rounds)",
  ("Simulator", "params"): "belongs to init(params, seed)",
  ("Simulator", "on_evaluation"): "belongs to simulate and sweep",
  ("Simulator", "checkpoints"): "belongs to simulate and sweep",
  ("Simulator", "progress"): "belongs to simulate and sweep",
}
TABLES = {
  (settings, TypeError): {
    "weighting=an array float64[4]: must be one of examples, uniform": {
      "weighting": np.ones(4)
    },
    "precision=the class bfloat16: must be one of float32, mixed, bfloat16": {
      "precision": jnp.bfloat16
    },
    "trace='x': must be a list or tuple of names; write trace=(\"x\",)": {
      "trace": "x"
    },
    f"evaluate='accuracy': {EVALUATE}": {"evaluate": "accuracy"},
    f"evaluate={{'loss': 1}}: {EVALUATE}": {"evaluate": {"loss": 1}},
    f"evaluate=3: {EVALUATE}": {"evaluate": 3},
    f"evaluate=the function <lambda>: takes (p, d); {EVALUATE}": {
      "evaluate": lambda p, d: {}
    },
    f"evaluate=the function per_example: takes (params, batch); {EVALUATE}": {
      "evaluate": given.per_example
    },
    "evaluate=the function fedjax_opt.evaluation.federated: was not called; "
    "write evaluation.federated(per_example)": {
      "evaluate": given.evaluation.federated
    },
    "evaluate=the function fedjax_opt.evaluation.grad_norm_sq: was not "
    "called; write evaluation.federated(per_example)": {
      "evaluate": given.evaluation.grad_norm_sq
    },
    "batchsize: is no setting; did you mean batch_size?": {"batchsize": 3},
  },
  (settings, ValueError): {
    f"client_map='pmap': {MAPS}; did you mean vmap?": {"client_map": "pmap"},
    "local_steps=10000000000: must be at most 2147483647": {
      "local_steps": 10**10
    },
    "local_epochs=1e+12: gives a client more than 2147483647 examples in a "
    "round": {"local_epochs": 1e12},
    "batch_size=99: larger than every client; the largest has 3 examples": {
      "batch_size": 99
    },
    "max_update_action='clip': needs max_update_norm, the largest norm": {
      "max_update_action": "clip"
    },
    "client_devices=3: must divide the number of devices, 1": {
      "client_devices": 3
    },
    "local_epochs=1 and local_steps=2: give only one": {
      "local_epochs": 1,
      "local_steps": 2,
    },
    "client_chunk=2 with client_map='scan': scan takes one client after the "
    "other; use 'vmap' or 'auto'": {"client_chunk": 2, "client_map": "scan"},
  },
  (on_host, ValueError): {
    "client_memory='host': this algorithm keeps nothing for its clients (it "
    "has no `Algorithm.init_client`); leave client_memory out": ALGORITHM
  },
  (of_grid, ValueError): {
    f"grid_map='pmap': {MAPS}; did you mean vmap?": {"grid_map": "pmap"},
    "grid_devices=3: must divide the number of devices, 1": {"grid_devices": 3},
    "grid_chunk=2 with grid_map='scan': scan takes one point after the "
    "other; use 'vmap' or 'auto'": {"grid_chunk": 2, "grid_map": "scan"},
  },
  (run, TypeError): {
    "on_evaluation=3: must be a function (report)": {"on_evaluation": 3},
    "on_evaluation='print': must be a function (report)": {
      "on_evaluation": "print"
    },
    "on_evaluation=the function <lambda>: takes (); must be a function "
    "(report)": {"on_evaluation": lambda: None},
    f"checkpoints='folder': {CHECKPOINTS}": {"checkpoints": "folder"},
    f"checkpoints=True: {CHECKPOINTS}": {"checkpoints": True},
    f"checkpoints=10: {CHECKPOINTS}": {"checkpoints": 10},
  },
  (run, ValueError): {
    "rounds=-1: must not be negative": {"rounds": -1},
    "rounds=1000000000000: must be at most 2147483647": {"rounds": 10**12},
  },
  (seed, TypeError): {
    **{
      f"seed={value!r}: must be a whole number": value
      for value in (None, "0", 0.5, float("nan"), True)
    },
    f"seed=[0, 1]: {SEVERAL}": [0, 1],
    f"seed=[0]: {SEVERAL}": [0],
  },
  (seed, ValueError): {
    "seed=-1: must be from 0 to 4294967295": -1,
    "seed=4294967296: must be from 0 to 4294967295": 2**32,
  },
  (seeds, TypeError): {
    f"seeds=3: {NO_LIST}": 3,
    f"seeds='01': {NO_LIST}": "01",
    f"seeds={{0, 1}}: {NO_LIST}": {0, 1},
    f"seeds=an array int64[2, 2]: {NO_LIST}": np.zeros((2, 2), int),
    "seeds[0]=0.5: must be a whole number": [0.5],
    "seeds[0]=np.float64(0.0): must be a whole number": np.zeros(2),
  },
  (seeds, ValueError): {
    "seeds: give at least one value": [],
    "seeds[1]=-1: must be from 0 to 4294967295": [0, -1],
    "seeds=[0, 1, 0]: a seed is repeated; give it once": [0, 1, 0],
  },
  (lambda value: inputs.check_seeds_of(None, value), ValueError): {
    "seeds=[0, 1]: belongs to a grid; give init(params, seed=...)": [0, 1]
  },
  (names("simulate"), TypeError): {
    "cohort: is no setting; did you mean cohort_size?": "cohort",
    "epochs: is no setting; did you mean local_epochs?": "epochs",
    "num_rounds: is no setting; did you mean rounds?": "num_rounds",
    "lr: is no setting; see fedjax_opt.Settings": "lr",
    "learning_rate: is no setting; see fedjax_opt.Settings": "learning_rate",
    "learning_rates: is no setting; see fedjax_opt.Settings": "learning_rates",
  },
  (sampler, TypeError): {
    f"sampler=3: {SAMPLER}": 3,
    f"sampler=None: {SAMPLER}": None,
    f"sampler=an optimizer: {SAMPLER}": SGD,
    "sampler=the function fedjax_opt.cyclic: was not called; write "
    "samplers.cyclic(...)": samplers.cyclic,
    f"sampler=the function <lambda>: takes (key); {SAMPLER}": (
      lambda key: jnp.arange(4)
    ),
  },
  (sampler, ValueError): {
    "sampler='random': must be one of uniform, weighted, fixed": "random",
    "sampler: fixed has a client outside [0, 4)": samplers.fixed(
      [[0, 9, 1, 2]]
    ),
    f"sampler: draws ('int32[3]', None){DRAWN}": lambda k, r: jnp.arange(3),
    f"sampler: draws ('float32[4]', None){DRAWN}": lambda k, r: jnp.ones(4),
    f"sampler: draws (None, None){DRAWN}": lambda k, r: None,
    f"sampler: draws ('int32[4]', 'float32[3]'){DRAWN}": (
      lambda k, r: (jnp.arange(4), jnp.ones(3))
    ),
    f"sampler: draws int32[4]{DRAWN}": (
      samplers.Sampler(lambda *a: jnp.arange(4))
    ),
  },
}
# Checker, fields that want the same, what that is, and arguments that are a
# TypeError or a ValueError.
ALIKE = (
  (settings, ("cohort_size", "client_devices"), WHOLE, NO_WHOLE, ()),
  (settings, ("local_steps", "client_chunk"), WHOLE, NO_WHOLE, ()),
  (settings, ("batch_size", "eval_every"), WHOLE, (*NO_WHOLE, None), ()),
  (settings, ("batch_size", "eval_every"), "at least 1", (), (0, -2)),
  (settings, ("local_steps", "client_chunk"), "at least 1", (), (0, -2)),
  (settings, ("client_devices",), "at least 1", (), (0,)),
  (settings, ("cohort_size",), FROM_1, (), (0, 5, 9)),
  (settings, ("local_epochs", "client_dropout"), NUMBER, ("1", [1], 1j), ()),
  (settings, ("max_update_norm",), NUMBER, ("1", [1], True), ()),
  (settings, ("client_dropout",), NUMBER, (None, True), ()),
  (settings, ("client_dropout",), "in [0, 1)", (), (1.0, 1, -0.5, NAN, INF)),
  (settings, ("local_epochs",), "above 0", (), (-1, 0, NAN, INF)),
  (settings, ("max_update_norm",), "in (0, inf)", (), (0, -1, NAN, INF)),
  (settings, ("replacement", "drop_remainder"), SWITCH, ("yes", 1, None), ()),
  (settings, ("trace",), "a list or tuple of names", (None, [1], 3), ()),
  (of_grid, ("grid_chunk", "grid_devices"), WHOLE, NO_WHOLE, ()),
  (of_grid, ("grid_chunk", "grid_devices"), "at least 1", (), (0,)),
  (of_grid, ("grid_map",), "one of auto, vmap, scan", (None, True), ("x",)),
  (run, ("rounds",), WHOLE, (*NO_WHOLE, None, 2.5), ()),
  (run, ("progress",), SWITCH, ("yes", 1, None), ()),
  *(
    (settings, (name,), f"one of {words}", (None, True, 16, ["a"]), ("zzz",))
    for name, words in ONE_OF.items()
  ),
)
TABLES |= {
  (names(function), TypeError): {
    f"{name}: is no setting of {function}; {words}": name
    for (of, name), words in INSTEAD.items()
    if of == function
  }
  for function in ("simulate", "sweep", "Simulator")
}
CASES = refused(TABLES)
CASES += itertools.chain(*itertools.starmap(fails_on, ALIKE))


@pytest.mark.parametrize(("call", "kind", "line"), CASES)
def test_is_refused(call, kind, line):
  given.check(call, kind, line)
