"""Statistics of models of one's own follow their batches, as flax has them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

import fedjax_opt as fo

RNG = np.random.default_rng(0)
X = RNG.normal(2, 3, (24, 5)).astype(np.float32)
Y = RNG.integers(0, 3, 24)
CLIENTS = np.arange(24) // 8  # Three of 8 examples each.


class Net(linen.Module):
  """Normalizes its input, so that the statistics depend on the batch alone."""

  @linen.compact
  def __call__(self, x, train):
    x = linen.BatchNorm(use_running_average=not train, momentum=0.9)(x)
    return linen.Dense(3)(x)


NET = Net()
VARIABLES = NET.init(jax.random.key(0), jnp.zeros((1, 5)), False)


def loss_fn(variables, batch, rng):
  logits, new = NET.apply(variables, batch["x"], True, mutable=["batch_stats"])
  return fo.objectives.with_statistics(
    optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]),
    variables["batch_stats"],
    new["batch_stats"],
  )


@pytest.mark.parametrize("client", [optax.sgd(0.1), fo.delta_sgd()])
@pytest.mark.default_cases("client0")
def test_they_are_the_mean_of_the_clients_moving_averages(client):
  data = fo.ClientData.from_client_ids({"x": X, "y": Y}, CLIENTS)
  result = fo.simulate(
    fo.fed_avg(loss_fn, client),
    VARIABLES,
    data,
    rounds=2,
    batch_size=8,
    local_steps=3,
  )
  mean, var = np.zeros(5), np.ones(5)
  of_clients = [X[client == CLIENTS].astype(float) for client in range(3)]
  for _ in range(2):
    means, variances = [], []
    for x in of_clients:
      own_mean, own_var = mean, var
      for _ in range(3):
        own_mean = 0.9 * own_mean + 0.1 * x.mean(0)
        own_var = 0.9 * own_var + 0.1 * x.var(0)
      means.append(own_mean)
      variances.append(own_var)
    mean, var = np.mean(means, 0), np.mean(variances, 0)
  (found,) = result.params["batch_stats"].values()
  np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
  np.testing.assert_allclose(found["var"], var, rtol=1e-5)
