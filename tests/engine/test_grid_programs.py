"""A grid is nothing but its points, of which those that diverge are dropped."""

import functools
import operator

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.arrays import sharding, trees
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine import run_programs, run_state
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.run_state import GridPoints
from fedjax_opt.results.history import History
from tests.helpers import jax_problems

TASK = jax_problems.softmax()
EXAMPLES = jax.tree.map(jnp.asarray, TASK.data.examples)
GRID = {"eta_0": [0.05, 0.2], "delta": [0.1]}
SEEDS = [3, 8]
close = functools.partial(chex.assert_trees_all_close, rtol=1e-4, atol=1e-5)
SETTINGS = {
  "rounds": 3,
  "cohort_size": 2,
  "batch_size": 4,
  "eval_every": 2,
  "trace": ("step_size",),
  "evaluate": lambda params, data, test: {"train_loss": params["bias"][0]},
}


def make(eta_0, delta):
  # A server whose state holds the parameters themselves, too.
  server = fo.delta_sgd(eta_0=1.0, reuse_gradients=True)
  return fo.fed_avg(
    TASK.loss_fn, fo.delta_sgd(delta=delta, eta_0=eta_0), server
  )


def init(key):
  noise = jax.random.normal(key, (3,))
  params = jax.tree.map(jnp.asarray, TASK.params)
  return params | {"bias": noise}


def data_of(seed):
  rng = np.random.default_rng(seed)
  sizes = rng.integers(1, 16, 4).astype(np.int32)
  sizes[0] = 4 + seed
  indices = rng.integers(0, 44, (4, sizes.max())).astype(np.int32)
  return ClientData(EXAMPLES, indices, sizes)


@functools.cache
def run(grid_map):
  return fo.sweep(
    make, GRID, init, data_of, seeds=SEEDS, grid_map=grid_map, **SETTINGS
  )


def test_points_run_the_last_name_fastest():
  assert fo.grid_points({"a": [1, 2], "b": [3]}, [0, 1]) == [
    {"a": 1, "b": 3, "seed": 0},
    {"a": 1, "b": 3, "seed": 1},
    {"a": 2, "b": 3, "seed": 0},
    {"a": 2, "b": 3, "seed": 1},
  ]


@pytest.mark.slow
def test_a_point_equals_its_own_simulation():
  point = 3
  settings = fo.grid_points(GRID, SEEDS)[point]
  seed = settings.pop("seed")
  own_run = fo.simulate(
    make(**settings), init(jax.random.key(seed)), data_of(seed), seed=seed,
    **SETTINGS,
  )  # fmt: skip
  sweep = run("vmap")
  close(trees.take(sweep.state, point), own_run.state)
  close(trees.take(sweep.params, point), own_run.params)
  k = own_run.traces["step_size"].shape[-1]  # K of this seed's data.
  close(sweep.traces["step_size"][point, ..., :k], own_run.traces["step_size"])
  values = lambda result: result.history.values("train_loss")
  close(values(sweep)[point], values(own_run)[0])
  assert sweep.history.rounds == own_run.history.rounds == [0, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bvr_l_sgd", "prox_skip"])
def test_the_most_local_steps_are_those_of_the_seed(name):
  """How long a stage is, and which coins count, is as in a run of its own."""
  make = lambda rate: TASK.algorithm(name, client=None, rate=rate, psi=None)
  options = {"rounds": 30, "batch_size": 2, "local_epochs": 0.3}
  grid = {"rate": [0.1]}
  sweep = fo.sweep(make, grid, TASK.params, data_of, seeds=[3, 1], **options)
  run = fo.simulate(make(0.1), TASK.params, data_of(3), seed=3, **options)
  close(trees.take(sweep.params, 0), run.params)


def test_seeds_whose_large_gradients_differ_are_refused():
  """Mean sizes are 9 and 8 here: a batch of 8.5 is whole for one seed alone."""
  sizes = {3: [9, 9], 1: [8, 8]}
  of_seed = lambda seed: ClientData(
    EXAMPLES, np.arange(18).reshape(2, 9), np.array(sizes[seed])
  )
  make = lambda: fo.bvr_l_sgd(TASK.loss_fn, 0.1, large_batch=8)
  message = "large_batch=8: .* above 9 or below 8"
  with pytest.raises(ValueError, match=message):
    fo.sweep(
      make, {}, TASK.params, of_seed, rounds=1, batch_size=4, seeds=[3, 1]
    )


@pytest.mark.slow
def test_costs_are_those_of_the_seed_s_timetable():
  tables = {0: [[0, 1], [0, 1]], 1: [[0, -1], [1, -1]]}
  schedule = lambda work: fo.schedules.by_hand(tables[work.seed])
  make = lambda: fo.fed_avg(TASK.loss_fn, optax.sgd(0.1))
  result = fo.sweep(
    make, {}, TASK.params, TASK.data, seeds=[0, 1], rounds=2, batch_size=4,
    schedule=schedule, evaluate=SETTINGS["evaluate"],
  )  # fmt: skip
  model = 2 * 4 * jax_problems.flat(TASK.params).size  # Bytes in two rounds.
  np.testing.assert_array_equal(result.history.values("bytes_up")[:, -1], model)


def test_vectorized_equals_one_after_the_other():
  vmap, scan = run("vmap"), run("scan")
  close((vmap.state, vmap.traces), (scan.state, scan.traces))
  assert vmap.cost == scan.cost
  kernels = np.asarray(vmap.params["kernel"]).reshape(4, -1)
  assert len(np.unique(kernels.round(4), axis=0)) == 4  # GridPoints differ.


@pytest.mark.slow
def test_chunks_of_a_grid_change_nothing(monkeypatch):
  # Of fewer settings the loop over chunks takes as much as it saves.
  rates = {"rate": np.linspace(0.05, 0.3, 64)}
  make = lambda rate: fo.fed_avg(TASK.loss_fn, optax.sgd(rate))
  settings = SETTINGS | {"trace": (), "grid_map": "vmap"}
  run = functools.partial(
    fo.sweep, make, rates, TASK.params, TASK.data, seeds=SEEDS, **settings
  )
  expected = run()
  # Not all of them fit.
  needs = []

  def needed(compiled):
    needs.append(bytes_of(compiled))
    return needs[-1]

  bytes_of = run_programs.bytes_of
  monkeypatch.setattr(run_programs, "bytes_of", needed)
  memory = lambda: needs[0] - 1 if needs else None
  monkeypatch.setattr(fo.target, "device_bytes", memory)
  result = run()
  # Of rounds and evaluations, twice.
  assert len(needs) == 4
  assert needs[1] < needs[0]
  assert 0 < needs[2] < needs[0], needs
  outcome = operator.attrgetter("params", "history.metrics")
  tolerance = {"rtol": 1e-5, "atol": 1e-7}
  chex.assert_trees_all_close(outcome(result), outcome(expected), **tolerance)


def test_what_is_compiled_stays():
  options = {n: v for n, v in SETTINGS.items() if n != "rounds"}
  simulator = fo.Simulator(make(0.1, 0.1), TASK.data, **options)
  simulator.trace(TASK.params)
  rounds = simulator._programs.compile(["rounds"])
  both = simulator._programs.compile(["evaluation"])
  assert both.keys() == {"rounds", "evaluation"}
  assert both["rounds"] is rounds["rounds"]


# Settings that have diverged are dropped; those that fit are vectorized.


def programs_of(settings, **options):
  """Of so many of one seed, vectorized if nothing else is given."""
  options = {"batch_size": 4, "grid_map": "vmap"} | options
  config = Config.create(TASK.data, options, num_settings=settings)
  points = GridPoints(None, {}, settings, seeds=(0,), is_grid=True)
  return run_programs.RunPrograms(config, points, TASK.data, {})


@pytest.mark.parametrize(
  ("settings", "needs", "chunks"),
  [
    (7, [[900]], []),  # All fit.
    (7, [[1000, 250]], [6]),
    (7, [[2000], [990]], [3]),  # 3, 3 and 1.
    (7, [[9000]], [1]),  # One, whatever it needs.
    (7, [[1300], [1100], [990]], [5, 4]),
    # Rounds or evaluations, whichever need most; if both tell.
    (8, [[500, 1900], [900, 900]], [4]),
    (8, [[None, 1900]], []),
  ],
)
def test_as_many_at_once_as_memory_holds(monkeypatch, settings, needs, chunks):
  """By what each compiled program says that it needs."""
  monkeypatch.setattr(fo.target, "device_bytes", lambda: 999)

  vectorized, chunks_used = programs_of(settings), []
  for of_programs in needs:
    if vectorized.shrink_grid_chunk(of_programs):
      chunks_used.append(vectorized.config.grid_chunk)
  assert chunks_used == chunks
  assert vectorized.config.grid_chunk == (chunks[-1] if chunks else None)
  for options in ({"grid_map": "scan"}, {"grid_chunk": 7}):
    assert not programs_of(settings, **options).shrink_grid_chunk([2000])
  # Each of two devices has 3 or 4 of the settings.
  monkeypatch.setattr(sharding.Layout, "grid_devices", property(lambda _: 2))
  halves = programs_of(settings)
  assert halves.shrink_grid_chunk([2000])
  assert halves.config.grid_chunk == 1


@pytest.mark.parametrize(
  ("settings", "diverged", "devices", "kept"),
  [
    (16, 8, 1, 8),
    (16, 7, 1, None),  # Compiling anew would not be worth it.
    (15, 12, 1, None),
    (16, 16, 1, 1),  # A program needs a point.
    (16, 8, 2, None),  # Each device would need as many.
  ],
)
def test_when_diverged_settings_are_dropped(
  monkeypatch, settings, diverged, devices, kept
):
  layout = sharding.Layout
  monkeypatch.setattr(layout, "grid_devices", property(lambda _: devices))
  active_settings = programs_of(settings).active_settings
  losses = np.ones((settings, 1))
  losses[:diverged] = np.inf
  history = History([0], {"train_loss": losses})
  state = run_state.RunState(np.arange(settings)[:, None], None, None)
  fewer = active_settings.drop(history, state)
  if kept is None:
    assert fewer is None
    assert len(active_settings.active) == settings
  else:
    numbers = [0] if diverged == settings else [*range(diverged, settings)]
    np.testing.assert_array_equal(fewer.server[:, 0], numbers)
    np.testing.assert_array_equal(active_settings.active, numbers)
    assert len(numbers) == kept


def test_a_diverged_setting_is_skipped_again_on_several_devices(monkeypatch):
  monkeypatch.setattr(sharding.Layout, "grid_devices", property(lambda _: 2))
  first, resumed = (
    programs_of(4, grid_map="scan").active_settings for _ in range(2)
  )
  losses = np.array([[1], [np.inf], [1], [1]])
  first.drop(History([0], {"train_loss": losses}), None)
  resumed.restore(first.to_arrays(), None)
  assert resumed.is_active.tolist() == [True, False, True, True]


@pytest.mark.slow
def test_diverged_settings_are_dropped_and_change_nothing():
  rates = [*np.linspace(0.01, 0.1, 7), *np.geomspace(1e20, 1e30, 9)]

  def evaluate(params, data, test):
    maximum = jnp.max(jnp.abs(params["kernel"]))
    # A metric that is whole has no NaN of its own.
    return {"train_loss": maximum**2, "signs": jnp.sum(params["bias"] > 0)}

  make = lambda rate: fo.fed_avg(TASK.loss_fn, optax.chain(optax.sgd(rate)))
  settings = SETTINGS | {"rounds": 5, "trace": (), "evaluate": evaluate}
  grid = lambda rates: {"rate": rates}
  result = fo.sweep(make, grid(rates), init, data_of, seeds=SEEDS, **settings)
  # Too few for anything to be dropped.
  few = fo.sweep(make, grid(rates[:7]), init, data_of, seeds=SEEDS, **settings)

  parts = operator.attrgetter("history.metrics", "params", "state")
  kept_points = jax.tree.map(lambda leaf: leaf[:14], parts(result))
  chex.assert_trees_all_close(kept_points, parts(few), rtol=1e-5, atol=1e-6)
  assert jax.tree.leaves(result.params)[0].shape[0] == 32
  assert result.history.diverged()[14:, -1].all()
  assert not result.history.diverged()[:14].any()
  assert np.isnan(result.history.metrics["signs"][14:, -1]).all()
  assert result.cost == pytest.approx(few.cost)
  assert result.padding_waste == pytest.approx(few.padding_waste)


@pytest.mark.slow
def test_a_diverged_setting_of_prox_skip_has_its_own_costs():
  """It goes on: how often clients meet depends on its p."""
  make = lambda p: fo.prox_skip(TASK.loss_fn, 0.1, p=p)
  evaluate = lambda params, *_: {"train_loss": jnp.inf}
  options = {"rounds": 9, "batch_size": 4, "local_steps": 2, "eval_every": 3}
  result = fo.sweep(
    make, {"p": [1.0, 0.01]}, TASK.params, TASK.data,
    grid_map="scan", evaluate=evaluate, **options,
  )  # fmt: skip
  sent = np.diff(result.history.metrics["bytes_up"])
  assert (sent[1, 1:] < sent[0, 1:]).all()


@pytest.mark.slow
@pytest.mark.parametrize("grid_map", ["vmap", "scan"])
def test_a_second_sweep_has_all_settings_again(grid_map):
  """Also those that the first one dropped."""
  rates = [*np.linspace(0.01, 0.1, 7), *np.geomspace(1e20, 1e30, 9)]
  evaluate = lambda params, *_: {"train_loss": jnp.max(jnp.abs(params["bias"]))}
  settings = SETTINGS | {"trace": (), "evaluate": evaluate, "eval_every": 1}
  rounds = settings.pop("rounds")
  make = lambda rate: fo.fed_avg(TASK.loss_fn, optax.sgd(rate))
  simulator = fo.Simulator(
    make, TASK.data, grid={"rate": rates}, grid_map=grid_map, **settings
  )
  first, second = (simulator.run_all(TASK.params, rounds) for _ in range(2))
  assert first.history.diverged()[:, -1].any()
  outcome = operator.attrgetter("params", "history.metrics")
  chex.assert_trees_all_equal(outcome(first), outcome(second))


def test_one_after_the_other_a_diverged_setting_stops():
  rounds = []

  def count(params, data, test):
    largest = jnp.max(jnp.abs(params["kernel"]))
    loss = jnp.where(largest < 100, largest, jnp.inf)
    return {"train_loss": loss, "bias": jnp.sum(params["bias"])}

  server = optax.sgd(lambda round: 1.0)  # Counts the rounds.
  make = lambda rate: fo.fed_avg(TASK.loss_fn, optax.sgd(rate), server)
  settings = SETTINGS | {"rounds": 6, "trace": (), "evaluate": count}
  settings |= {"eval_every": 2, "grid_map": "scan"}
  run = lambda rates, **others: fo.sweep(
    make, {"rate": rates}, init, data_of, seeds=SEEDS, **settings | others
  )
  rates = [1e4, 0.05, 1e5, 0.1]
  on_evaluation = lambda report: rounds.append(report.metrics["bias"])
  result = run(rates, on_evaluation=on_evaluation)
  few = run([0.05, 0.1])

  assert not result.history.metrics["rejected_clients"].any()
  live_rows = np.array([2, 3, 6, 7])
  parts = operator.attrgetter("history.metrics", "state")
  live_points = jax.tree.map(lambda leaf: leaf[live_rows], parts(result))
  chex.assert_trees_all_equal(live_points, parts(few))
  assert result.history.diverged()[[0, 1, 4, 5], -1].all()
  # Where it was found out; nothing was done or measured after it.
  (count,) = optax.tree.get_all_with_path(result.state, "count")
  np.testing.assert_array_equal(count[1], [2, 2, 6, 6, 2, 2, 6, 6])
  assert np.isnan(np.array(rounds)[2:, [0, 1, 4, 5]]).all()
  assert result.cost == pytest.approx(few.cost)
  assert result.padding_waste == pytest.approx(few.padding_waste)
