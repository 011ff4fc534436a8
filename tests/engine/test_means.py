"""Means over many clients are exact, however these are divided in chunks."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import Algorithm, ClientData, simulate

C = 20_000


def data():
  examples = {"x": np.ones((C, 1), np.float32)}
  return ClientData.from_client_ids(examples, np.arange(C))


def mean_of(message):
  def round(state, cohort):
    reply = cohort.mean(lambda worker, _: message(worker), state)
    return reply.value, reply

  init = lambda params, num_clients: params
  return Algorithm(init=init, round=round, params=lambda state: state)


@pytest.mark.parametrize("chunk", [1, 7, 1250, C])
def test_the_mean_of_all_clients(chunk):
  """One by one the mean of 1.0 over 100,000 clients was 1e-3 off."""
  algorithm = mean_of(
    lambda worker: jnp.stack([1.0, 3.0 + worker.client.astype(float) / C])
  )
  found = simulate(
    algorithm,
    jnp.zeros(2),
    data(),
    rounds=1,
    batch_size=1,
    client_chunk=chunk,
  ).params
  expected = [1, 3 + np.mean(np.arange(C) / C)]
  np.testing.assert_allclose(found, expected, rtol=1e-6)
