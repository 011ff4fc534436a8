"""Training only some leaves of a model."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import trainable
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.arrays import trees
from fedjax_opt.engine import run_programs
from tests.helpers import jax_problems
from tests.helpers.refusals import refusal

TASK = jax_problems.mlp()
OPTIONS = {"cohort_size": 3, "batch_size": 4, "local_steps": 3, "seed": 1}
HEAD = ("output",)


def model(seed=0):
  """A model in float32; that of the task is 0 in places."""
  key = jax.random.key(seed)
  draw = lambda leaf: jax.random.normal(key, np.shape(leaf)) / 3
  return jax.tree.map(draw, TASK.params)


def simulate(algorithm, params=None, **options):
  options = {"rounds": 3} | OPTIONS | options
  params = model() if params is None else params
  return fo.simulate(algorithm, params, TASK.data, **options)


assert_close = functools.partial(
  chex.assert_trees_all_close, rtol=2e-5, atol=1e-6
)


# One of each kind: with a server rule, with client state, with a regularizer,
# with features.
MAKE = {
  "fed_avg": lambda loss_fn: fo.fed_avg(
    loss_fn, fo.delta_sgd(eta_0=0.1), optax.adam(0.01)
  ),
  "scaffold": lambda loss_fn: fo.scaffold(loss_fn, learning_rate=0.1),
  "fed_dual_avg": lambda loss_fn: fo.fed_dual_avg(
    loss_fn, fo.prox.kernels(fo.prox.l1(1e-2)), learning_rate=0.1
  ),
  "moon": lambda loss_fn, features_fn: fo.moon(
    loss_fn, features_fn, optax.sgd(0.1)
  ),
}


def some(name, paths, loss_fn=TASK.loss_fn):
  features = (TASK.features_fn,) if name == "moon" else ()
  return fo.train_only(MAKE[name], paths, loss_fn, *features)


def cohort(name):
  return {"cohort_size": 5} if ALGORITHMS[name].cohort == "all" else {}


def head_alone(loss_fn, hidden):
  """The loss as one would write it for a model that has the head alone."""
  return lambda params, batch, rng: loss_fn(
    {"hidden": hidden} | params, batch, rng
  )


@pytest.mark.parametrize("name", ["scaffold", "fed_dual_avg", "moon"])
@pytest.mark.default_cases("scaffold")
def test_as_if_the_model_had_the_trained_leaves_alone(name):
  params = model()
  result = simulate(some(name, HEAD), **cohort(name))
  chex.assert_trees_all_equal(result.params["hidden"], params["hidden"])
  arguments = [head_alone(TASK.loss_fn, params["hidden"])]
  if name == "moon":
    arguments.append(head_alone(TASK.features_fn, params["hidden"]))
  head = {"output": params["output"]}
  head_result = simulate(MAKE[name](*arguments), head, **cohort(name))
  assert_close(result.params["output"], head_result.params["output"])
  assert not np.array_equal(
    result.params["output"]["kernel"], params["output"]["kernel"]
  )
  assert result.cost == head_result.cost
  expected = jax.tree.leaves(head_result.client_state)
  assert_close(jax.tree.leaves(result.client_state), expected)


@pytest.mark.slow
def test_it_can_what_the_algorithm_can():
  """Old versions may be where clients start, and clipping may be refused."""
  versions = [[0, 0], [0, 1], [1, 2]]
  table = fo.schedules.by_hand([[0, 1], [2, 3], [4, 0]], versions)
  make = lambda loss_fn: fo.fed_buff(loss_fn, optax.sgd(0.1))
  options = {"rounds": 3, "batch_size": 4, "local_steps": 3, "schedule": table}
  run = lambda made, start: fo.simulate(made, start, TASK.data, **options)
  params = model()
  result = run(fo.train_only(make, HEAD, TASK.loss_fn), params)
  of_head = make(head_alone(TASK.loss_fn, params["hidden"]))
  expected = run(of_head, {"output": params["output"]}).params
  assert_close(result.params, {"hidden": params["hidden"], **expected})
  clips = {"max_update_norm": 1.0, "max_update_action": "clip"}
  line = refusal(simulate, some("scaffold", HEAD), **clips)
  assert "max_update_action='clip': clients of this algorithm keep" in line


@pytest.mark.slow
def test_each_seed_of_a_grid_has_its_own_frozen_leaves():
  make = lambda rate: fo.train_only(
    lambda loss_fn: fo.fed_avg(loss_fn, optax.sgd(rate)), HEAD, TASK.loss_fn
  )
  # Whole numbers, so that compiling it does not change them.
  init = jax.jit(
    lambda key: jax.tree.map(
      lambda leaf: jax.random.randint(key, np.shape(leaf), -2, 3) / 4.0,
      TASK.params,
    )
  )
  options = {name: OPTIONS[name] for name in OPTIONS if name != "seed"}
  grid = fo.sweep(
    make, {"rate": [0.1, 0.3]}, init, TASK.data, rounds=3, seeds=(4, 7),
    **options,
  )  # fmt: skip
  for i, point in enumerate(fo.grid_points({"rate": [0.1, 0.3]}, (4, 7))):
    params = init(jax.random.key(point["seed"]))
    chex.assert_trees_all_equal(
      trees.take(grid.params["hidden"], i), params["hidden"]
    )
  result = simulate(make(0.3), params, seed=7)
  assert_close(trees.take(grid.params, 3), result.params)


# A body that is larger than all else, and a head.
WIDTH = 256
BODY = jnp.asarray(np.random.default_rng(0).normal(size=(WIDTH, WIDTH)) / 16)


def drawn_head(key):
  return {"body": BODY, "head": jax.random.normal(key, (WIDTH,)) / 16}


def squares(params, batch, rng=None):
  return (batch["x"] @ params["body"] @ params["head"] - 1) ** 2


def of_head(rates, seeds=1, **options):
  """A simulator of a grid that trains the head."""
  make = lambda loss_fn, rate: fo.fed_avg(loss_fn, optax.sgd(rate))
  x = np.random.default_rng(1).normal(size=(16, WIDTH)).astype(np.float32)
  defaults = {"cohort_size": 4, "batch_size": 2, "local_steps": 2}
  return fo.Simulator(
    lambda rate: fo.train_only(
      functools.partial(make, rate=rate), ["head"], squares
    ),
    fo.ClientData.from_partition({"x": x}, np.split(np.arange(16), 8)),
    grid={"rate": rates},
    seeds=range(seeds),
    **defaults | options,
  )


@pytest.mark.slow
@pytest.mark.parametrize("grid_map", ["vmap", "scan"])
def test_points_and_clients_share_the_frozen_leaves(grid_map):
  def need(points, seeds, chunk):
    rates = np.linspace(0.01, 0.1, points)
    options = {"grid_map": grid_map, "client_chunk": chunk}
    simulator = of_head(rates, seeds, **options)
    return run_programs.bytes_of(simulator.compile(drawn_head)["rounds"])

  assert need(4, 2, 4) - need(1, 1, 1) < BODY.nbytes


@pytest.mark.slow
def test_a_grid_that_drops_points_and_goes_on_from_a_checkpoint(tmp_path):
  per_example = lambda params, batch: {"loss": squares(params, batch)}
  rates = [*np.linspace(0.001, 0.01, 7), *np.geomspace(1e20, 1e30, 9)]
  evaluate = fo.evaluation.federated(per_example)
  grid = lambda: of_head(
    rates, eval_every=1, grid_map="vmap", evaluate=evaluate
  )
  result = grid().run_all(drawn_head, 4)
  assert result.history.diverged()[7:, -1].all()
  checkpoints = functools.partial(fo.Checkpoints, tmp_path / "saved", every=2)
  grid().run_all(drawn_head, 2, checkpoints=checkpoints())
  other_init = lambda key: jax.tree.map(lambda leaf: leaf + 1, drawn_head(key))
  resumed = grid().run_all(other_init, 4, checkpoints=checkpoints(resume=True))
  chex.assert_trees_all_equal(resumed.params, result.params)
  np.testing.assert_array_equal(resumed.params["body"][3], BODY)


@pytest.mark.slow
def test_frozen_leaves_are_computed_in_the_type_of_the_others():
  dtypes = set()

  def spy(params, batch, rng):
    dtypes.update(leaf.dtype.name for leaf in jax.tree.leaves(params))
    return TASK.loss_fn(params, batch, rng)

  result = simulate(some("moon", HEAD, spy), precision="bfloat16")
  assert dtypes == {"bfloat16"}
  chex.assert_trees_all_equal(result.params["hidden"], model()["hidden"])


def test_a_penalty_is_of_the_trained_leaves():
  evaluate = lambda params, data, test: {"train_loss": jnp.float32(0)}
  result = simulate(some("fed_dual_avg", HEAD), evaluate=evaluate)
  penalty = result.history.metrics["regularized_train_loss"][0, -1]
  kernel = result.params["output"]["kernel"]
  assert penalty == pytest.approx(1e-2 * np.abs(kernel).sum(), rel=1e-5)


@pytest.mark.slow
def test_clients_own_models_have_all_leaves():
  algorithm = some("moon", HEAD)
  result = simulate(algorithm)
  per_example = lambda params, batch: {
    "hidden": jnp.full(len(batch["x"]), jnp.sum(params["hidden"]["kernel"])),
    "output": jnp.full(len(batch["x"]), jnp.sum(params["output"]["kernel"])),
  }
  values = fo.evaluate_clients(
    result, per_example, TASK.data, train=TASK.data, algorithm=algorithm,
    loss_fn=TASK.loss_fn, client=trainable.only(fo.delta_sgd(), HEAD),
    local_steps=2, batch_size=4,
  ).values  # fmt: skip
  rows = np.asarray(TASK.data.sizes) > 0
  for kind in ("personal", "personalized"):
    is_same = values[kind]["hidden"][rows] == values["global"]["hidden"][rows]
    assert is_same.all()
    is_moved = values[kind]["output"][rows] != values["global"]["output"][rows]
    assert is_moved.any()


def test_a_rule_that_moves_some_leaves():
  params, grads = model(0), model(1)
  rules = [
    trainable.only(optax.sgd(0.1), HEAD),
    trainable.only(lambda round: optax.sgd(0.1 * round), HEAD)(1),
  ]
  for rule in rules:
    updates, _ = rule.update(grads, rule.init(params), params)
    assert not any(map(np.any, jax.tree.leaves(updates["hidden"])))
    expected = optax.tree.scale(-0.1, grads["output"])
    assert_close(updates["output"], expected)


def test_which_leaves_a_path_stands_for():
  params = {"head": {"bias": 1.0}, "headless": 2.0, "body": [3.0, {"w": 4.0}]}
  mask = trainable.mask(params, ["head", "body/1"])
  assert mask == {
    "head": {"bias": True},
    "headless": False,
    "body": [False, {"w": True}],
  }
