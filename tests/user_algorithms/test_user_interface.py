"""What users of the interface came upon while they wrote algorithms."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from tests.user_algorithms import draws

M = len(draws.SIZES)


def delta(worker, params):
  local = worker.descend(draws.loss_fn, optax.sgd(0.1), params)
  return optax.tree.sub(local, params)


def algorithm_of(one_client, **options):
  def round(params, cohort):
    sent = cohort.mean(one_client, params)
    return optax.tree.add(params, sent.value), sent

  return algorithm(round, **options)


def algorithm(round, **options):
  same = lambda params: params
  return fo.Algorithm(lambda params, _: params, round, same, **options)


def run(algorithm, **settings):
  settings = {"rounds": 3, "batch_size": 4} | settings
  return fo.simulate(algorithm, draws.PARAMS, draws.client_data(), **settings)


@pytest.mark.parametrize("weight", [1, 1.0, np.float64(1)])
def test_a_client_may_give_its_weight_as_a_plain_number(weight):
  one_client = lambda w, params: fo.ClientOutput(
    delta(w, params), weight=weight
  )
  given = run(algorithm_of(one_client))
  plain = run(algorithm_of(delta), weighting="uniform")
  for one, other in zip(
    jax.tree.leaves(given.params), jax.tree.leaves(plain.params), strict=True
  ):
    np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("state_phase", [0, 1])
def test_a_phase_that_returns_no_state_leaves_that_of_another(state_phase):
  def counting(worker, params):
    return fo.ClientOutput(delta(worker, params), state=worker.state + 1)

  def round(params, cohort):
    visits = [delta, delta]
    visits[state_phase] = counting
    first = cohort.mean(visits[0], params)
    second = cohort.mean(visits[1], params, phase=1)
    return optax.tree.add(params, first.value), (first, second)

  counted = algorithm(round, init_client=lambda params: jnp.int32(0))
  np.testing.assert_array_equal(run(counted).client_state, [3] * M)
