"""Messages that are finite but longer than `max_update_norm`."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import prox
from tests.helpers import jax_problems

C, BAD = 5, 2
TASK = jax_problems.softmax(sizes=(13, 7, 20, 4))


def data():
  examples = {"x": np.ones((C, 1), np.float32)}
  return fo.ClientData.from_client_ids(examples, np.arange(C))


def sums(size):
  """The server adds what clients send; one sends numbers of this size."""

  def one_client(worker, state):
    update = {"w": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    is_bad = worker.client == BAD
    grow = lambda leaf: jnp.where(is_bad, leaf * (size / 4), leaf)
    message = jax.tree.map(grow, update) | {"number": worker.client}
    return fo.ClientOutput(message=message, state=worker.state + 1)

  def round(state, cohort):
    reply = cohort.mean(one_client, state)
    return jax.tree.map(jnp.add, state, reply.value), reply

  return jax_problems.own_algorithm(round, init_client=lambda _: jnp.int32(0))


def run(size, chunk=C, **options):
  params = {"w": jnp.zeros(2), "b": jnp.zeros((1, 1)), "number": 0.0}
  evaluate = lambda *_: {"train_loss": jnp.float32(1)}
  options |= {"batch_size": 1, "client_chunk": chunk, "evaluate": evaluate}
  return fo.simulate(sums(size), params, data(), rounds=3, **options)


def counted(result, name):
  return result.history.metrics[name][0, -1]


@pytest.mark.parametrize(
  ("size", "chunk", "others"),
  [
    (41.0, 1, {}),
    (3e38, 2, {}),
    (np.inf, C, {"max_update_action": "clip"}),  # Which cannot be clipped.
  ],
)
def test_a_long_update_is_rejected(size, chunk, others):
  result = run(size, chunk, max_update_norm=50, **others)
  np.testing.assert_allclose(result.params["w"], [9, 0], rtol=1e-6)
  np.testing.assert_allclose(result.params["b"], [[12]], rtol=1e-6)
  assert counted(result, "rejected_clients") == 3
  assert ("clipped_clients" in result.history.metrics) == bool(others)
  assert not others or counted(result, "clipped_clients") == 0
  # It keeps what it had, as one that sent NaN.
  np.testing.assert_array_equal(result.client_state, [3, 3, 0, 3, 3])


@pytest.mark.parametrize(("size", "chunk"), [(41.0, 1), (3e38, 2)])
def test_a_long_update_is_clipped(size, chunk):
  """To the norm, with its direction; whole numbers are no part of it."""
  limits = {"max_update_norm": 50, "max_update_action": "clip"}
  result = run(size, chunk, **limits)
  mean = (4 + 50 / 5) / 5  # The others have the norm 5.
  np.testing.assert_allclose(result.params["w"], [9 * mean, 0], rtol=1e-5)
  np.testing.assert_allclose(result.params["b"], [[12 * mean]], rtol=1e-5)
  np.testing.assert_allclose(result.params["number"], 6, rtol=1e-6)
  assert counted(result, "clipped_clients") == 3
  assert counted(result, "rejected_clients") == 0
  np.testing.assert_array_equal(result.client_state, 3)


def test_of_tiny_updates_no_squares_are_lost():
  """1e-30 is longer than 1e-31, although its square is 0."""
  result = run(4e-30, max_update_norm=50)
  assert counted(result, "rejected_clients") == 0
  limits = {"max_update_norm": 1e-31, "max_update_action": "clip"}
  result = run(4e-30, **limits)
  assert counted(result, "clipped_clients") == 3 * C
  np.testing.assert_allclose(result.params["b"], 3 * 8e-32, rtol=1e-5)


@pytest.mark.parametrize(
  "algorithm",
  [
    fo.fed_nova(TASK.loss_fn, 0.2),
    fo.fed_dual_avg(TASK.loss_fn, prox.l1(0.01), 0.2),
  ],
)
@pytest.mark.default_cases("algorithm0")
def test_only_differences_count(algorithm):
  """Numbers of steps beside a difference are no part of its norm.

  A limit that no difference reaches changes no bit.
  """
  options = {"rounds": 3, "batch_size": 4, "local_steps": 5, "seed": 3}
  options["evaluate"] = lambda *_: {"train_loss": jnp.float32(1)}
  unlimited = TASK.simulate(algorithm, **options)
  # Above all differences, and below the other numbers that are sent.
  limits = {"max_update_norm": 0.9, "max_update_action": "clip"}
  limited = TASK.simulate(algorithm, **options, **limits)
  assert counted(limited, "clipped_clients") == 0
  chex.assert_trees_all_equal(limited.params, unlimited.params)


@pytest.mark.slow
def test_fed_exp_takes_the_norm_of_what_is_clipped():
  """One absurd client among alike ones does not make the step longer."""
  data = fo.ClientData.from_client_ids(
    {"y": np.float32([[1, 0]] * 9 + [[1e6, 0]])}, np.arange(10)
  )

  def loss_fn(params, batch, rng):
    return jnp.sum((params["w"] - batch["y"]) ** 2, axis=1) / 2

  algorithm = fo.fed_exp(loss_fn, optax.sgd(1.0), eps=0.0)
  options = {"max_update_norm": 1.0, "max_update_action": "clip"}
  result = fo.simulate(
    algorithm, {"w": jnp.zeros(2)}, data, rounds=1, batch_size=1, **options
  )
  # The mean of the first two iterates.
  np.testing.assert_allclose(result.params["w"], [0.5, 0], rtol=1e-5)
