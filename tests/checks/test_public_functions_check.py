"""That public functions call their checkers, before anything is compiled.

A few whole calls for each; what each checker refuses is in the other files.
"""

import functools

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import ClientData, Simulator, fed_avg
from tests.helpers import linear, refusals
from tests.helpers.linear import (
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


def mean_loss(params, batch, rng):
  return loss_fn(params, batch, rng).mean()


def simulate(bad):
  good = {"algorithm": ALGORITHM, "params": PARAMS, "rounds": 2, **BATCH}
  fo.simulate(**good | bad)


def sweep(bad):
  grid = {"lr": [0.1, 0.2]}
  good = {"make": make, "grid": grid, "params": PARAMS, "rounds": 2, **BATCH}
  fo.sweep(**good | bad)


def own(round, **options):
  """Settings of a run of an algorithm of one's own."""
  same = lambda state: state
  return {"algorithm": fo.Algorithm(same, round, same, **options)}


def sends(one_client, **options):
  """One whose clients send this."""
  mean = lambda state, cohort: cohort.mean(one_client, state, **options)
  return own(lambda state, cohort: (state, mean(state, cohort)))


def becomes(new):
  """One whose round returns this of its state and a reply."""
  send_all = lambda worker, params: params
  return own(lambda state, cohort: new(state, cohort.mean(send_all, state)))


def measuring(worker, params):
  """What a client sends, and a metric."""
  model = worker.descend(loss_fn, fo.delta_sgd(), params)
  return fo.ClientOutput(model, metrics={"step_size": 1.0})


PROX_SKIP = fo.prox_skip(loss_fn, jnp.float32(0.1))

# Simulators and their states.
SIM = Simulator(ALGORITHM, **BATCH, evaluate=evaluate)
GRID = Simulator(make, **BATCH, grid={"lr": [0.1, 0.2]}, seeds=[0, 1])
OTHER = Simulator(ALGORITHM, **BATCH, cohort_size=2)
WEIGHTED = Simulator(ALGORITHM, **BATCH, sampler="weighted")
OWN = Simulator(ALGORITHM, **BATCH, sampler=lambda key, round: np.arange(4))
SCHEDULED, OTHERWISE = (
  Simulator(ALGORITHM, **BATCH, schedule=fo.schedules.by_hand([clients]))
  for clients in ([0, 1, 2, 3], [0, 1, 3, 3])
)
EACH_SEED = Simulator(
  ALGORITHM, **BATCH, schedule=lambda work: fo.schedules.by_hand([[0, 1]])
)
FEWER = Simulator(
  ALGORITHM, ClientData.from_client_ids(TEST, np.arange(N) % 3), batch_size=2
)


@functools.cache
def state():
  return SIM.init(PARAMS)


@functools.cache
def on_schedule():
  return SCHEDULED.init(PARAMS)


@functools.cache
def of_grid():
  return GRID.init(PARAMS)


@pytest.fixture(autouse=True, scope="module")
def states():
  """Made before anything is counted."""
  return state(), of_grid(), on_schedule()


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
    "per_example": linear.per_example,
    "held_out": HELD_OUT,
  }
  fo.evaluate_clients(**good | bad)


test_is_refused = refusals.of_table(
  "public_functions.txt", Simulator, mean_loss, simulate, sweep, own, sends,
  measuring, becomes, state, of_grid, on_schedule, evaluate_clients,
  BATCH=BATCH, PROX_SKIP=PROX_SKIP, WEIGHTED=WEIGHTED, OWN=OWN,
  SCHEDULED=SCHEDULED, OTHERWISE=OTHERWISE, SIM=SIM, GRID=GRID, OTHER=OTHER,
  FEWER=FEWER, OTHERS=OTHERS, STEPS=STEPS, EACH_SEED=EACH_SEED, MOON=MOON,
  DATA=DATA,
)  # fmt: skip
