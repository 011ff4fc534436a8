"""What clients keep between rounds, on the host."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.arrays import trees
from fedjax_opt.engine import client_state
from tests.helpers import jax_problems
from tests.helpers.jax_problems import assert_same

TASK = jax_problems.mlp(sizes=(13, 7, 20, 4, 9, 1, 11))
OPTIONS = {
  "rounds": 6,
  "cohort_size": 3,
  "batch_size": 4,
  "local_epochs": 1.5,
  "eval_every": 4,
  "client_chunk": 2,
  "evaluate": lambda params, data, test: {
    "train_loss": optax.tree.norm(params)
  },
}
ALGORITHMS = {
  "scaffold": fo.scaffold(TASK.loss_fn, 0.1),
  "moon": fo.moon(TASK.loss_fn, TASK.features_fn, optax.sgd(0.1)),
}


def run(algorithm="scaffold", data=TASK.data, **options_given):
  options = OPTIONS | options_given
  return fo.simulate(ALGORITHMS[algorithm], TASK.params, data, **options)


@pytest.fixture
def lent(monkeypatch):
  """The rows that a device got: for compilation, then in each call."""
  lent, gather = [], client_state.gather

  def noted(config, rows, cohorts):
    of_cohort = gather(config, rows, cohorts)
    lent.append(jax.eval_shape(lambda: of_cohort))  # They will be donated.
    return of_cohort

  monkeypatch.setattr(client_state, "gather", noted)
  return lent


@pytest.mark.parametrize(
  ("algorithm", "others"),
  [
    (
      "moon",
      {"client_map": "scan", "client_chunk": None, "client_dropout": 0.4},
    ),
    (
      "scaffold",
      {"cohort_size": None, "local_epochs": None, "local_steps": 2},
    ),
  ],
)
@pytest.mark.default_cases("scaffold-others1")
def test_it_is_as_on_the_device(algorithm, others, lent):
  expected = run(algorithm, client_memory="device", **others)
  lent.clear()
  actual = run(algorithm, client_memory="host", **others)
  assert_same(actual, expected)
  kinds = ((actual, np.ndarray, "host"), (expected, jax.Array, "device"))
  for result, kind, place in kinds:
    leaves = jax.tree.leaves(result.client_state)
    assert all(isinstance(leaf, kind) for leaf in leaves)
    assert result.client_memory == place
  cohort = {**OPTIONS, **others}["cohort_size"] or TASK.data.num_clients
  assert len(lent) == OPTIONS["rounds"]
  assert {len(leaf) for leaf in jax.tree.leaves(lent)} == {cohort}


def test_free_places_change_no_state():
  """Though there are more places than clients."""
  clients = np.full((6, 9), -1)
  clients[:, 4:6] = [[0, 6]]
  options = {"schedule": fo.schedules.by_hand(clients), "cohort_size": None}
  actual, expected = (
    run(client_memory=memory, **options) for memory in ("host", "device")
  )
  assert_same(actual, expected)


@pytest.mark.slow
def test_a_client_whose_message_is_not_taken_has_its_own_state():
  def one_client(worker, params):
    state, metrics = worker.state + 1 + worker.client, {"kept": worker.state}
    nothing = jax.tree.map(jnp.zeros_like, params)
    return fo.ClientOutput(nothing, state, metrics=metrics)

  def round(state, cohort):
    return state, cohort.mean(one_client, broadcast=state)

  algorithm = fo.Algorithm(
    lambda params: params, round, lambda state: state,
    init_client=lambda params: jnp.zeros(()),
  )  # fmt: skip
  taken = np.array([[True, True], [True, True], [True, False]])
  table = fo.schedules.by_hand([[0, 1]] * 3, taken=taken)
  for memory in ("device", "host"):
    result = fo.simulate(
      algorithm, TASK.params, TASK.data, rounds=3, batch_size=4,
      schedule=table, client_memory=memory,
    )  # fmt: skip
    assert result.traces["kept"].tolist() == [[0, 0], [1, 2], [2, 4]]


@pytest.mark.slow
def test_of_a_grid():
  """Most settings diverge, and seeds divide the examples otherwise."""
  examples = jax.tree.map(jnp.asarray, TASK.data.examples)

  def data_of(seed):
    roll = lambda rows: np.roll(rows, seed, axis=0)
    return fo.ClientData(
      examples, roll(TASK.data.indices), roll(TASK.data.sizes)
    )

  grid = functools.partial(
    fo.sweep,
    lambda rate: fo.scaffold(TASK.loss_fn, rate),
    {"rate": [1e20, 1e30, 0.05]},
    TASK.params,
    data_of,
    seeds=(0, 3),
    grid_map="vmap",
    **OPTIONS | {"eval_every": 2},
  )
  assert_same(grid(client_memory="host"), grid(client_memory="device"))


@pytest.mark.slow
def test_auto_takes_the_host_where_the_device_is_too_small(monkeypatch):
  def memory_of(num_bytes, rates=None, **others):
    monkeypatch.setattr(fo.target, "device_bytes", lambda: num_bytes)
    make = lambda rate=0.1: fo.scaffold(TASK.loss_fn, rate)
    options = {n: v for n, v in OPTIONS.items() if n != "rounds"} | others
    grid = {} if rates is None else {"grid": {"rate": rates}}
    algorithm = make() if rates is None else make
    simulator = fo.Simulator(algorithm, TASK.data, **grid, **options)
    return simulator.init(TASK.params).config.client_memory

  # The memory of a processor is the host's.
  monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
  assert memory_of(1) == "device"
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  size = TASK.data.num_clients * trees.num_bytes(
    jax.tree.map(np.float32, TASK.params)
  )
  assert [memory_of(2 * size), memory_of(2 * size - 1)] == ["device", "host"]
  # Where all clients take part nothing would be gained.
  assert memory_of(1, cohort_size=None) == "device"
  # Of settings each has its own.
  assert memory_of(4 * size, [0.1]) == "device"
  assert memory_of(4 * size, [0.1, 0.2, 0.3]) == "host"
