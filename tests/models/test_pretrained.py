"""Encoders from folders in Hugging Face's layout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from fedjax_opt.models import Encoder, EncoderConfig, pretrained
from tests import text_models as plain

FAMILIES = ("distilbert", "bert")


def loaded_logits(folder, tokens):
  config, params = pretrained.load(folder, plain.NUM_CLASSES)
  return Encoder(config, plain.NUM_CLASSES).apply({"params": params}, tokens)


@pytest.mark.parametrize("family", FAMILIES)
def test_configuration(tmp_path, family):
  folder = plain.write(tmp_path, family)
  assert pretrained.read_config(str(folder)) == EncoderConfig(
    vocab_size=14,
    hidden=8,
    layers=2,
    heads=2,
    intermediate=12,
    max_positions=10,
    type_vocab=2 if family == "bert" else None,
    layer_norm_eps=1e-6 if family == "bert" else 1e-12,
    dropout=0.1,
    attention_dropout=0.2,
    # BERT gives none here: that of its hidden states.
    head_dropout=0.1 if family == "bert" else 0.3,
  )


@pytest.mark.parametrize("family", FAMILIES)
def test_leaves_are_those_of_the_module(tmp_path, family):
  config, params = pretrained.load(plain.write(tmp_path, family), 4)
  expected = jax.eval_shape(
    Encoder(config, 4).init, jax.random.key(0), jnp.ones((1, 2), jnp.int32)
  )["params"]
  assert jax.tree.structure(params) == jax.tree.structure(expected)
  for leaf, like in zip(
    jax.tree.leaves(params), jax.tree.leaves(expected), strict=True
  ):
    assert leaf.shape == like.shape
    assert leaf.dtype == np.float32


@pytest.mark.parametrize(
  ("family", "kind"),
  [("bert", "prefix"), ("bert", "older"), ("distilbert", "half")],
)
def test_other_names_and_types(tmp_path, family, kind):
  arrays, tokens = plain.leaves(family), plain.tokens(3, 6)
  expected = plain.logits(family, arrays, tokens)
  prefix = f"{family}." if kind == "prefix" else ""
  if kind == "older":
    renamed = lambda name: name.replace(
      "LayerNorm.weight", "LayerNorm.gamma"
    ).replace("LayerNorm.bias", "LayerNorm.beta")
    arrays = {renamed(name): array for name, array in arrays.items()}
  if kind == "half":
    arrays = {name: array.astype("f2") for name, array in arrays.items()}
    expected = plain.logits(family, arrays, tokens)
  folder = plain.write(tmp_path, family, arrays, prefix)
  np.testing.assert_allclose(
    loaded_logits(folder, tokens), expected, rtol=1e-4, atol=1e-5
  )


def test_bfloat16(tmp_path):
  import ml_dtypes

  arrays = {
    name: array.astype(ml_dtypes.bfloat16)
    for name, array in plain.leaves("bert").items()
  }
  tokens = plain.tokens(4)
  folder = plain.write(tmp_path, "bert", arrays)
  np.testing.assert_allclose(
    loaded_logits(folder, tokens),
    plain.logits("bert", arrays, tokens),
    rtol=1e-4,
    atol=1e-5,
  )


@pytest.mark.parametrize(
  "arrays",
  [
    {n: a for n, a in plain.leaves("bert").items() if not plain.is_head(n)},
    plain.leaves("bert", num_classes=2),
    # BERT's own: a classifier without the dense layer before it.
    {
      name: array
      for name, array in plain.leaves("bert").items()
      if not name.startswith("pre_")
    },
  ],
  ids=["no head", "other classes", "another head"],
)
def test_a_head_that_does_not_fit_is_left_out(tmp_path, arrays):
  folder = plain.write(tmp_path, "bert", arrays)
  _, params = pretrained.load(folder, plain.NUM_CLASSES)
  assert set(params) == {"embeddings", "layers_0", "layers_1"}


def test_only_the_encoder(tmp_path):
  _, params = pretrained.load(plain.write(tmp_path, "distilbert"))
  assert "head" not in params


# Mistakes.


def refusal(folder):
  with pytest.raises(ValueError, match=r".") as error:
    pretrained.load(folder, plain.NUM_CLASSES)
  assert "\n" not in str(error.value)
  return str(error.value)


def test_folders_that_are_none(tmp_path):
  absent = tmp_path / "absent"
  assert refusal(absent) == f"{str(absent)!r} must be an existing folder"
  file = plain.write(tmp_path, "bert") / "config.json"
  assert refusal(file) == f"{str(file)!r} must be an existing folder"


def test_bad_configuration_files(tmp_path):
  assert refusal(tmp_path) == f"{tmp_path}: has no config.json"
  file = plain.write(tmp_path, "bert") / "config.json"
  file.write_text("{")
  assert refusal(tmp_path).startswith(f"{file}: is not JSON (Expecting")
  file.write_bytes(b"\xff\xfe{}")
  assert refusal(tmp_path).startswith(f"{file}: is not JSON (")
  file.write_text("[]")
  assert refusal(tmp_path) == f"{file}: must be a JSON object"
  file.write_text('{"model_type": "bert"}')
  assert refusal(tmp_path) == f"{file}: has no vocab_size"


@pytest.mark.parametrize(
  ("entries", "message"),
  [
    (
      {"model_type": "gpt2"},
      "model_type is 'gpt2'; must be one of distilbert, bert",
    ),
    (
      {"model_type": ["bert"]},
      "model_type is ['bert']; must be one of distilbert, bert",
    ),
    ({"vocab_size": None}, "has no vocab_size"),
    (
      {"num_attention_heads": 3},
      "num_attention_heads=3: must divide hidden=8",
    ),
    (
      {"hidden_act": "silu"},
      "hidden_act='silu': must be one of gelu, gelu_new, relu",
    ),
    (
      {"hidden_dropout_prob": 2},
      "hidden_dropout_prob=2: must be in [0, 1)",
    ),
    (
      {"num_hidden_layers": "2"},
      "num_hidden_layers='2': must be a whole number",
    ),
    (
      {"position_embedding_type": "relative_key"},
      "position_embedding_type is 'relative_key'; must be absolute",
    ),
  ],
)
def test_bad_entries_of_the_configuration(tmp_path, entries, message):
  folder = plain.write(tmp_path, "bert", **entries)
  file = folder / "config.json"
  assert refusal(folder) == f"{file}: {message}"


def test_bad_weights(tmp_path):
  folder = plain.write(tmp_path, "bert")
  file = folder / "model.safetensors"
  name = "encoder.layer.1.output.dense.weight"
  arrays = plain.leaves("bert")
  save_file({n: a for n, a in arrays.items() if n != name}, file)
  assert refusal(folder) == f"{file}: has no bert.{name}"
  save_file(arrays | {name: np.zeros((8, 8), "f")}, file)
  assert refusal(folder) == (
    f"{file}: {name} has shape [8, 8]; must be [8, 12], as config.json says"
  )
  save_file(arrays | {name: np.zeros((8, 12), np.int8)}, file)
  assert refusal(folder) == (
    f"{file}: {name} is I8; must be one of F32, F16, BF16"
  )
  file.write_bytes(b"not a safetensors file")
  assert refusal(folder).startswith(f"{file}: is not a safetensors file (")
  file.unlink()
  assert refusal(folder).startswith(f"{folder}: has no model.safetensors")


def test_another_vocabulary_size(tmp_path):
  folder = plain.write(tmp_path, "distilbert", vocab_size=99)
  assert refusal(folder) == (
    f"{folder}/model.safetensors: embeddings.word_embeddings.weight has shape "
    "[14, 8]; must be [99, 8], as config.json says"
  )


def test_folders_may_be_below_the_home(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path))
  plain.write(tmp_path / "model", "bert")
  assert pretrained.read_config("~/model").hidden == 8
