"""Rounds some at a time, by `Simulator`; and when a program is compiled."""

import functools
import weakref

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import evaluation
from fedjax_opt.engine import compilation
from fedjax_opt.engine.config import Config
from tests.helpers import jax_problems, linear
from tests.helpers.compilations import compilations

TASK = jax_problems.softmax(sizes=(13, 7, 20, 4, 9))
RATES, SEEDS = {"rate": [0.05, 0.2]}, (3, 8)


def measured(params, data, test):
  return {"train_loss": optax.tree.norm(params), "first": params["bias"][0]}


OPTIONS = {
  "cohort_size": 3,
  "batch_size": 4,
  "local_epochs": 1.5,
  "eval_every": 3,
  "evaluate": measured,
}
FED_AVG = fo.fed_avg(TASK.loss_fn, fo.delta_sgd(), optax.adam(0.1))
SCAFFOLD = fo.scaffold(TASK.loss_fn, 0.1)


def copied(tree):
  return jax.tree.map(np.array, tree)


def arrays(state):
  return state.server, state.client_state


@pytest.mark.slow
@pytest.mark.parametrize(
  ("algorithm", "others"),
  [(FED_AVG, {"sampler": "weighted"}), (SCAFFOLD, {"client_memory": "host"})],
  ids=["weighted", "on disk and host"],
)
def test_in_pieces_it_is_as_at_once(algorithm, others, tmp_path):
  data, options = TASK.data, OPTIONS | others
  if algorithm is SCAFFOLD:
    data = fo.Population.of_client_data(tmp_path / "clients", data)
  whole = fo.simulate(algorithm, TASK.params, data, rounds=7, seed=5, **options)
  simulator = fo.Simulator(algorithm, data, **options)
  before = simulator.init(TASK.params, seed=5)
  start = copied(arrays(before))
  middle, _ = simulator.run(before, 3)
  copy_middle = copied(arrays(middle))
  last, metrics = simulator.run(middle, 4)
  assert (before.round, middle.round, last.round) == (0, 3, 7)
  chex.assert_trees_all_equal(arrays(last), (whole.state, whole.client_state))
  chex.assert_trees_all_equal(simulator.params(last), whole.params)
  for name, value in metrics.items():
    assert isinstance(value, float)
    assert value == whole.history.metrics[name][0, -1]
  # Old states are as they were, and a run from them gives the same again.
  chex.assert_trees_all_equal(arrays(before), start)
  chex.assert_trees_all_equal(arrays(middle), copy_middle)
  again, _ = simulator.run(middle, 4)
  chex.assert_trees_all_equal(arrays(again), arrays(last))
  # More rounds than there are between two evaluations.
  at_once, _ = simulator.run(before, 7)
  chex.assert_trees_all_equal(arrays(at_once), arrays(last))


@pytest.mark.slow
def test_a_grid_in_pieces_is_as_at_once():
  make = lambda rate: fo.scaffold(TASK.loss_fn, rate)
  options = OPTIONS | {"grid_map": "vmap", "client_memory": "host"}
  result = TASK.sweep(make, RATES, rounds=7, seeds=SEEDS, **options)
  simulator = fo.Simulator(make, TASK.data, grid=RATES, seeds=SEEDS, **options)
  before = simulator.init(TASK.params)
  start = copied(arrays(before))
  middle, _ = simulator.run(before, 3)
  last, metrics = simulator.run(middle, 4)
  flat = lambda leaf: np.reshape(leaf, (4, *np.shape(leaf)[2:]))
  actual = jax.tree.map(flat, arrays(last))
  chex.assert_trees_all_equal(actual, (result.state, result.client_state))
  chex.assert_trees_all_equal(simulator.params(last), result.params)
  for name, values in metrics.items():
    assert values.shape == (len(fo.grid_points(RATES, SEEDS)),)
    np.testing.assert_array_equal(values, result.history.metrics[name][:, -1])
  chex.assert_trees_all_equal(arrays(before), start)


@pytest.mark.slow
def test_a_run_is_resolved_once_for_all_models_of_the_same_shapes(monkeypatch):
  made, make = [], Config.create
  simulator = fo.Simulator(FED_AVG, TASK.data, **OPTIONS)
  recorded = lambda *arguments, **options: (
    made.append(0) or make(*arguments, **options)
  )
  monkeypatch.setattr(Config, "create", recorded)
  model = jax.tree.map(jnp.copy, TASK.params)
  simulator.init(model)
  simulator.trace(TASK.params)
  assert len(made) == 1
  # The simulator keeps no model.
  alive = weakref.ref(model["bias"])
  del model
  assert alive() is None
  simulator.init({"bias": jnp.ones(2), "kernel": jnp.ones((4, 2))})
  assert len(made) == 2


@pytest.mark.slow
def test_no_rounds_measure_the_model_as_it_is():
  simulator = fo.Simulator(FED_AVG, TASK.data, **OPTIONS)
  before = simulator.init(TASK.params)
  after, metrics = simulator.run(before, 0)
  assert after.round == 0
  chex.assert_trees_all_equal(arrays(after), arrays(before))
  expected = measured(jax.tree.map(jnp.float32, TASK.params), None, None)
  assert metrics == pytest.approx({n: float(v) for n, v in expected.items()})
  later, of_moved = simulator.run(before, 2)
  _, repeated = simulator.run(later, 0)
  assert repeated == of_moved != metrics
  # Nothing is measured without a measure.
  simulator = fo.Simulator(FED_AVG, TASK.data, **OPTIONS | {"evaluate": None})
  assert simulator.run(simulator.init(TASK.params), 0)[1] == {}


def test_the_simulator_that_runs_measures():
  """Not the one that made the state."""
  one, two = (
    fo.Simulator(linear.ALGORITHM, linear.DATA, batch_size=2, evaluate=evaluate)
    for evaluate in (lambda *_: {"one": 1.0}, lambda *_: {"two": 2.0})
  )
  assert two.run(one.init(linear.PARAMS), 0)[1] == {"two": 2.0}


# ---------------------------------------------------- When it is compiled


@pytest.fixture(autouse=True)
def no_programs():
  """Each test compiles its own."""
  compilation.clear()


def compiled_by(call):
  """What it returns, and how many programs were compiled for it."""
  with compilations() as names:
    returned = call()
  return returned, len(names)


@pytest.mark.slow
def test_rounds_of_any_number_compile_once():
  simulator = fo.Simulator(SCAFFOLD, TASK.data, **OPTIONS)
  state, _ = simulator.run(simulator.init(TASK.params), 3)
  for rounds in (3, 1, 0, 8):
    (state, _), number = compiled_by(functools.partial(
      simulator.run, state, rounds
    ))  # fmt: skip
    assert number == 0
  # Nor does another start, of another seed.
  again = lambda: simulator.run(simulator.init(TASK.params, seed=4), 2)
  assert compiled_by(again)[1] == 0


def made_anew(strength=0.1):
  """An algorithm and what is measured, as by a line that is run once more."""

  def loss_fn(params, batch, rng):
    penalty = strength * optax.tree.norm(params, squared=True)
    return TASK.loss_fn(params, batch, rng) + penalty

  evaluate = evaluation.federated(
    lambda params, batch: {"loss": loss_fn(params, batch, None)}
  )
  return fo.fed_avg(loss_fn, optax.sgd(0.1), optax.adam(0.05)), evaluate


def run_anew(**options_given):
  algorithm, evaluate = made_anew()
  options = OPTIONS | {"evaluate": evaluate} | options_given
  return TASK.simulate(algorithm, rounds=2, **options)


def test_the_same_line_again_compiles_nothing():
  # The first two: what is not of a run, such as random keys, is compiled too.
  first, number = compiled_by(run_anew)
  assert number >= 2
  second, number = compiled_by(run_anew)
  assert number == 0
  chex.assert_trees_all_equal(second.state, first.state)
  chex.assert_trees_all_equal(second.history.metrics, first.history.metrics)
  assert second.cost == first.cost
  # Another seed is an input of the program, another setting is not.
  third, number = compiled_by(lambda: run_anew(seed=1))
  assert number == 0
  assert np.any(third.params["bias"] != first.params["bias"])
  assert compiled_by(lambda: run_anew(weighting="uniform"))[1] > 0
