"""Runs on a clock: each seed has its timetable, and time is a metric."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import trees
from tests import cases, jax_problems

SYSTEM = fo.systems.sample(
  cases.M,
  fo.systems.lognormal(0.1, 1.0),
  bytes_down=fo.systems.constant(100.0),
  bytes_up=fo.systems.constant(50.0),
)
SETTINGS = {
  "batch_size": 4,
  "local_epochs": 1.5,
  "weighting": "uniform",
  "eval_every": 5,
  "evaluate": lambda params, data, test: {"one": jnp.float32(1)},
}
STEPS = {c: -(-3 * -(-size // 4) // 2) for c, size in enumerate(cases.SIZES)}


def durations_of(work):
  return SYSTEM.durations(
    work.steps, work.bytes_down, work.bytes_up, seed=work.seed
  )


def buffered(work, max_time=np.inf):
  table = fo.schedules.buffered(durations_of(work), 12, 4, buffer=2)
  return fo.schedules.until(table, min(max_time, table.time[-1]))


def make(rate):
  return fo.fed_buff(cases.loss_fn, optax.sgd(rate))


def run(algorithm, schedule, seed=0, rounds=12):
  return fo.simulate(
    algorithm, cases.PARAMS, cases.DATA, rounds=rounds, seed=seed,
    schedule=schedule, **SETTINGS,
  )  # fmt: skip


def work_of(algorithm, **settings):
  """The work that a schedule is given."""
  found = []

  def schedule(work):
    found.append(work)
    raise ValueError("schedule: known")

  with pytest.raises(ValueError, match="schedule: known"):
    fo.simulate(
      algorithm, cases.PARAMS, cases.DATA, rounds=1, schedule=schedule,
      **SETTINGS | settings,
    )  # fmt: skip
  return found[0]


def test_a_grid_has_the_timetable_of_each_seed():
  grid, seeds = {"rate": [0.1, 0.3]}, [0, 3]
  result = fo.sweep(
    make, grid, cases.PARAMS, cases.DATA, rounds=12, seeds=seeds,
    schedule=buffered, **SETTINGS,
  )  # fmt: skip
  times = result.history.metrics["time"]
  np.testing.assert_array_equal(times[:2], times[2:])
  assert (times[0] != times[1])[1:].all()
  for s, point in enumerate(fo.grid_points(grid, seeds)):
    single = run(make(point["rate"]), buffered, point["seed"])
    own = trees.take(result.params, s)
    jax_problems.assert_close(own, cases.flat(single.params), 1e-5)
    np.testing.assert_array_equal(single.history.metrics["time"][0], times[s])
  table = buffered(work_of(make(0.1)))
  np.testing.assert_array_equal(times[0], [0, *table.time[[4, 9, 11]]])
  np.testing.assert_array_equal(result.history.spent("time"), times)


def test_seeds_stop_at_their_own_time():
  """After its last step within the budget the model of a seed stays."""
  limit = 10.0
  cut = lambda work: buffered(work, limit)
  work = work_of(make(0.1))
  steps = [len(cut(work._replace(seed=seed)).time) for seed in (0, 3)]
  assert steps[0] != steps[1]
  result = fo.sweep(
    lambda: make(0.1), {}, cases.PARAMS, cases.DATA, rounds=max(steps),
    seeds=[0, 3], schedule=cut, **SETTINGS,
  )  # fmt: skip
  assert (result.history.metrics["time"] <= limit).all()
  for s, seed in enumerate((0, 3)):
    single = run(make(0.1), buffered, seed, rounds=steps[s])
    own = trees.take(result.params, s)
    jax_problems.assert_close(own, cases.flat(single.params), 1e-5)


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


@pytest.mark.parametrize("name", WORKS)
def test_work_is_what_the_engine_counts(name):
  algorithm, settings, gradients, down, up = WORKS[name]
  work = work_of(algorithm, **settings)
  assert (work.seed, work.bytes_down, work.bytes_up) == (0, down, up)
  steps = np.maximum([gradients * STEPS[c] for c in range(cases.M)], 1)
  np.testing.assert_array_equal(work.steps, steps)
  result = fo.simulate(
    algorithm, cases.PARAMS, cases.DATA, rounds=2, **SETTINGS | settings
  )
  assert result.cost["bytes_down_per_round"] == down
  assert result.cost["bytes_up_per_round"] == up


REFUSED = {
  "phases of some rounds": (
    fo.bvr_l_sgd(cases.loss_fn, 0.1),
    buffered,
    "schedule: what clients of this algorithm do or send differs between",
  ),
  "no timetable": (
    make(0.1), lambda work: 3, "schedule: returned=3: must be a Timetable",
  ),
  "a failing function": (
    make(0.1), lambda work: work.nothing, "schedule: failed",
  ),
  "what clients keep": (
    fo.scaffold(cases.loss_fn, 0.1), buffered,
    "schedule: clients of this algorithm need more than",
  ),
  "too few steps": (
    make(0.1),
    fo.schedules.by_hand(np.zeros((9, 1), int)),
    "rounds=12: must be at most 9, the steps of schedule",
  ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_clock_refuses(name):
  algorithm, schedule, says = REFUSED[name]
  with pytest.raises((ValueError, TypeError)) as caught:
    run(algorithm, schedule)
  assert str(caught.value).startswith(says)
  assert "\n" not in str(caught.value)


def evaluate(params, data, test):
  return {"test_loss": jnp.sum(params["kernel"] ** 2)}
