"""Running statistics: they are averaged, and nothing else touches them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import (
  ClientData,
  delta_sgd,
  fed_avg,
  fed_exp,
  objectives,
  simulate,
)
from fedjax_opt.models import layers, statistics

RNG = np.random.default_rng(0)
X = RNG.normal(1, 2, size=(24, 3)).astype(np.float32)
Y = RNG.normal(size=24).astype(np.float32)
DATA = ClientData.from_partition(
  {"x": X, "y": Y}, [np.arange(8), np.arange(8, 24)]
)
LAYER = layers.BatchNorm()
PARAMS = {
  "norm": LAYER.init(jax.random.key(0), X, train=True)["params"],
  "output": jnp.ones(3),
}
SETTINGS = {"batch_size": 4, "local_steps": 2, "client_map": "vmap"}
STATISTICS = ("running_mean", "running_var")


def loss_fn(params, batch, rng):
  x = LAYER.apply({"params": params["norm"]}, batch["x"], train=rng is not None)
  return (x @ params["output"] - batch["y"]) ** 2


def run(client, server=None, rounds=2, loss=loss_fn):
  server = statistics.follow(server or optax.sgd(1.0))
  algorithm = fed_avg(loss, statistics.follow(client), server)
  result = simulate(algorithm, PARAMS, DATA, rounds=rounds, **SETTINGS)
  return jax.device_get(result.params)


@functools.cache
def plain():
  return run(optax.sgd(0.0))


def test_they_are_means_over_clients_of_those_after_local_steps():
  """By hand, of clients whose own examples are all alike, 4 and 8 of them."""
  same = {"x": np.repeat(X[:2], [4, 8], 0), "y": np.zeros(12, np.float32)}
  data = ClientData.from_partition(same, [np.arange(4), np.arange(4, 12)])
  algorithm = fed_avg(loss_fn, statistics.follow(optax.sgd(0.1)))
  result = simulate(algorithm, PARAMS, data, rounds=3, **SETTINGS)
  after = result.params["norm"]
  mean = (4 * X[0] + 8 * X[1]) / 12
  np.testing.assert_allclose(
    after["running_mean"], (1 - 0.9**6) * mean, rtol=1e-5
  )
  np.testing.assert_allclose(after["running_var"], 0.9**6, rtol=1e-5)


@pytest.mark.parametrize(
  ("client", "server"),
  [
    (optax.adam(0.0), optax.sgd(1.0)),
    (optax.sgd(0.0, momentum=0.9), optax.adam(0.0)),
    (optax.sgd(0.0), optax.sgd(0.0, momentum=0.9)),
  ],
)
def test_rules_do_not_move_them(client, server):
  actual = run(client, server)["norm"]
  for name in STATISTICS:
    np.testing.assert_allclose(
      actual[name], plain()["norm"][name], rtol=1e-6, atol=1e-7
    )


def test_delta_sgd_measures_the_weights_alone():
  """Its step sizes are those on a model whose statistics are not there."""
  without = {"x": (X - X.mean(0)) / X.std(0), "y": Y}

  def fixed_loss(params, batch, rng):
    x = LAYER.apply(
      {"params": {**PARAMS["norm"], **params["norm"]}}, batch["x"], train=True
    )
    return (x @ params["output"] - batch["y"]) ** 2

  weights = {
    "norm": {k: v for k, v in PARAMS["norm"].items() if k not in STATISTICS},
    "output": PARAMS["output"],
  }
  data = ClientData(without, DATA.indices, DATA.sizes)
  expected = simulate(
    fed_avg(fixed_loss, delta_sgd()), weights, data, rounds=2,
    trace=["step_size"], **SETTINGS,
  )  # fmt: skip
  actual = simulate(
    fed_avg(loss_fn, statistics.follow(delta_sgd())), PARAMS, data, rounds=2,
    trace=["step_size"], **SETTINGS,
  )  # fmt: skip
  np.testing.assert_allclose(
    actual.traces["step_size"], expected.traces["step_size"], rtol=1e-5
  )
  np.testing.assert_allclose(
    actual.params["output"], expected.params["output"], rtol=1e-5
  )


def test_terms_of_the_loss_leave_them_out():
  batch = {"x": X[:4], "y": Y[:4]}
  params = jax.tree.map(lambda leaf: leaf + 1.0, PARAMS)
  weights = {"scale": 2.0, "bias": 1.0}
  squares = 3 * sum(v**2 for v in weights.values()) + 3 * 2.0**2
  before = loss_fn(params, batch, None)
  after = objectives.l2(loss_fn, 0.5)(params, batch, None)
  np.testing.assert_allclose(after - before, 0.25 * squares, rtol=1e-5)
  after = objectives.proximal(loss_fn, PARAMS, 0.5)(params, batch, None)
  np.testing.assert_allclose(after - before, 0.25 * 9, rtol=1e-5)


def test_fed_exp_does_not_extrapolate_them():
  """They are the clients' means, whatever the step of the weights is."""
  client = statistics.follow(optax.sgd(0.01))
  opposite = np.where(np.arange(24) < 8, 10, -10).astype(np.float32)
  data = ClientData.from_partition(
    {"x": X - X.mean(0), "y": opposite}, [np.arange(8), np.arange(8, 24)]
  )
  step = lambda algorithm: (
    simulate(
      algorithm, PARAMS, data, rounds=1, **SETTINGS, weighting="uniform"
    ).params
  )
  plain = step(fed_avg(loss_fn, client))
  found = step(fed_exp(loss_fn, client, eps=0.0))
  for name in STATISTICS:
    # It evaluates the mean of the first two iterates.
    middle = (PARAMS["norm"][name] + plain["norm"][name]) / 2
    np.testing.assert_allclose(found["norm"][name], middle, rtol=1e-6)
  half = (PARAMS["output"] + plain["output"]) / 2
  assert not np.allclose(found["output"], half, rtol=1e-3)


@pytest.mark.parametrize("settings", [{"drop_remainder": True}, {}])
def test_a_batch_with_padding_is_refused(settings):
  data = ClientData.from_partition(
    {"x": X, "y": Y}, [np.arange(8), np.arange(8, 21)]
  )
  run = functools.partial(
    simulate,
    fed_avg(loss_fn, statistics.follow(optax.sgd(0.1))),
    PARAMS,
    data,
    rounds=1,
    batch_size=4,
    **settings,
  )
  if settings:
    run()
    return
  with pytest.raises(ValueError, match="a batch that is not full") as error:
    run()
  assert str(error.value).startswith("params: 'norm' has running statistics")
