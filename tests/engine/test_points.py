"""A grid is nothing but its points."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt import (
  delta_sgd,
  fed_avg,
  grid_points,
  processes,
  simulate,
  sweep,
)
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine import executor
from tests import jax_problems

TASK = jax_problems.softmax()
EXAMPLES = jax.tree.map(jnp.asarray, TASK.data.examples)
GRID = {"eta_0": [0.05, 0.2], "delta": [0.1]}
SEEDS = [3, 8]
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
  server = delta_sgd(eta_0=1.0, reuse_gradients=True)
  return fed_avg(TASK.loss_fn, delta_sgd(delta=delta, eta_0=eta_0), server)


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
  return sweep(
    make, GRID, init, data_of, seeds=SEEDS, grid_map=grid_map, **SETTINGS
  )


def test_points_run_the_last_name_fastest():
  assert grid_points({"a": [1, 2], "b": [3]}, [0, 1]) == [
    {"a": 1, "b": 3, "seed": 0},
    {"a": 1, "b": 3, "seed": 1},
    {"a": 2, "b": 3, "seed": 0},
    {"a": 2, "b": 3, "seed": 1},
  ]


def test_a_point_equals_its_own_simulation():
  point = 3
  own = grid_points(GRID, SEEDS)[point]
  seed = own.pop("seed")
  alone = simulate(
    make(**own), init(jax.random.key(seed)), data_of(seed), seed=seed,
    **SETTINGS,
  )  # fmt: skip
  whole = run("vmap")
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
  jax.tree.map(lambda a, b: close(a[point], b), whole.state, alone.state)
  jax.tree.map(lambda a, b: close(a[point], b), whole.params, alone.params)
  k = alone.traces["step_size"].shape[-1]  # K of this seed's data.
  close(whole.traces["step_size"][point, ..., :k], alone.traces["step_size"])
  values = lambda result: result.history.values("train_loss")
  close(values(whole)[point], values(alone)[0])
  assert whole.history.rounds == alone.history.rounds == [0, 2, 3]


def test_vectorized_equals_one_after_the_other():
  vmap, scan = run("vmap"), run("scan")
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
  jax.tree.map(close, vmap.state, scan.state)
  jax.tree.map(close, vmap.traces, scan.traces)
  assert vmap.cost == scan.cost
  final = np.asarray(vmap.params["kernel"]).reshape(4, -1)
  assert len(np.unique(final.round(4), axis=0)) == 4  # Points differ.


def test_chunks_of_a_grid_change_nothing(monkeypatch):
  # Of fewer settings the loop over chunks takes as much as it saves.
  rates = {"rate": np.linspace(0.05, 0.3, 64)}
  make = lambda rate: fed_avg(TASK.loss_fn, optax.sgd(rate))
  settings = SETTINGS | {"trace": (), "grid_map": "vmap"}
  run = functools.partial(
    sweep, make, rates, TASK.params, TASK.data, seeds=SEEDS, **settings
  )
  expected = run()
  # Not all of them fit.
  needs = []

  def needed(compiled):
    needs.append(needed_bytes(compiled))
    return needs[-1]

  needed_bytes = executor.needed_bytes
  monkeypatch.setattr(executor, "needed_bytes", needed)
  monkeypatch.setattr(processes, "device_bytes", lambda: needs[0] - 1)
  result = run()
  assert len(needs) == 5  # Of rounds and evaluations, twice; for the result.
  assert needs[1] < needs[0]
  assert 0 < needs[2] < needs[0], needs
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-5),
    (result.params, result.history.metrics),
    (expected.params, expected.history.metrics),
  )
