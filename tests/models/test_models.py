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
  (models.CNN(channels=(4, 6), strided=True), (2, 16, 16, 3), 50, 1_770),
]
# The same of networks whose shapes are enough to see, with the counts that are
# commonly given for CIFAR-10.
LARGE = {
  "vgg16": (models.VGG(), 512, 14_719_818),
  "vgg16-100": (models.VGG(num_classes=100), 512, 14_765_988),
  "resnet20": (models.resnet20(), 64, 269_722),
  "resnet56": (models.resnet56(), 64, 853_018),
  "resnet18": (models.resnet18(), 512, 11_173_962),
  "resnet50": (models.resnet50(), 2048, 23_520_842),
  # 4 numbers a channel instead of 2, then none and a bias.
  "resnet20-batch": (models.resnet20(norm="batch"), 64, 269_722 + 2 * 688),
  "resnet20-none": (models.resnet20(norm="none"), 64, 269_722 - 688),
}


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


@pytest.mark.parametrize("name", LARGE)
def test_shapes_and_parameters_of_large_networks(name):
  model, width, parameters = LARGE[name]
  x = jnp.ones((2, 32, 32, 3))

  def outputs(key):
    params = model.init(key, x)["params"]
    return (
      params,
      model.apply({"params": params}, x, train=True),
      model.apply({"params": params}, x, method="features"),
    )

  params, logits, features = jax.eval_shape(outputs, jax.random.key(0))
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == parameters
  assert logits.shape == (2, model.num_classes)
  assert features.shape == (2, width)


def _normalized(x, axes, eps=1e-5):
  mean = x.mean(axes, keepdims=True)
  return (x - mean) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_group_norm_normalizes_groups_of_channels_of_one_image():
  x = np.random.default_rng(0).normal(2, 3, size=(2, 3, 3, 8))
  layer = layers.Norm("group", num_groups=4)
  variables = layer.init(jax.random.key(0), x, train=True)
  expected = _normalized(x.reshape(2, 9, 4, 2), (1, 3)).reshape(x.shape)
  for train in (False, True):
    actual = layer.apply(variables, x, train=train)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_batch_norm_normalizes_by_the_batch_and_then_by_what_it_kept():
  x = np.random.default_rng(0).normal(2, 3, size=(4, 3, 3, 2)).astype("f")
  layer = layers.Norm("batch")
  params = layer.init(jax.random.key(0), x, train=True)["params"]

  def loss(params):
    y = layer.apply({"params": params}, x, train=True)
    return jnp.sum(y**3), y

  grads, y = jax.jit(jax.grad(loss, has_aux=True))(params)
  np.testing.assert_allclose(y, _normalized(x, (0, 1, 2)), rtol=1e-4, atol=1e-4)
  kept = jax.tree.map(jnp.subtract, params, grads)["BatchNorm_0"]
  mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2), ddof=1)
  np.testing.assert_allclose(kept["running_mean"], 0.1 * mean, rtol=1e-5)
  np.testing.assert_allclose(kept["running_var"], 0.9 + 0.1 * var, rtol=1e-5)
  # The gradient of the weights is not changed by it.
  scale = np.sum(3 * y**2 * _normalized(x, (0, 1, 2)), (0, 1, 2))
  np.testing.assert_allclose(
    grads["BatchNorm_0"]["scale"], scale, rtol=1e-3, atol=1e-3
  )

  params["BatchNorm_0"] |= {"running_mean": mean, "running_var": var}
  y = layer.apply({"params": params}, x, train=False)
  expected = (x - mean) / np.sqrt(var + 1e-5)
  np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_untracked_batch_norm_has_no_memory():
  x = np.random.default_rng(0).normal(2, 3, size=(4, 3, 3, 2)).astype("f")
  layer = layers.Norm("batch_untracked")
  variables = layer.init(jax.random.key(0), x, train=True)
  assert set(variables["params"]["BatchNorm_0"]) == {"scale", "bias"}
  expected = _normalized(x, (0, 1, 2))
  for train in (True, False):
    y = layer.apply(variables, x, train=train)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_untracked_are_the_norms_inside_blocks_alone():
  """As in the Delta-SGD paper's program: stem and shortcuts are tracked."""
  model = models.ResNet((1, 1), (8, 16), norm="batch_untracked")
  params = _init(model, (2, 8, 8, 3))
  tracked = {
    path[0].key if path[0].key == "stem_norm" else (path[0].key, path[1].key)
    for path, _ in jax.tree_util.tree_leaves_with_path(params)
    if path[-1].key == "running_var"
  }
  # The first block has no projection. The last of the others' is the shortcut.
  assert tracked == {"stem_norm", ("stages_1_0", "Norm_2")}
  kept = models.ResNet((1, 1), (8, 16), norm="batch")
  assert jax.tree.structure(params) != jax.tree.structure(
    _init(kept, (2, 8, 8, 3))
  )


def test_what_normalization_refuses():
  x = jnp.ones((1, 4, 4, 6))
  with pytest.raises(ValueError, match="num_groups=4: must divide the 6 chan"):
    layers.Norm("group", 4).init(jax.random.key(0), x, train=True)
  with pytest.raises(ValueError, match="norm='layer': must be one of group, "):
    models.resnet20(norm="layer").init(jax.random.key(0), x)


def test_a_shortcut_without_a_projection_subsamples_and_pads():
  """A residual of zero leaves what option A of the paper says."""
  model = models.ResNet((1, 1), (8, 16), projection=False, norm="none")
  x = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
  params = _init(model, x.shape)
  stem = params["stem"]
  params = jax.tree.map(jnp.zeros_like, params) | {"stem": stem}
  of_features = functools.partial(model.apply, method="features")
  features = jax.jit(of_features)({"params": params}, x)
  conv = jax.jit(functools.partial(layers.conv, padding="SAME"))
  image = nn.relu(conv(x, stem["kernel"], stem["bias"]))
  expected = image[:, ::2, ::2].mean((1, 2))
  np.testing.assert_allclose(features[:, :8], expected, rtol=1e-5)
  np.testing.assert_array_equal(features[:, 8:], 0)


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
