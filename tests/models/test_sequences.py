"""Models of sequences of tokens: LSTM and decoder."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import models

MODELS = {
  "lstm": models.LSTM(11, embedding_size=3, hidden=(5, 4)),
  "decoder": models.Decoder(
    11, max_length=9, width=8, num_blocks=2, num_heads=2
  ),
}
X = np.random.default_rng(0).integers(0, 11, size=(3, 9))


def drawn(module):
  """Parameters of a model, all of them random."""
  shapes = jax.eval_shape(module.init, jax.random.key(0), X)["params"]
  rng = np.random.default_rng(1)
  draw = lambda leaf: rng.normal(size=leaf.shape).astype(np.float32)
  return jax.tree.map(draw, shapes)


@pytest.fixture(scope="module", params=MODELS)
def model(request):
  module = MODELS[request.param]
  return module, drawn(module)


def test_shapes_and_dtypes(model):
  module, params = model
  half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
  of = lambda params, **how: jax.eval_shape(
    functools.partial(module.apply, **how), {"params": params}, X
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
  np.testing.assert_allclose(apply(X[:, :4]), logits[:, :4], rtol=2e-5)


def test_sizes():
  sizes = {}
  for module in (models.LSTM(66), models.Decoder(66)):
    x = jnp.zeros((1, 80), int)
    params = jax.eval_shape(module.init, jax.random.key(0), x)
    sizes[type(module).__name__] = sum(x.size for x in jax.tree.leaves(params))
  # As the docstrings say.
  assert sizes == {"LSTM": 814_162, "Decoder": 820_546}


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def test_lstm_is_that_of_its_equations():
  module = MODELS["lstm"]
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
  found = jax.jit(of_features)({"params": params}, X)
  np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-5)


def test_a_sequence_that_is_too_long():
  module = MODELS["decoder"]
  with pytest.raises(ValueError, match=r"10 tokens; must.* max_length=9(\n|$)"):
    module.init(jax.random.key(0), jnp.zeros((1, 10), int))
