"""Encoders from folders in Hugging Face's layout.

That their logits are those of the checkpoints is tested in test_encoder.py.
"""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from fedjax_opt.models import Encoder, EncoderConfig, pretrained
from tests import text_models as plain
from tests.refusals import refusal

FAMILIES = ("distilbert", "bert")


@pytest.mark.parametrize("family", FAMILIES)
def test_configuration(tmp_path, family):
  folder = plain.write(tmp_path, family)
  is_bert = family == "bert"
  assert pretrained.read_config(str(folder)) == EncoderConfig(
    vocab_size=14,
    hidden=8,
    layers=2,
    heads=2,
    intermediate=12,
    max_positions=10,
    type_vocab=2 if is_bert else None,
    layer_norm_eps=1e-6 if is_bert else 1e-12,
    dropout=0.1,
    attention_dropout=0.2,
    # BERT gives none here: that of its hidden states.
    head_dropout=0.1 if is_bert else 0.3,
  )


@pytest.mark.parametrize("family", FAMILIES)
def test_leaves_are_those_of_the_module(tmp_path, family):
  config, params = pretrained.load(plain.write(tmp_path, family), 4)
  expected = jax.eval_shape(
    Encoder(config, 4).init, jax.random.key(0), jnp.ones((1, 2), jnp.int32)
  )["params"]
  form = lambda leaf: (leaf.shape, leaf.dtype)
  assert jax.tree.map(form, params) == jax.tree.map(form, expected)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["prefix", "older", "f2", "bfloat16"])
def test_other_names_and_types(tmp_path, family, kind):
  arrays, dtype, prefix = plain.leaves(family), "f4", ""
  if kind == "prefix":
    prefix = f"{family}."
  elif kind == "older":
    renamed = lambda name: name.replace(
      "LayerNorm.weight", "LayerNorm.gamma"
    ).replace("LayerNorm.bias", "LayerNorm.beta")
    arrays = {renamed(name): array for name, array in arrays.items()}
  else:
    dtype = ml_dtypes.bfloat16 if kind == "bfloat16" else kind
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
  read = lambda name, *of: pretrained.load(
    plain.write(tmp_path / name, family, *of), plain.NUM_CLASSES
  )
  config, params = read("plain")
  expected = jax.tree.map(lambda leaf: leaf.astype(dtype).astype("f4"), params)
  found = read("other", arrays, prefix)
  assert found.config == config
  jax.tree.map(np.testing.assert_array_equal, found.params, expected)


# BERT's own has a classifier without the dense layer before it.
@pytest.mark.parametrize("lacking", ["pre_", ("pre_", "classifier"), ()])
def test_a_head_that_does_not_fit_is_left_out(tmp_path, lacking):
  number = plain.NUM_CLASSES if lacking else 2
  arrays = plain.leaves("bert", num_classes=number)
  kept = {n: a for n, a in arrays.items() if not n.startswith(lacking)}
  folder = plain.write(tmp_path, "bert", kept)
  for num_classes in (plain.NUM_CLASSES, None):  # None is the encoder alone.
    _, params = pretrained.load(folder, num_classes)
    assert set(params) == {"embeddings", "layers_0", "layers_1"}


# Mistakes.


def refused(folder):
  return refusal(pretrained.load, folder, plain.NUM_CLASSES)


def test_folders_that_are_none(tmp_path):
  file = plain.write(tmp_path, "bert") / "config.json"
  for path in (tmp_path / "absent", file):
    assert refused(path) == f"{str(path)!r} must be an existing folder"


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (None, "cannot be read (No such file or directory); must be a JSON object"),
    (b"{", "cannot be read (Expecting"),
    (b"\xff\xfe{}", "cannot be read ("),
    (b"[]", "cannot be read (it is no JSON object); must be a JSON object"),
    (b'{"model_type": "bert"}', "has no vocab_size"),
  ],
)
def test_bad_configuration_files(tmp_path, content, message):
  file = plain.write(tmp_path, "bert") / "config.json"
  file.unlink() if content is None else file.write_bytes(content)
  assert refused(tmp_path).startswith(f"{file}: {message}")


BAD = {
  "model_type is 'gpt2'; must be one of distilbert, bert": "gpt2",
  "model_type is ['bert']; must be one of distilbert, bert": ["bert"],
  "has no vocab_size": None,
  "num_attention_heads=3: must divide hidden=8": 3,
  "hidden_act='silu': must be one of gelu, gelu_new, relu": "silu",
  "hidden_dropout_prob=2: must be in [0, 1)": 2,
  "num_hidden_layers='2': must be a whole number": "2",
  "position_embedding_type is 'relative'; must be one of absolute": "relative",
}


@pytest.mark.parametrize("message", BAD)
def test_bad_entries_of_the_configuration(tmp_path, message):
  key = message.removeprefix("has no ").partition(" ")[0].partition("=")[0]
  folder = plain.write(tmp_path, "bert", **{key: BAD[message]})
  assert refused(folder) == f"{folder / 'config.json'}: {message}"


def test_bad_weights(tmp_path):
  folder = plain.write(tmp_path, "bert")
  file, arrays = folder / "model.safetensors", plain.leaves("bert")
  name = "encoder.layer.1.output.dense.weight"
  save_file({n: a for n, a in arrays.items() if n != name}, file)
  assert refused(folder) == f"{file}: has no bert.{name}"
  for array, message in (
    (np.zeros((8, 8), "f"), "has shape [8, 8]; must be [8, 12], as config"),
    (np.zeros((8, 12), np.int8), "is int8; must be one of float32, float16, "),
  ):
    save_file(arrays | {name: array}, file)
    assert refused(folder).startswith(f"{file}: {name} {message}")
  file.write_bytes(b"not a safetensors file")
  assert refused(folder).startswith(f"{file}: cannot be read (")
  file.unlink()
  assert refused(folder).startswith(f"{folder}: has no model.safetensors")


def test_folders_may_be_below_the_home(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path))
  plain.write(tmp_path / "model", "bert")
  assert pretrained.load("~/model").config.hidden == 8
