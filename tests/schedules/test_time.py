"""Runs on a clock: each seed has its timetable, and time is a metric."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.arrays import trees
from tests.helpers import cases, jax_problems
from tests.helpers.compilations import compilations

SYSTEM = fo.systems.sample(
  cases.M,
  fo.systems.lognormal(0.1, 1.0),
  bytes_down=fo.systems.constant(100.0),
  bytes_up=fo.systems.constant(50.0),
)
OPTIONS = {
  "batch_size": 4,
  "local_epochs": 1.5,
  "weighting": "uniform",
  "eval_every": 5,
  "evaluate": lambda params, data, test: {"one": jnp.float32(1)},
}
STEPS = {c: -(-3 * -(-size // 4) // 2) for c, size in enumerate(cases.SIZES)}


def buffered(work, max_time=np.inf):
  sent = work.bytes_down, work.bytes_up
  durations = SYSTEM.durations(work.steps, *sent, seed=work.seed)
  table = fo.schedules.buffered(durations, 12, 4, buffer=2)
  return fo.schedules.until(table, min(max_time, table.time[-1]))


def make(rate):
  return fo.fed_buff(cases.loss_fn, optax.sgd(rate))


def run(algorithm, schedule, seed=0, rounds=12):
  return cases.TASK.simulate(
    algorithm, rounds=rounds, seed=seed, schedule=schedule, **OPTIONS
  )


def work_of(algorithm, **options):
  """The work that a schedule is given."""
  works = []

  def schedule(work):
    works.append(work)
    raise ValueError("schedule: known")

  with pytest.raises(ValueError, match="schedule: known"):
    cases.TASK.simulate(
      algorithm, rounds=1, schedule=schedule, **OPTIONS | options
    )
  return works[0]


@pytest.mark.slow
def test_a_grid_of_24_points_has_the_timetable_of_each_seed():
  """And one program."""
  grid, seeds = {"rate": np.geomspace(0.03, 0.4, 8).tolist()}, [0, 3, 5]
  with compilations() as programs:
    result = cases.TASK.sweep(
      make, grid, rounds=12, seeds=seeds, schedule=buffered, **OPTIONS
    )
  assert programs.count("jit(rounds)") == 1
  times = result.history.metrics["time"].reshape(8, 3, -1)
  np.testing.assert_array_equal(times, np.broadcast_to(times[0], times.shape))
  assert (np.diff(times[0], axis=0) != 0)[:, 1:].all()
  points = fo.grid_points(grid, seeds)
  for s in (0, 10, 23):  # Of each seed one.
    single = run(make(points[s]["rate"]), buffered, points[s]["seed"])
    params = trees.take(result.params, s)
    jax_problems.assert_close(params, cases.flat(single.params), 1e-5)
    (times_single,) = single.history.metrics["time"]
    np.testing.assert_array_equal(times_single, times.reshape(24, -1)[s])
  table = buffered(work_of(make(0.1)))
  np.testing.assert_array_equal(times[0, 0], [0, *table.time[[4, 9, 11]]])
  np.testing.assert_array_equal(
    result.history.spent("time"), result.history.metrics["time"]
  )


@pytest.mark.slow
@pytest.mark.parametrize("form", ["function", "mapping"])
def test_rounds_some_at_a_time(form):
  schedule = buffered
  if form == "mapping":
    schedule = {3: buffered(work_of(make(0.1))._replace(seed=3))}
  new_simulator = lambda: fo.Simulator(
    make(0.1), cases.DATA, schedule=schedule, **OPTIONS
  )
  simulator = new_simulator()
  state = simulator.init(cases.PARAMS, 3)
  for rounds in (5, 7):
    state, _ = simulator.run(state, rounds)
    # Another one of the same options goes on as well.
    simulator = new_simulator()
  result = run(make(0.1), buffered, 3)
  params = cases.flat(simulator.params(state))
  np.testing.assert_array_equal(params, cases.flat(result.params))


@pytest.mark.slow
def test_seeds_stop_at_their_own_time():
  """After its last step within the budget the model of a seed stays."""
  limit = 10.0
  cut = lambda work: buffered(work, limit)
  work = work_of(make(0.1))
  steps = [len(cut(work._replace(seed=seed)).time) for seed in (0, 3)]
  assert steps[0] != steps[1]
  once = lambda: make(0.1)
  result = cases.TASK.sweep(
    once, {}, rounds=max(steps), seeds=[0, 3], schedule=cut, **OPTIONS
  )
  assert (result.history.metrics["time"] <= limit).all()
  for s, seed in enumerate((0, 3)):
    single = run(make(0.1), buffered, seed, rounds=steps[s])
    params = trees.take(result.params, s)
    jax_problems.assert_close(params, cases.flat(single.params), 1e-5)


TOP_K = fo.transforms.top_k(0.2)
NUM_BYTES = 4 * len(cases.X0)
WORKS = {  # Gradients of a step, bytes down and up.
  "fed_avg": (make(0.1), {}, 1, NUM_BYTES, NUM_BYTES),
  "delta_sgd": (
    fo.fed_avg(cases.loss_fn, fo.delta_sgd(reuse_gradients=False)),
    {}, 2, NUM_BYTES, NUM_BYTES,
  ),
  "scaffold": (
    fo.scaffold(cases.loss_fn, 0.1), {}, 1, 2 * NUM_BYTES, 2 * NUM_BYTES,
  ),
  "top_k": (make(0.1), {"upload": TOP_K}, 1, NUM_BYTES, 8 * (1 + 2)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_work_is_what_the_engine_counts(name):
  algorithm, options, gradients, down, up = WORKS[name]
  work = work_of(algorithm, **options)
  assert (work.seed, work.bytes_down, work.bytes_up) == (0, down, up)
  steps = np.maximum([gradients * STEPS[c] for c in range(cases.M)], 1)
  np.testing.assert_array_equal(work.steps, steps)
  result = cases.TASK.simulate(algorithm, rounds=2, **OPTIONS | options)
  assert result.cost["bytes_down_per_round"] == down
  assert result.cost["bytes_up_per_round"] == up
