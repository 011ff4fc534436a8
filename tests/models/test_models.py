"""The models' contract, and the CNN against its definition in lax."""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_opt import models
from fedjax_opt.models import convolution, layers
from tests.helpers import refusals

# Model, input shape, width of the features, parameters; for CIFAR-10 with the
# counts that are commonly given.
IMAGE = (2, 32, 32, 3)
MODELS = {
  "linear": (models.LinearModel(3), (2, 4, 4, 1), 16, 51),
  "one target": (models.LinearModel(1, use_bias=False), (2, 7), 7, 7),
  "mlp": (models.MLP((100,), 10, nn.softplus), IMAGE, 100, 308_310),
  "cnn": (models.CNN(), (2, 28, 28, 1), 50, 21_840),
  "padded": (
    models.CNN(kernel_size=3, padding="SAME"),
    (2, 8, 8, 1),
    50,
    6_480,
  ),
  "vgg16": (models.VGG(), IMAGE, 512, 14_719_818),
  "resnet20": (models.resnet20(), IMAGE, 64, 269_722),
  "resnet56": (models.resnet56(), IMAGE, 64, 853_018),
  "resnet18": (models.resnet18(), IMAGE, 512, 11_173_962),
  "resnet50": (models.resnet50(), IMAGE, 2048, 23_520_842),
  # 4 numbers a channel instead of 2, then none and a bias.
  "batch": (models.resnet20(norm="batch"), IMAGE, 64, 269_722 + 2 * 688),
  "none": (models.resnet20(norm="none"), IMAGE, 64, 269_722 - 688),
}


def _init(model, shape):
  return jax.jit(model.init)(jax.random.key(0), jnp.ones(shape))["params"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow_cases("resnet18", "resnet50", "resnet56", "none")
@pytest.mark.quick_cases("linear", "one target", "mlp", "cnn", "padded")
def test_shapes_and_parameters(name):
  model, shape, width, parameters = MODELS[name]
  init = jax.eval_shape(model.init, jax.random.key(0), jnp.ones(shape))
  params = init["params"]
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == parameters
  with jax.enable_x64(True):
    wide = jax.eval_shape(model.init, jax.random.key(0), jnp.ones(shape))
  assert {leaf.dtype for leaf in jax.tree.leaves(wide)} == {np.dtype("float32")}
  assert params["output"]["kernel"].shape[0] == width


@pytest.mark.parametrize(
  ("model", "shape"),
  [
    (models.MLP((8, 6), 4), (2, 5)),
    (models.CNN(channels=(4, 6), strided=True), (2, 16, 16, 3)),
  ],
)
def test_the_output_layer_acts_on_the_features(model, shape):
  x = jax.random.normal(jax.random.key(1), shape)
  params = _init(model, shape)
  apply = functools.partial(model.apply, {"params": params}, x)
  in_training = {"train": True, "rngs": {"dropout": jax.random.key(1)}}
  features, logits, trained = jax.jit(
    lambda: (apply(method="features"), apply(), apply(**in_training))
  )()
  output = params["output"]
  expected = features @ output["kernel"] + output["bias"]
  np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
  assert trained.shape == logits.shape


@pytest.mark.parametrize(
  ("layer", "shape", "of_kernel", "of_bias"),
  [
    (layers.Dense(50), (1, 320), 320**-0.5, 320**-0.5),
    (layers.Conv(8, (5, 5)), (1, 6, 6, 3), 75**-0.5, 75**-0.5),
    (
      layers.Conv(8, (5, 5), initialization=layers.glorot_uniform),
      (1, 6, 6, 3),
      (6 / (75 + 200)) ** 0.5,
      0.0,
    ),
  ],
)
def test_initial_laws(layer, shape, of_kernel, of_bias):
  params = _init(layer, shape)
  assert params["kernel"].shape[-2:] == (shape[-1], layer.features)
  assert params["bias"].shape == (layer.features,)
  largest = {name: float(jnp.abs(leaf).max()) for name, leaf in params.items()}
  assert 0.98 * of_kernel < largest["kernel"] <= of_kernel
  assert 0.5 * of_bias <= largest["bias"] <= of_bias


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


BATCH = np.random.default_rng(0).normal(2, 3, size=(4, 3, 3, 2)).astype("f")
OF_BATCH = _normalized(BATCH, (0, 1, 2))
close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)


def test_batch_norm_normalizes_by_the_batch_and_then_by_what_it_kept():
  layer = layers.Norm("batch")
  params = layer.init(jax.random.key(0), BATCH, train=True)["params"]

  def loss(params):
    y = layer.apply({"params": params}, BATCH, train=True)
    return jnp.sum(y**3), y

  grads, y = jax.jit(jax.grad(loss, has_aux=True))(params)
  close(y, OF_BATCH)
  statistics = jax.tree.map(jnp.subtract, params, grads)["BatchNorm_0"]
  mean, var = BATCH.mean((0, 1, 2)), BATCH.var((0, 1, 2), ddof=1)
  close(statistics["running_mean"], 0.1 * mean)
  close(statistics["running_var"], 0.9 + 0.1 * var)
  # The gradient of the weights is not changed by it.
  scale = np.sum(3 * y**2 * OF_BATCH, (0, 1, 2))
  np.testing.assert_allclose(
    grads["BatchNorm_0"]["scale"], scale, rtol=1e-3, atol=1e-3
  )

  params["BatchNorm_0"] |= {"running_mean": mean, "running_var": var}
  y = layer.apply({"params": params}, BATCH, train=False)
  close(y, (BATCH - mean) / np.sqrt(var + 1e-5))


def test_untracked_batch_norm_has_no_memory():
  layer = layers.Norm("batch_untracked")
  variables = layer.init(jax.random.key(0), BATCH, train=True)
  assert set(variables["params"]["BatchNorm_0"]) == {"scale", "bias"}
  for train in (True, False):
    close(layer.apply(variables, BATCH, train=train), OF_BATCH)


def test_untracked_are_the_norms_inside_blocks_alone():
  """As in the Delta-SGD paper's program: stem and shortcuts are tracked."""
  model = models.ResNet((1, 1), (8, 16), norm="batch_untracked")
  params = jax.eval_shape(
    model.init, jax.random.key(0), jnp.ones((2, 8, 8, 3))
  )["params"]
  tracked = {
    tuple(key.key for key in path[: -2 if len(path) > 3 else 1])
    for path, _ in jax.tree_util.tree_leaves_with_path(params)
    if path[-1].key == "running_var"
  }
  # The first block has no projection. The last of the others' is the shortcut.
  assert tracked == {("stem_norm",), ("stages_1_0", "Norm_2")}


def test_a_shortcut_without_a_projection_subsamples_and_pads():
  """A residual of zero leaves what option A of the paper says."""
  model = models.ResNet((1, 1), (8, 16), projection=False, norm="none")
  x = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
  params = _init(model, x.shape)
  stem = params["stem"]
  params = jax.tree.map(jnp.zeros_like, params) | {"stem": stem}
  of_features = functools.partial(model.apply, method="features")
  features = jax.jit(of_features)({"params": params}, x)
  conv = jax.jit(functools.partial(convolution.conv, padding="SAME"))
  image = nn.relu(conv(x, stem["kernel"], stem["bias"]))
  expected = image[:, ::2, ::2].mean((1, 2))
  np.testing.assert_allclose(features[:, :8], expected, rtol=1e-5)
  np.testing.assert_array_equal(features[:, 8:], 0)


def _plain_cnn(params, x):
  """The paper's network, dropout off, in nothing but lax."""
  window, dimensions = (1, 2, 2, 1), ("NHWC", "HWIO", "NHWC")
  for name in ("convs_0", "convs_1"):
    x = lax.conv_general_dilated(
      x, params[name]["kernel"], (1, 1), "VALID", dimension_numbers=dimensions
    )
    x = x + params[name]["bias"]
    x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
    x = jax.nn.relu(x)
  x = x.reshape(len(x), -1)
  hidden, output = params["hidden_layer"], params["output"]
  x = jax.nn.relu(x @ hidden["kernel"] + hidden["bias"])
  return x @ output["kernel"] + output["bias"]


@pytest.mark.slow
def test_cnn_equals_its_definition():
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(16, 28, 28, 1)), jnp.float32)
  y = jnp.asarray(rng.integers(0, 10, 16))
  params = _init(models.CNN(), x.shape)

  @functools.partial(jax.jit, static_argnums=0)
  def evaluated(forward):
    def loss(params, x):
      logits = forward(params, x)
      log_probs = jax.nn.log_softmax(logits)
      return -jnp.take_along_axis(log_probs, y[:, None], 1).mean(), logits

    return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, x)

  expected = evaluated(_plain_cnn)
  for name in ("matmul", "lax"):
    model = models.CNN(implementation=name)
    actual = evaluated(lambda p, x, m=model: m.apply({"params": p}, x))
    chex.assert_trees_all_close(actual, expected, rtol=1e-5, atol=3e-5)


@pytest.mark.slow
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

  outputs, dropped = np.asarray(flat(False, 0)), np.asarray(flat(True, 0))
  mask = (dropped != 0).any(axis=1)
  assert 0 < mask.sum() < mask.size
  np.testing.assert_allclose(dropped, 2 * outputs * mask[:, None], rtol=1e-6)
  assert (flat(True, 1) != dropped).any()
  np.testing.assert_array_equal(flat(False, 1), outputs)


# Models of sequences of tokens: LSTM and decoder.


OF_SEQUENCES = {
  "lstm": models.LSTM(11, embedding_size=3, hidden=(5, 4)),
  "decoder": models.Decoder(
    11, max_length=9, width=8, num_blocks=2, num_heads=2
  ),
  "llama": models.Llama(
    11, width=8, intermediate=12, num_blocks=2, num_heads=2, num_kv_heads=1
  ),
}
BERT = models.EncoderConfig(layers=12, type_vocab=2)
X = np.random.default_rng(0).integers(0, 11, size=(3, 9))


def drawn(module):
  """Parameters of a model, all of them random."""
  shapes = jax.eval_shape(module.init, jax.random.key(0), X)["params"]
  rng = np.random.default_rng(1)
  draw = lambda leaf: rng.normal(size=leaf.shape).astype(np.float32)
  return jax.tree.map(draw, shapes)


@pytest.fixture(scope="module", params=OF_SEQUENCES)
def model(request):
  module = OF_SEQUENCES[request.param]
  return module, drawn(module)


def test_shapes_and_dtypes(model):
  module, params = model
  half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
  of = lambda params, **options: jax.eval_shape(
    functools.partial(module.apply, **options), {"params": params}, X
  )
  assert of(params).shape == (3, 9, 11)
  assert of(params, method="features").shape[:2] == (3, 9)
  assert of(half).dtype == jnp.float32
  assert of(half, method="features").dtype == jnp.bfloat16


def test_a_prediction_depends_on_what_came_before_alone(model):
  module, params = model
  apply = jax.jit(lambda x: module.apply({"params": params}, x))
  logits, later = apply(X), X.copy()
  later[:, 5] = (X[:, 5] + 1) % 11
  changed = apply(later)
  np.testing.assert_allclose(changed[:, :5], logits[:, :5], rtol=1e-6)
  assert (np.abs(changed[:, 5:] - logits[:, 5:]).max(axis=(0, 2)) > 1e-4).all()
  # A shorter sequence has the same start.
  np.testing.assert_allclose(
    apply(X[:, :4]), logits[:, :4], rtol=2e-5, atol=2e-6
  )


@pytest.mark.parametrize(
  ("model", "number"),
  [
    # As the docstrings say.
    (models.LSTM(66), 814_162),
    (models.Decoder(66), 820_546),
    # Those of the published checkpoints, with two classes.
    (models.Encoder(models.EncoderConfig()), 66_955_010),
    (models.Encoder(BERT), 109_483_778),
  ],
)
def test_sizes_of_models_of_tokens(model, number):
  params = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 80), int))
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == number


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def test_lstm_is_that_of_its_equations():
  module = OF_SEQUENCES["lstm"]
  params = drawn(module)
  x = params["embedding"]["embedding"][X]
  for i, width in enumerate((5, 4)):
    cell = params[f"layers_{i}"]["cell"]
    h = c = np.zeros((3, width))
    outputs = []
    for t in range(9):
      gates = {
        g: x[:, t] @ cell[f"i{g}"]["kernel"]
        + h @ cell[f"h{g}"]["kernel"]
        + cell[f"h{g}"]["bias"]
        for g in "ifgo"
      }
      c = sigmoid(gates["f"]) * c + sigmoid(gates["i"]) * np.tanh(gates["g"])
      h = sigmoid(gates["o"]) * np.tanh(c)
      outputs.append(h)
    x = np.stack(outputs, axis=1)
  of_features = functools.partial(module.apply, method="features")
  features = jax.jit(of_features)({"params": params}, X)
  np.testing.assert_allclose(features, x, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_blocks_that_are_computed_again_have_the_same_gradients():
  module = OF_SEQUENCES["decoder"]
  params, remade = drawn(module), module.clone(remat=True)
  loss = lambda params, module: jnp.mean(module.apply({"params": params}, X))
  grads, expected = (
    jax.jit(functools.partial(jax.grad(loss), module=variant))(params)
    for variant in (remade, module)
  )
  chex.assert_trees_all_close(grads, expected, rtol=1e-6, atol=1e-6)
  traced = jax.make_jaxpr(jax.grad(functools.partial(loss, module=remade)))
  assert str(traced(params)).count("remat") >= module.num_blocks


def init(model, *inputs, **options):
  jax.eval_shape(lambda: model.init(jax.random.key(0), *inputs, **options))


test_is_refused = refusals.of_table("models.txt", models, layers, init, X=X)
