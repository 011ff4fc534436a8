"""The encoder against plain NumPy, and what the models' contract says of it."""

import dataclasses
import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt.engine.precision import computed_loss
from fedjax_opt.models import Encoder, EncoderConfig, pretrained
from tests import text_models as plain

SMALL = EncoderConfig(
  vocab_size=20, hidden=8, layers=2, heads=2, intermediate=12, max_positions=6
)


@pytest.fixture
def load(tmp_path):
  """`family -> (model, params)`, from a folder written for the test."""

  def load(family):
    folder = plain.write(tmp_path / family, family)
    config, params = pretrained.load(folder, plain.NUM_CLASSES)
    return Encoder(config, plain.NUM_CLASSES), jax.tree.map(jnp.asarray, params)

  return load


@functools.cache
def drawn(config=SMALL, num_classes=3):
  model = Encoder(config, num_classes)
  tokens = jnp.ones((1, 2), jnp.int32)
  return model, jax.jit(model.init)(jax.random.key(0), tokens)["params"]


@pytest.mark.parametrize(
  ("family", "tokens"),
  [
    ("distilbert", plain.tokens(10)),
    ("distilbert", plain.tokens(2, 3, width=7)),
    ("bert", plain.tokens(1, 4, 9, 6)),
  ],
  ids=["longest", "padded", "lengths"],
)
def test_logits_are_those_of_numpy(load, family, tokens):
  model, params = load(family)
  arrays = plain.leaves(family)
  np.testing.assert_allclose(
    jax.jit(model.apply)({"params": params}, tokens),
    plain.logits(family, arrays, tokens),
    rtol=1e-4,
    atol=1e-5,
  )


def test_hidden_states_are_those_of_numpy(load):
  family = "bert"
  model, params = load(family)
  tokens = plain.tokens(5, 8, 2)
  expected = plain.hidden_states(family, plain.leaves(family), tokens)

  def encode(**options):
    apply = functools.partial(model.apply, method="encode", **options)
    return jax.jit(apply)({"params": params}, tokens)

  np.testing.assert_allclose(encode(), expected, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
    encode(last=2), expected[:, :2], rtol=1e-4, atol=1e-5
  )


def test_gradients_do_not_depend_on_padding(load):
  model, params = load("bert")

  def gradients(tokens):
    loss = lambda params: model.apply({"params": params}, tokens)[:, 0].sum()
    return jax.jit(jax.grad(loss))(params)

  short = gradients(plain.tokens(4, 4))
  wide = gradients(np.pad(plain.tokens(4, 4), ((0, 0), (0, 5))))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
    short,
    wide,
  )


def test_a_row_of_padding_alone_is_finite():
  model, params = drawn()
  logits = jax.jit(model.apply)({"params": params}, jnp.zeros((1, 4)))
  assert jnp.isfinite(logits).all()


def test_the_pad_token_is_that_of_the_configuration():
  model = Encoder(dataclasses.replace(SMALL, pad_id=7), 3)
  params = jax.tree.map(lambda leaf: 20 * leaf, drawn()[1])
  apply = lambda *tokens: jax.jit(model.apply)(
    {"params": params}, jnp.array([tokens])
  )
  np.testing.assert_allclose(apply(1, 2), apply(1, 2, 7, 7), atol=1e-6)
  assert not np.allclose(apply(1, 2), apply(1, 2, 0, 0), atol=1e-4)


@pytest.mark.parametrize(
  ("config", "number"),
  [
    # Those of the published checkpoints, with two classes.
    (EncoderConfig(), 66_955_010),
    (EncoderConfig(layers=12, type_vocab=2), 109_483_778),
  ],
)
def test_number_of_parameters(config, number):
  shapes = jax.eval_shape(
    Encoder(config).init, jax.random.key(0), jnp.ones((1, 2), jnp.int32)
  )
  assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == number


def test_random_start():
  config = dataclasses.replace(SMALL, vocab_size=2000, hidden=32)
  _, params = drawn(config)
  for leaf in (
    params["embeddings"]["word"],
    params["layers_1"]["attention"]["query"]["kernel"],
    params["head"]["output"]["kernel"],
  ):
    assert leaf.std() == pytest.approx(0.02, rel=0.3)
    assert jnp.abs(leaf.mean()) < 0.01
  norm, dense = params["embeddings"]["norm"], params["head"]["dense"]
  assert (norm["scale"] == 1).all()
  assert not norm["bias"].any()
  assert not dense["bias"].any()


def test_features_are_what_the_last_layer_maps():
  model, params = drawn()
  tokens = jnp.array([[1, 2, 3], [4, 5, 0]])
  of_features = functools.partial(model.apply, method="features")
  features = jax.jit(of_features)({"params": params}, tokens)
  assert features.shape == (2, 8)
  assert (features >= 0).all()
  output = params["head"]["output"]
  np.testing.assert_allclose(
    features @ output["kernel"] + output["bias"],
    jax.jit(model.apply)({"params": params}, tokens),
    rtol=1e-5,
  )


@pytest.mark.parametrize(
  "rate", ["dropout", "attention_dropout", "head_dropout"]
)
def test_each_dropout_acts_in_training_only(rate):
  rates = dict.fromkeys(("dropout", "attention_dropout", "head_dropout"), 0.0)
  model = Encoder(dataclasses.replace(SMALL, **rates | {rate: 0.5}), 3)
  params = jax.tree.map(lambda leaf: 20 * leaf, drawn()[1])
  tokens = jnp.array([[1, 2, 3, 4]])

  @jax.jit
  def train(key):
    variables = {"params": params}
    return model.apply(variables, tokens, train=True, rngs={"dropout": key})

  one, again, other = (train(jax.random.key(seed)) for seed in (0, 0, 1))
  np.testing.assert_array_equal(one, again)
  assert not np.allclose(one, other, atol=1e-3)
  still = Encoder(dataclasses.replace(SMALL, **rates), 3)
  in_training = functools.partial(still.apply, train=True)
  np.testing.assert_allclose(
    jax.jit(model.apply)({"params": params}, tokens),
    jax.jit(in_training)({"params": params}, tokens),
    rtol=1e-6,
  )


# Precision.


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_products_are_in_the_dtype_of_the_parameters(dtype):
  model, params = drawn()
  params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
  tokens = jnp.array([[1, 2, 3]])
  run = lambda params: model.apply({"params": params}, tokens)
  jaxpr = jax.make_jaxpr(run)(params)
  kinds = {"dot_general": set(), "exp": set(), "rsqrt": set(), "erfc": set()}

  def walk(jaxpr):
    for eqn in jaxpr.eqns:
      if eqn.primitive.name in kinds:
        kinds[eqn.primitive.name] |= {str(v.aval.dtype) for v in eqn.invars}
      for inner in jax.extend.core.jaxprs_in_params(eqn.params):
        walk(inner)

  walk(jaxpr.jaxpr)
  assert kinds["dot_general"] == {dtype}
  assert kinds["exp"] == kinds["rsqrt"] == {"float32"}
  assert jax.eval_shape(run, params).dtype == jnp.float32
  encode = functools.partial(model.apply, method="encode")
  states = jax.eval_shape(encode, {"params": params}, tokens)
  assert states.dtype == dtype


def test_mixed_precision_is_close_and_tokens_are_not_rounded():
  # 259 is no number of bfloat16.
  model, params = drawn(dataclasses.replace(SMALL, vocab_size=300))
  params = jax.tree.map(lambda leaf: 5 * leaf, params)
  batch = {"x": jnp.array([[259, 2, 3]]), "y": jnp.array([1])}

  def loss_fn(params, batch, rng):
    del rng
    return model.apply({"params": params}, batch["x"])[:, 1] ** 2

  mixed = computed_loss("mixed", loss_fn)
  key = jax.random.key(0)
  of = lambda fn: jax.jit(
    jax.value_and_grad(lambda p: fn(p, batch, key).sum())
  )(params)
  (loss, exact), (rounded_loss, rounded) = of(loss_fn), of(mixed)
  assert all(leaf.dtype == "float32" for leaf in jax.tree.leaves(rounded))
  np.testing.assert_allclose(rounded_loss, loss, rtol=0.1, atol=1e-4)
  used = lambda tree: set(np.flatnonzero(tree["embeddings"]["word"].any(1)))
  assert used(exact) == used(rounded) == {259, 2, 3}


# Mistakes.


def test_sequences_that_are_too_long():
  model, params = drawn()
  with pytest.raises(
    ValueError, match=r"tokens: 7 in a sequence; must be at most max_posi.*=6"
  ):
    model.apply({"params": params}, jnp.ones((1, 7), jnp.int32))


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"heads": 5}, "heads=5: must divide hidden=768"),
    ({"layers": 0}, "layers=0: must be at least 1"),
    ({"hidden": 7.0}, r"hidden=7\.0: must be a whole number"),
    ({"type_vocab": 0}, "type_vocab=0: must be at least 1"),
    ({"dropout": 1.0}, r"dropout=1: must be in \[0, 1\)"),
    ({"head_dropout": "a"}, "head_dropout='a': must be a number"),
    ({"layer_norm_eps": -1}, r"layer_norm_eps=-1: must be in \[0, 1\)"),
    ({"pad_id": 30522}, r"pad_id=30522: must be a token in \[0, 30522\)"),
    (
      {"activation": "gelo"},
      "activation='gelo': must be one of gelu, gelu_new, relu; did you mean ge",
    ),
  ],
)
def test_configurations_that_cannot_be(fields, message):
  with pytest.raises((ValueError, TypeError), match=message) as error:
    EncoderConfig(**fields)
  assert "\n" not in str(error.value)
