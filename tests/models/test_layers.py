"""The distributions of the layers' initial parameters."""

import jax
import jax.numpy as jnp
import pytest

from fedjax_opt.models import layers


@pytest.mark.parametrize(
  ("initialization", "kernel_width", "bias_width"),
  [
    (layers.torch_uniform, 75**-0.5, 75**-0.5),
    (layers.glorot_uniform, (6 / (75 + 200)) ** 0.5, 0.0),
  ],
)
def test_initial_laws_of_a_convolution(
  initialization, kernel_width, bias_width
):
  layer = layers.Conv(8, (5, 5), initialization=initialization)
  x = jnp.ones((1, 6, 6, 3))
  params = jax.jit(layer.init)(jax.random.key(0), x)["params"]
  assert params["kernel"].shape == (5, 5, 3, 8)
  assert params["bias"].shape == (8,)
  largest = float(jnp.abs(params["kernel"]).max())
  assert 0.98 * kernel_width < largest <= kernel_width
  largest = float(jnp.abs(params["bias"]).max())
  assert 0.5 * bias_width <= largest <= bias_width


def test_initial_law_of_a_dense_layer():
  layer = layers.Dense(50)
  params = layer.init(jax.random.key(0), jnp.ones((1, 320)))["params"]
  for leaf in jax.tree.leaves(params):
    assert 0.9 * 320**-0.5 < float(jnp.abs(leaf).max()) <= 320**-0.5
