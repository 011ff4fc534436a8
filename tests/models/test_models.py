"""The models' contract, and the CNN against its definition in lax."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_opt import models
from fedjax_opt.models import layers

# Model, input shape, width of the features, parameters.
MODELS = [
  (models.LinearModel(3), (2, 4, 4, 1), 16, 51),
  (models.LinearModel(1, use_bias=False), (2, 7), 7, 7),
  (models.MLP((100,), 10, nn.softplus), (2, 32, 32, 3), 100, 308_310),
  (models.MLP((8, 6), 4), (2, 5), 6, 130),
  (models.CNN(), (2, 28, 28, 1), 50, 21_840),
  (models.CNN(kernel_size=3, padding="SAME"), (2, 8, 8, 1), 50, 6_480),
]


def _init(model, shape):
  return jax.jit(model.init)(jax.random.key(0), jnp.ones(shape))["params"]


@pytest.mark.parametrize(
  ("model", "shape", "width", "parameters"),
  MODELS,
  ids=[type(row[0]).__name__ + str(row[1]) for row in MODELS],
)
def test_shapes_and_parameters(model, shape, width, parameters):
  params = _init(model, shape)
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == parameters
  x = jnp.ones(shape)

  @jax.jit
  def outputs(params):
    variables = {"params": params}
    rngs = {"dropout": jax.random.key(1)}
    return (
      model.apply(variables, x, method="features"),
      model.apply(variables, x),
      model.apply(variables, x, train=True, rngs=rngs),
    )

  features, logits, training_logits = outputs(params)
  assert features.shape == (2, width)
  assert training_logits.shape == logits.shape
  # The output layer acts on the features.
  output = layers.Dense(logits.shape[1], use_bias="bias" in params["output"])
  np.testing.assert_allclose(
    logits,
    output.apply({"params": params["output"]}, features),
    rtol=1e-5,
    atol=1e-5,
  )


def _plain_cnn(params, x):
  """The paper's network, dropout off, in nothing but lax."""

  def conv_pool(x, layer):
    x = lax.conv_general_dilated(
      x,
      layer["kernel"],
      (1, 1),
      "VALID",
      dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    window = (1, 2, 2, 1)
    x = x + layer["bias"]
    return jax.nn.relu(
      lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
    )

  x = conv_pool(conv_pool(x, params["convs_0"]), params["convs_1"])
  x = x.reshape(len(x), -1)
  for name in ("hidden_layer", "output"):
    x = x @ params[name]["kernel"] + params[name]["bias"]
    x = jax.nn.relu(x) if name == "hidden_layer" else x
  return x


@pytest.mark.parametrize("implementation", ["matmul", "lax"])
def test_cnn_equals_its_definition(implementation):
  model = models.CNN(implementation=implementation)
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(16, 28, 28, 1)), jnp.float32)
  y = jnp.asarray(rng.integers(0, 10, 16))
  params = _init(model, x.shape)

  def value_and_gradients(forward):
    def loss(params, x):
      logits = forward(params, x)
      log_probs = jax.nn.log_softmax(logits)
      return -jnp.take_along_axis(log_probs, y[:, None], 1).mean(), logits

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(
      params, x
    )

  actual = value_and_gradients(lambda p, x: model.apply({"params": p}, x))
  expected = value_and_gradients(_plain_cnn)
  for a, b in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_cnn_drops_whole_channels_and_only_in_training():
  model = models.CNN(channels=(2, 8), hidden=4)
  x = jax.random.normal(jax.random.key(2), (4, 28, 28, 1))
  params = _init(model, x.shape)

  @functools.partial(jax.jit, static_argnums=0)
  def flat(train, key):  # What enters the dense layer, [B, 16 pixels, 8].
    _, state = model.apply(
      {"params": params},
      x,
      train=train,
      rngs={"dropout": jax.random.key(key)},
      capture_intermediates=lambda module, _: module.name == "channel_dropout",
    )
    out = state["intermediates"]["channel_dropout"]["__call__"][0]
    return out.reshape(4, 16, 8)

  kept, dropped = np.asarray(flat(False, 0)), np.asarray(flat(True, 0))
  mask = (dropped != 0).any(axis=1)
  assert 0 < mask.sum() < mask.size
  np.testing.assert_allclose(dropped, 2 * kept * mask[:, None], rtol=1e-6)
  assert (flat(True, 1) != dropped).any()
  np.testing.assert_array_equal(flat(False, 1), kept)


def test_cnn_says_when_images_are_too_small():
  with pytest.raises(ValueError, match=r"x of 2 x 2 pixels .* kernel's 5 x 5"):
    _init(models.CNN(), (1, 8, 8, 1))
