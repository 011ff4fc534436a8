"""Clients that send what is not finite, those that drop out, and costs."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import evaluation, samplers
from fedjax_opt.engine.config import Config
from tests import reference
from tests.helpers import jax_problems
from tests.helpers.jax_problems import cohort_of, dropouts_of

TASK = jax_problems.softmax(sizes=(13, 7, 20, 4))
OPTIONS = {
  "rounds": 4,
  "cohort_size": 3,
  "client_chunk": 2,
  "batch_size": 4,
  "local_epochs": 1.5,
}
BAD = 0  # The client whose losses overflow; padding is row 0, not its own.


def poisoned(params, batch, rng):
  """The loss, but for the client of BAD, whose examples are marked."""
  x = batch["x"][:, :-1]
  losses = TASK.loss_fn(params, {"x": x, "y": batch["y"]}, rng)
  return losses * jnp.where(batch["x"][:, -1] > 0, jnp.inf, 1)


@functools.cache
def data():
  source = TASK.data
  mark = np.zeros(source.num_examples)
  mark[TASK.problem.client_rows[BAD]] = 1
  x = np.concatenate([source.examples["x"], mark[:, None]], 1)
  return type(source)({**source.examples, "x": x}, source.indices, source.sizes)


def run(algorithm, **options):
  return fo.simulate(algorithm, TASK.params, data(), **OPTIONS | options)


def drawn(**options):
  options = {n: v for n, v in (OPTIONS | options).items() if n != "rounds"}
  config = Config.create(data(), options)
  rounds = jax_problems.drawn_rounds(config, data(), 0, OPTIONS["rounds"])
  return config, rounds


def looped(rounds):
  make_rule = lambda r, client: reference.Sgd(0.2)
  *_, (x, _) = reference.fed_avg(TASK.problem, rounds, make_rule)
  return x


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
@pytest.mark.default_cases("uniform")
def test_who_sends_no_numbers_is_left_out_with_its_weight(weighting):
  with jax.enable_x64(True):
    result = run(fo.fed_avg(poisoned, optax.sgd(0.2)), weighting=weighting)
    _, rounds = drawn(weighting=weighting)
  num_bad = np.array([clients.count(BAD) for clients, _, _ in rounds])
  assert 0 < num_bad.sum() < OPTIONS["rounds"]
  for clients, _, weights in rounds:
    weights[np.array(clients) == BAD] = 0
  actual = jax_problems.flat(result.params)
  np.testing.assert_allclose(actual, looped(rounds), rtol=1e-9)


@pytest.mark.slow
def test_rejections_are_counted_and_change_no_other_number():
  evaluate = evaluation.federated(
    lambda params, batch: {"loss": TASK.loss_fn(
      params, {"x": batch["x"][:, :-1], "y": batch["y"]}, None
    )}
  )  # fmt: skip
  options = {"evaluate": evaluate, "eval_every": 1}
  result = run(fo.fed_avg(poisoned, optax.sgd(0.2)), **options)
  _, rounds = drawn()
  num_bad = np.cumsum([0, *[clients.count(BAD) for clients, _, _ in rounds]])
  metrics = result.history.metrics
  np.testing.assert_array_equal(metrics["rejected_clients"][0], num_bad)
  assert result.history.status(0) == "ok"
  clean = fo.fed_avg(lambda p, b, r: poisoned(p, {
    "x": b["x"] * jnp.array([1.0] * 4 + [0.0]), "y": b["y"]
  }, r), optax.sgd(0.2))  # fmt: skip
  healthy = run(clean, **options)
  assert healthy.cost == result.cost
  assert not healthy.history.metrics["rejected_clients"].any()


@pytest.mark.slow
def test_scaffold_s_control_stays_the_mean_of_all():
  """Whoever is left out."""
  options = {"client_dropout": 0.4, "rounds": 6}
  result = run(fo.scaffold(poisoned, 0.2), **options)
  mean = lambda leaf: np.average(leaf, axis=0, weights=data().sizes)
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
  controls = result.client_state
  jax.tree.map(close, result.state.control, jax.tree.map(mean, controls))


@pytest.mark.parametrize(
  "make",
  [
    lambda loss: fo.fed_avg(loss, optax.sgd(0.2), optax.adam(0.1)),
    lambda loss: fo.bvr_l_sgd(loss, 0.1),
  ],
)
@pytest.mark.default_cases("<lambda>0")
def test_if_all_are_rejected_nothing_changes(make):
  infinite = lambda params, batch, rng: jnp.inf * poisoned(params, batch, rng)
  algorithm = make(infinite)
  params = jax.tree.map(jnp.asarray, TASK.params)
  expected = algorithm.init(params)
  evaluate = lambda *_: {"train_loss": jnp.float32(1)}
  result = run(algorithm, evaluate=evaluate, eval_every=2)
  chex.assert_trees_all_equal(result.state, expected)
  for leaf in jax.tree.leaves(result.client_state):
    np.testing.assert_array_equal(leaf, 0)
  assert result.history.metrics["rejected_clients"][0, -1] >= 12
  assert result.history.status(0) == "diverged"
  assert result.history.diverged_round(0) == 2


@pytest.mark.slow
def test_dropouts_have_their_rate_and_may_lose_a_round():
  config = Config.create(data(), {"batch_size": 4, "client_dropout": 0.3})
  on_device = jax.device_put(data())
  draw = jax.jit(
    lambda key: dropouts_of(cohort_of(config, on_device, key, jnp.int32(0)))
  )
  keys = jax.random.split(jax.random.key(0), 500)
  share = np.mean([draw(key) for key in keys])
  assert abs(share - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 2000)

  params = jax.tree.map(jnp.asarray, TASK.params)
  result = fo.simulate(
    fo.fed_avg(TASK.loss_fn, optax.sgd(0.2)), params, TASK.data,
    **OPTIONS | {"cohort_size": 1, "client_chunk": None, "rounds": 1},
    client_dropout=1 - 1e-9, evaluate=lambda *_: {"train_loss": 1.0},
  )  # fmt: skip
  chex.assert_trees_all_equal(result.params, params)
  # Nothing was wrong with it.
  assert result.history.status(0) == "ok"


@pytest.mark.slow
def test_a_picked_client_has_not_dropped_out():
  """Else every dropout of the picked one would lose the round."""

  def round(state, cohort):
    one_client = lambda worker, _: worker.client
    members = cohort.each(one_client, ())
    picked = cohort.pick(one_client, (), phase=1)
    is_picked = members.value == picked.value
    num_out = jnp.any(is_picked & ~members.counted)
    new_state = state + jnp.array([1, num_out], jnp.int32)
    return new_state, (members, picked)

  init = lambda params: jnp.zeros(2, jnp.int32)
  algorithm = jax_problems.own_algorithm(round, init)
  options = {"rounds": 200, "client_dropout": 0.5, "client_chunk": None}
  rounds, num_out = run(algorithm, **options).params
  assert num_out == 0
  # Lost are the rounds, one in eight, in which all are out.
  assert 150 < rounds < 198


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
@pytest.mark.default_cases("examples")
def test_a_cohort_without_examples_changes_nothing(weighting):
  """By examples its weights sum to 0; a momentum would go on."""
  data = fo.ClientData.from_partition(
    {"x": np.ones((8, 1), np.float32)}, [np.arange(8), np.arange(0)]
  )
  loss_fn = lambda params, batch, rng: batch["x"][:, 0] * params
  models = [
    fo.simulate(
      fo.fed_avg(loss_fn, optax.sgd(0.1), optax.sgd(1.0, momentum=0.9)),
      jnp.float32(0),
      data,
      rounds=rounds,
      cohort_size=1,
      batch_size=8,
      sampler=samplers.fixed([[0], [1]]),
      weighting=weighting,
    ).params
    for rounds in (1, 2)
  ]
  assert (models[0] == models[1]) == (weighting == "examples")


def test_cost_and_waste_are_exact():
  task, rounds = jax_problems.least_squares(), 4
  options = {
    "cohort_size": 3,
    "client_chunk": 2,
    "batch_size": 4,
    "local_epochs": 1.5,
  }
  algorithm = fo.fed_avg(task.loss_fn, fo.delta_sgd())  # Two gradients a step.
  result = task.simulate(algorithm, rounds=rounds, eval_every=3, **options)
  config = Config.create(task.data, options)
  rounds_drawn = jax_problems.drawn_rounds(config, task.data, 0, rounds)
  examples, computed = 0, 0
  for _, of_round, _ in rounds_drawn:
    examples += sum(len(rows) for steps in of_round for rows in steps)
    step_counts = sorted((len(steps) for steps in of_round), reverse=True)
    for start in range(0, 3, 2):  # A chunk waits for its slowest client.
      computed += 2 * step_counts[start] * 4
  cost = result.cost["gradient_evaluations_per_round"]
  assert cost == pytest.approx(2 * examples / (3 * rounds))
  assert result.padding_waste == pytest.approx(1 - examples / computed)
  size = task.params["kernel"].size * 4
  names = ("bytes_down_per_round", "bytes_up_per_round")
  assert [result.cost[name] for name in names] == [size, size]
