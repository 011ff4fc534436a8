"""That public functions call their checkers, before anything is compiled.

A few whole calls for each; what each checker refuses is in the other files.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import ClientData, ClientOutput, Simulator, fed_avg, transforms
from tests.checks import given
from tests.checks.given import (
  ALGORITHM,
  DATA,
  OWNERS,
  PARAMS,
  SGD,
  TEST,
  Each,
  N,
  X,
  Y,
  call,
  evaluate,
  loss_fn,
  refused,
)

BATCH = {"data": DATA, "batch_size": 2}
LOSS = (
  "loss_fn: returned a scalar; must be one number per example, [B] = [2]; drop "
  "the .mean()"
)


def make(lr):
  return fed_avg(loss_fn, optax.sgd(lr))


def mean_loss(params, batch, rng):
  return loss_fn(params, batch, rng).mean()


def simulate(bad):
  good = {"algorithm": ALGORITHM, "params": PARAMS, "rounds": 2, **BATCH}
  fo.simulate(**good | bad)


def sweep(bad):
  grid = {"lr": [0.1, 0.2]}
  good = {"make": make, "grid": grid, "params": PARAMS, "rounds": 2, **BATCH}
  fo.sweep(**good | bad)


def simulator(bad):
  Simulator(**{"algorithm": ALGORITHM, **BATCH} | bad)


def own(round):
  """Settings of a run of an algorithm of one's own."""
  init = lambda params, num_clients: params
  return {"algorithm": fo.Algorithm(init, round, lambda state: state)}


def sends(one_client, **settings):
  """One whose clients send this."""
  mean = lambda state, cohort: cohort.mean(one_client, state, **settings)
  return own(lambda state, cohort: (state, mean(state, cohort)))


def becomes(new):
  """One whose round returns this of its state and a reply."""
  send_all = lambda worker, params: params
  return own(lambda state, cohort: new(state, cohort.mean(send_all, state)))


PROX_SKIP = fo.prox_skip(loss_fn, jnp.float32(0.1))

# Simulators and their states.
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


TRAIN, HELD_OUT = DATA.split(0.4)
OTHERS, _ = DATA.split_clients(0.5)
STEPS = {
  "train": TRAIN,
  "loss_fn": loss_fn,
  "client": SGD,
  "local_steps": 1,
  "batch_size": 1,
}
MOON = fo.moon(loss_fn, lambda p, b, r: b["x"] @ p["w"], SGD)


def evaluate_clients(bad):
  good = {
    "model": PARAMS,
    "per_example": given.per_example,
    "held_out": HELD_OUT,
  }
  fo.evaluate_clients(**good | bad)


def prox_skip(settings):
  simulate({"algorithm": PROX_SKIP} | settings)


TABLES = {
  (simulate, TypeError): {
    "rounds=2.0: ": {"rounds": 2.0},
    "params=None: ": {"params": None},
    "batch_size='8': ": {"batch_size": "8"},
    "grid: is no setting, but an argument of sweep": {"grid": {"lr": [1]}},
    "loss_fn: failed on a batch {x: float32[2, 3], y: float32[2]}": {
      "data": ClientData.from_client_ids({"x": X, "y": Y / 1}, OWNERS)
    },
    "client: its update failed:": {
      "algorithm": fed_avg(loss_fn, optax.sgd("0.1"))
    },
    "server: its update failed:": {
      "algorithm": fed_avg(loss_fn, SGD, fo.sps())
    },
    "learning_rate: its function of the round returned 'a'; ": {
      "algorithm": fo.scaffold(loss_fn, lambda round: "a")
    },
    "client=the function optax.sgd: was not called; ": sends(
      lambda w, p: w.descend(loss_fn, optax.sgd, p)
    ),
    "loss_fn=the function <lambda>: takes (p); ": sends(
      lambda w, p: w.descend(lambda p: 0, SGD, p)
    ),
    "one_client: failed:": sends(lambda w, p: w.descend(loss_fn, SGD, 3)),
  },
  (simulate, ValueError): {
    "cohort_size=5: ": {"cohort_size": 5},
    "test: 12 of its 12 examples ": {"test": DATA, "evaluate": evaluate},
    "client_memory='host': ": {"client_memory": "host"},
    "sampler: draws ('int32[3]', None); ": {
      "sampler": lambda key, round: jnp.arange(3)
    },
    "evaluate: 'loss' is float32[3, 2]; ": {
      "evaluate": lambda p, d, t: {"loss": p["w"]}
    },
    LOSS: Each(
      {"algorithm": fed_avg(mean_loss, SGD)},
      {"algorithm": fed_avg(mean_loss, SGD), "precision": "mixed"},
      {"algorithm": fed_avg(fo.objectives.l2(mean_loss, 0.1), SGD)},
      {"algorithm": fo.moon(mean_loss, lambda p, b, r: b["x"], SGD)},
    ),
    LOSS.replace("[2]", "[3]"): sends(lambda w, p: w.gradient(mean_loss, p)),
    LOSS.replace("[2]", "[4]"): {"algorithm": fo.minibatch_sgd(mean_loss, 0.1)},
    "phase=9: must be in [0, 8)": sends(lambda w, p: p, phase=9),
    "ClientOutput.state: was given, but the algorithm has no ": sends(
      lambda w, p: ClientOutput(p, state=p)
    ),
    "worker.state: the algorithm has no ": sends(lambda w, p: w.state),
    "Algorithm.round: state: lacks the leaf ['w'] ": becomes(
      lambda state, reply: ({}, reply)
    ),
    "client: the rule's state: lacks the leaf ['a'] that init has": {
      "algorithm": fed_avg(
        loss_fn,
        optax.GradientTransformation(
          lambda p: {"a": 0.0}, lambda g, s, p=None: (g, {"b": 0.0})
        ),
      )
    },
    "cohort_size: centralized needs all clients in each round; ": {
      "algorithm": fo.centralized(loss_fn, fo.prox.zero(), 0.1),
      "cohort_size": 2,
    },
    "upload: its update failed:": {"upload": optax.add_decayed_weights(0.1)},
    "upload: its init: failed: KeyError: 'a'": {
      "upload": transforms.Upload(
        optax.GradientTransformation(lambda params: {}["a"], None)
      )
    },
  },
  (prox_skip, ValueError): {
    "cohort_size: prox_skip needs all clients in each round; ": Each(
      {"cohort_size": 3}, {"sampler": "weighted"}, {"client_dropout": 0.1}
    ),
    "prox_skip: needs plain means, by which its corrections add up ": Each(
      {"aggregator": fo.aggregators.median(), "weighting": "uniform"},
      {"max_update_norm": 1.0, "max_update_action": "clip"},
    ),
  },
  (sweep, TypeError): {
    "make=an Algorithm: ": {"make": ALGORITHM},
    "grid=None: ": {"grid": None},
    "grid['lr']=0.1: ": {"grid": {"lr": 0.1}},
    "seeds=3: ": {"seeds": 3},
    "seed: is no setting, but an argument of ": {"seed": 3},
    "rounds=None: ": {"rounds": None},
    "params=the class dict: ": {"params": dict},
    "data(0)=None: ": {"data": lambda seed: None},
    "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}:": {
      "params": lambda key: {"w": jax.random.normal(key, (2, 2))}
    },
  },
  (sweep, ValueError): {
    "grid_devices=3: ": {"grid_devices": 3},
    "trace='momentum': ": {"trace": ["momentum"]},
    "mu_s=1: must be in [0, 1)": {
      "make": lambda mu: fo.domo(loss_fn, 0.1, mu_s=mu),
      "grid": {"mu": [0.9, 1.0]},
    },
    LOSS: {"make": lambda lr: fed_avg(mean_loss, optax.sgd(lr))},
    "evaluate: the name 'lr' must not be empty, or one of point, round, seed, "
    "lr, ": {"evaluate": lambda params, data, test: {"lr": 0.0}},
  },
  (simulator, TypeError): {
    "data=a dict: ": {"data": TEST},
    "seed: is no setting, but an argument of ": {"seed": 0},
    "algorithm=an Algorithm: ": {"grid": []},
  },
  (simulator, ValueError): {"seeds=[0, 1]: ": {"seeds": [0, 1]}},
  (call, TypeError): {
    "seed='0': must be a whole number": lambda: SIM.init(PARAMS, seed="0"),
    "params=the function <lambda>: ": lambda: SIM.init(lambda k: PARAMS),
    "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}:": (
      lambda: SIM.init({"w": np.zeros((5, 2), "f")})
    ),
    "state=": Each(
      lambda: SIM.run(None, 1),
      lambda: SIM.params(PARAMS),
      lambda: SIM.run((state(), {}), 1),
      lambda: SIM.run(state().server, 1),
    ),
    "rounds=1.5: must be a whole number": lambda: SIM.run(state(), 1.5),
  },
  (call, ValueError): {
    "seed=0: the seeds of a grid are given to ": (
      lambda: GRID.init(PARAMS, seed=0)
    ),
    "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}: KeyError: "
    "'w'": (lambda: SIM.init({"v": np.zeros((3, 2), "f")})),
    "rounds=2147483648: must be at most": lambda: SIM.run(state(), 2**31),
    "state.round + rounds=2147483648: must be at most": (
      lambda: SIM.run(dataclasses.replace(state(), round=2**31 - 1), 1)
    ),
    "state: was made with has_points True; ": lambda: SIM.run(of_grid(), 1),
    "state: was made with has_points False; ": lambda: GRID.run(state(), 1),
    "state: was made with cohort_size 4; ": lambda: OTHER.run(state(), 1),
    "state: was made with num_clients 4; ": lambda: FEWER.run(state(), 1),
    "state: was made with seeds (0, 2); ": (
      lambda: GRID.run(dataclasses.replace(of_grid(), seeds=(0, 2)), 1)
    ),
    "state: does not fit this simulator: ValueError: Algorithm.round: ": (
      lambda: Simulator(fo.scaffold(loss_fn, 0.1), **BATCH).run(state(), 1)
    ),
  },
  (evaluate_clients, TypeError): {
    "held_out=a dict: ": {"held_out": TEST},
    "local_steps=1.5: ": STEPS | {"local_steps": 1.5},
    "client=3: ": STEPS | {"client": 3},
    "cohort_size: is no setting; ": STEPS | {"cohort_size": 3},
    "model['w']=3: ": {"model": {"w": 3}},
    "algorithm: is an optimizer; ": {"algorithm": SGD},
    "per_example=the function loss_fn: ": {"per_example": loss_fn},
  },
  (evaluate_clients, ValueError): {
    "train: must be given with local_steps=1": STEPS | {"train": None},
    "client: must be given with local_steps=1": STEPS | {"client": None},
    "client: belongs to personalized models; ": {"client": SGD},
    "train: has 2 clients and held_out 4; ": {"train": OTHERS},
    "local_steps=-1: ": STEPS | {"local_steps": -1},
    "batch_size=9: larger than every client; ": STEPS | {"batch_size": 9},
    "seed=-1: ": STEPS | {"seed": -1},
    "point=0: belongs to a result of sweep; ": {"point": 0},
    "algorithm: clients' own models are in the state": {"algorithm": MOON},
  },
}


@pytest.mark.parametrize(("call", "kind", "line"), refused(TABLES))
def test_is_refused(call, kind, line):
  given.check(call, kind, line)
