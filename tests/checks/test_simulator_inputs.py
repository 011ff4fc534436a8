"""Bad arguments of `Simulator`, its `init` and its `run`."""

import dataclasses
import functools

import numpy as np
import optax
import pytest

from fedjax_opt import ClientData, Simulator, fed_avg, scaffold
from tests.checks import given
from tests.checks.given import (
  ALGORITHM,
  DATA,
  PARAMS,
  SGD,
  TEST,
  N,
  evaluate,
  loss_fn,
)

BATCH = {"data": DATA, "batch_size": 2}


def make(lr):
  return fed_avg(loss_fn, optax.sgd(lr))


def new(**bad):
  """A simulator to which these arguments are given."""
  good = {"algorithm": ALGORITHM, **BATCH}
  return lambda: Simulator(**good | bad)


SIM = Simulator(ALGORITHM, **BATCH, evaluate=evaluate)
GRID = Simulator(make, **BATCH, grid={"lr": [0.1, 0.2]}, seeds=[0, 1])
OTHER = Simulator(ALGORITHM, **BATCH, cohort_size=2)
FEWER = Simulator(
  ALGORITHM, ClientData.from_client_ids(TEST, np.arange(N) % 3), batch_size=2
)


@functools.cache
def state():
  return SIM.init(PARAMS)


@functools.cache
def of_grid():
  return GRID.init(PARAMS)


@pytest.fixture(autouse=True, scope="module")
def states():
  """Made before anything is counted."""
  return state(), of_grid()


# id: (call, type of the error, the whole line). A line that ends in "..." is
# compared up to there: what follows is quoted from a library.
BAD = {
  "algorithm=fed_avg": (
    new(algorithm=fed_avg),
    TypeError,
    (
      "algorithm=the function fedjax_opt.fed_avg: must be an Algorithm (it "
      "was not called), such as fed_avg(loss_fn, optax.sgd(0.1))"
    ),
  ),
  "algorithm=None": (
    new(algorithm=None),
    TypeError,
    (
      "algorithm=None: must be an Algorithm, such as fed_avg(loss_fn, "
      "optax.sgd(0.1))"
    ),
  ),
  "algorithm=make": (
    new(algorithm=make),
    TypeError,
    (
      "algorithm=the function make: must be an Algorithm (it was not "
      "called), such as fed_avg(loss_fn, optax.sgd(0.1))"
    ),
  ),
  "data=None": (
    new(data=None),
    TypeError,
    (
      "data=None: must be clients, such as ClientData.from_client_ids({'x':"
      " x, 'y': y}, client_ids), or a Population"
    ),
  ),
  "data=TEST": (
    new(data=TEST),
    TypeError,
    (
      "data=a dict: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    ),
  ),
  "data=lambda s: DATA": (
    new(data=lambda s: DATA),
    TypeError,
    (
      "data=the function <lambda>: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    ),
  ),
  "seeds=[0, 1]": (
    new(seeds=[0, 1]),
    ValueError,
    "seeds=[0, 1]: belongs to a grid; give init(params, seed=...)",
  ),
  "seed=0": (
    new(seed=0),
    TypeError,
    "seed: is no setting of Simulator; belongs to init(params, seed)",
  ),
  "rounds=3": (
    new(rounds=3),
    TypeError,
    "rounds: is no setting of Simulator; belongs to run(state, rounds)",
  ),
  "params=PARAMS": (
    new(params=PARAMS),
    TypeError,
    "params: is no setting of Simulator; belongs to init(params, seed)",
  ),
  "on_evaluation=print": (
    new(on_evaluation=print),
    TypeError,
    (
      "on_evaluation: is no setting of Simulator; belongs to simulate and sweep"
    ),
  ),
  "checkpoints=None": (
    new(checkpoints=None),
    TypeError,
    ("checkpoints: is no setting of Simulator; belongs to simulate and sweep"),
  ),
  "progress=True": (
    new(progress=True),
    TypeError,
    "progress: is no setting of Simulator; belongs to simulate and sweep",
  ),
  "cohort_size=9": (
    new(cohort_size=9),
    ValueError,
    "cohort_size=9: must be from 1 to the number of clients, 4",
  ),
  "cohort_size=True": (
    new(cohort_size=True),
    TypeError,
    "cohort_size=True: must be a whole number",
  ),
  "batch_size='2'": (
    new(batch_size="2"),
    TypeError,
    "batch_size='2': must be a whole number",
  ),
  "local_steps=1.5": (
    new(local_steps=1.5),
    TypeError,
    "local_steps=1.5: must be a whole number",
  ),
  "trace='x'": (
    new(trace="x"),
    TypeError,
    "trace='x': must be a list or tuple of names; write trace=(\"x\",)",
  ),
  "evaluate=3": (
    new(evaluate=3),
    TypeError,
    ("evaluate=3: must be a function (params, data, test) -> {name: scalar}"),
  ),
  "test=TEST": (
    new(test=TEST),
    ValueError,
    (
      "test: nothing is measured on it; give evaluate=, such as "
      "evaluation.federated(per_example)"
    ),
  ),
  "grid={'lr': [0.1]}": (
    new(grid={"lr": [0.1]}),
    TypeError,
    (
      "make=an Algorithm: must be a function of the hyperparameters that "
      "returns an Algorithm, such as lambda lr: fed_avg(loss_fn, "
      "optax.sgd(lr))"
    ),
  ),
  "grid=[]": (
    new(grid=[]),
    TypeError,
    (
      "make=an Algorithm: must be a function of the hyperparameters that "
      "returns an Algorithm, such as lambda lr: fed_avg(loss_fn, "
      "optax.sgd(lr))"
    ),
  ),
  "batchsize=3": (
    new(batchsize=3),
    TypeError,
    "batchsize: is no setting; did you mean batch_size?",
  ),
  "grid_map='x'": (
    new(grid_map="x"),
    ValueError,
    "grid_map='x': must be one of auto, vmap, scan",
  ),
  "eval_every=0": (
    new(eval_every=0),
    ValueError,
    "eval_every=0: must be at least 1",
  ),
  "init grid seed": (
    lambda: GRID.init(PARAMS, seed=0),
    ValueError,
    "seed=0: the seeds of a grid are given to Simulator(seeds=...)",
  ),
  "init seed": (
    lambda: SIM.init(PARAMS, seed="0"),
    TypeError,
    "seed='0': must be a whole number",
  ),
  "init seeds": (
    lambda: SIM.init(PARAMS, seed=[0, 1]),
    TypeError,
    (
      "seed=[0, 1]: must be a whole number; several seeds are for "
      "sweep(..., seeds=[0, 1])"
    ),
  ),
  "init neg": (
    lambda: SIM.init(PARAMS, -1),
    ValueError,
    "seed=-1: must be from 0 to 4294967295",
  ),
  "init None": (
    lambda: SIM.init(None),
    TypeError,
    "params=None: must be a pytree of arrays",
  ),
  "init int": (
    lambda: SIM.init({"w": np.zeros((3, 2), int)}),
    TypeError,
    (
      "params['w']: is int64; must be floating-point numbers, as local "
      "steps add fractions to it"
    ),
  ),
  "init fn": (
    lambda: SIM.init(lambda k: PARAMS),
    TypeError,
    (
      "params=the function <lambda>: must be a pytree of arrays; a function"
      " from a random key to one is for sweep"
    ),
  ),
  "init shape": (
    lambda: SIM.init({"w": np.zeros((5, 2), "f")}),
    TypeError,
    "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}:...",
  ),
  "init name": (
    lambda: SIM.init({"v": np.zeros((3, 2), "f")}),
    ValueError,
    (
      "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}: "
      "KeyError: 'w'"
    ),
  ),
  "init nan": (
    lambda: SIM.init({"w": np.full((3, 2), np.inf)}),
    ValueError,
    "params['w']: is not finite; the initial model must be",
  ),
  "run None": (
    lambda: SIM.run(None, 1),
    TypeError,
    "state=None: must be what Simulator.init or run returned",
  ),
  "run params": (
    lambda: SIM.run(PARAMS, 1),
    TypeError,
    (
      "state={'w': array([[0., 0.], [0., 0.], [0., 0.]], dtype=float32)}: "
      "must be what Simulator.init or run returned"
    ),
  ),
  "run pair": (
    lambda: SIM.run((state(), {}), 1),
    TypeError,
    (
      "state=(SimulationState(round 0, seeds (0,)), {}): must be what "
      "Simulator.init or run returned; run returns (state, metrics)"
    ),
  ),
  "run server": (
    lambda: SIM.run(state().server, 1),
    TypeError,
    "state=a FedAvgState: must be what Simulator.init or run returned",
  ),
  "run rounds": (
    lambda: SIM.run(state(), -1),
    ValueError,
    "rounds=-1: must not be negative",
  ),
  "run rounds 2": (
    lambda: SIM.run(state(), 1.5),
    TypeError,
    "rounds=1.5: must be a whole number",
  ),
  "run rounds 3": (
    lambda: SIM.run(state(), None),
    TypeError,
    "rounds=None: must be a whole number",
  ),
  "run rounds 4": (
    lambda: SIM.run(state(), 2**31),
    ValueError,
    "rounds=2147483648: must be at most 2147483647",
  ),
  "run order": (
    lambda: SIM.run(1, state()),
    TypeError,
    "rounds=SimulationState(round 0, seeds (0,)): must be a whole number",
  ),
  "run grid state": (
    lambda: SIM.run(of_grid(), 1),
    ValueError,
    "state: is of a grid; this simulator has none",
  ),
  "run single state": (
    lambda: GRID.run(state(), 1),
    ValueError,
    "state: is of a single run; this simulator has a grid",
  ),
  "run other cohort": (
    lambda: OTHER.run(state(), 1),
    ValueError,
    (
      "state: was made with cohort_size 4; must be one of this simulator, "
      "with 2"
    ),
  ),
  "run other clients": (
    lambda: FEWER.run(state(), 1),
    ValueError,
    (
      "state: was made with num_clients 4; must be one of this simulator, "
      "with 3"
    ),
  ),
  "params None": (
    lambda: SIM.params(None),
    TypeError,
    "state=None: must be what Simulator.init or run returned",
  ),
  "params result": (
    lambda: SIM.params(PARAMS),
    TypeError,
    (
      "state={'w': array([[0., 0.], [0., 0.], [0., 0.]], dtype=float32)}: "
      "must be what Simulator.init or run returned"
    ),
  ),
  "run seeds": (
    lambda: GRID.run(dataclasses.replace(of_grid(), seeds=(0, 2)), 1),
    ValueError,
    (
      "state: was made with seeds (0, 2); must be one of this simulator, "
      "with (0, 1)"
    ),
  ),
  "run other algorithm": (
    lambda: Simulator(scaffold(loss_fn, 0.1), **BATCH).run(state(), 1),
    ValueError,
    (
      "state: does not fit this simulator: ValueError: Algorithm.round: "
      "failed: AttributeError: 'FedAvgState' object has no attribute "
      "'control'"
    ),
  ),
  "run far": (
    lambda: SIM.run(dataclasses.replace(state(), round=2**31 - 1), 1),
    ValueError,
    "state.round + rounds=2147483648: must be at most 2147483647",
  ),
  "init loss": (
    lambda: Simulator(fed_avg(lambda p, b, r: 1.0, SGD), **BATCH).init(PARAMS),
    ValueError,
    (
      "loss_fn: returned a scalar; must be one number per example, [B] = "
      "[2]; drop the .mean()"
    ),
  ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(case):
  given.check(*BAD[case])
