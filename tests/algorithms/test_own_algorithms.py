"""Algorithms as users write them, and what they came upon meanwhile."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from tests.helpers import cases, jax_problems


def delta(worker, params):
  local = worker.descend(cases.loss_fn, optax.sgd(0.1), params)
  return optax.tree.sub(local, params)


def algorithm_of(one_client):
  def round(params, cohort):
    sent = cohort.mean(one_client, params)
    return optax.tree.add(params, sent.value), sent

  return jax_problems.own_algorithm(round)


def run(algorithm, **options):
  options = {"rounds": 3, "batch_size": 4} | options
  return fo.simulate(algorithm, cases.PARAMS, cases.DATA, **options)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1, np.float64(1)])
def test_a_client_may_give_its_weight_as_a_plain_number(weight):
  one_client = lambda worker, params: fo.ClientOutput(
    delta(worker, params), weight=weight
  )
  result = run(algorithm_of(one_client))
  uniform = run(algorithm_of(delta), weighting="uniform")
  actual, expected = cases.flat(result.params), cases.flat(uniform.params)
  np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.slow
def test_states_are_kept_in_their_types():
  params = jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16), cases.PARAMS)

  def one_client(worker, params):
    one = jnp.float32(1)
    return fo.ClientOutput(delta(worker, params), state=worker.state + one)

  def round(params, cohort):
    sent = cohort.mean(one_client, params)
    return optax.tree.add_scale(params, jnp.float32(1), sent.value), sent

  result = fo.simulate(
    jax_problems.own_algorithm(round, init_client=lambda _: jnp.bfloat16(0)),
    params,
    cases.DATA,
    rounds=2,
    batch_size=4,
  )
  assert result.params["bias"].dtype == jnp.bfloat16
  assert result.client_state.dtype == jnp.bfloat16
