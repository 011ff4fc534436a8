"""The encoder against plain NumPy, and what the models' contract says of it."""

import dataclasses
import functools
import json

import jax
import jax.extend
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from fedjax_opt import lora
from fedjax_opt.checks import memory
from fedjax_opt.models import Encoder, EncoderConfig, pretrained
from tests.helpers import text_models as plain
from tests.helpers.refusals import refusal
from tests.helpers.tables_of_calls import read_cases

SMALL = EncoderConfig(
  vocab_size=300, hidden=8, layers=2, heads=2, intermediate=12, max_positions=6
)
MODEL = Encoder(SMALL, 3)
TOKENS = jnp.array([[1, 2, 3, 4], [5, 6, 0, 0], [0, 0, 0, 0]])


@pytest.fixture(scope="module")
def params():
  return jax.jit(MODEL.init)(jax.random.key(0), TOKENS)["params"]


@pytest.fixture
def load(tmp_path):
  """`family -> (model, params)`, from a folder written for the test."""

  def load(family):
    folder = plain.write(tmp_path / family, family)
    config, params = pretrained.load(folder, plain.NUM_CLASSES)
    return Encoder(config, plain.NUM_CLASSES), jax.tree.map(jnp.asarray, params)

  return load


close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  ("family", "tokens"),
  [
    ("distilbert", plain.tokens(2, 3, width=7)),
    ("bert", plain.tokens(1, 4, 10, 6)),
  ],
)
def test_logits_and_hidden_states_are_those_of_numpy(load, family, tokens):
  model, params = load(family)
  apply = functools.partial(model.apply, {"params": params}, tokens)
  logits, states, first = jax.jit(
    lambda: (apply(), apply(method="encode"), apply(method="encode", last=2))
  )()
  arrays = plain.leaves(family)
  close(logits, plain.logits(family, arrays, tokens))
  expected = plain.hidden_states(family, arrays, tokens)
  close(states, expected)
  close(first, expected[:, :2])


@pytest.mark.slow
def test_gradients_do_not_depend_on_padding(load):
  model, params = load("bert")
  short = plain.tokens(4, 4)
  wide = np.pad(short, ((0, 0), (0, 5)))

  @jax.jit
  def gradients(params):
    loss = lambda params, x: model.apply({"params": params}, x)[:, 0].sum()
    return [jax.grad(loss)(params, tokens) for tokens in (short, wide)]

  jax.tree.map(close, *gradients(params))


@pytest.mark.slow
def test_the_pad_token_is_that_of_the_configuration(params):
  encoder_7 = Encoder(dataclasses.replace(SMALL, pad_id=7), 3)
  params = jax.tree.map(lambda leaf: 20 * leaf, params)
  sevens = jnp.where(TOKENS == 0, 7, TOKENS)[:2]
  inputs = ((MODEL, TOKENS[:2]), (encoder_7, sevens), (encoder_7, TOKENS[:2]))
  apply = lambda params: [m.apply({"params": params}, x) for m, x in inputs]
  expected, actual, unmasked = jax.jit(apply)(params)
  close(actual, expected)
  assert not np.allclose(unmasked[1], expected[1], atol=1e-4)


def test_random_start(params):
  for leaf in (
    params["embeddings"]["word"],
    params["layers_1"]["attention"]["query"]["kernel"],
    params["layers_0"]["output"]["kernel"],
  ):
    assert leaf.std() == pytest.approx(0.02, rel=0.3)
    assert jnp.abs(leaf.mean()) < 0.01
  norm, dense = params["embeddings"]["norm"], params["head"]["dense"]
  assert (norm["scale"] == 1).all()
  assert not norm["bias"].any()
  assert not dense["bias"].any()


def test_features_are_what_the_last_layer_maps(params):
  """Also of a row of padding alone, whose numbers are finite."""
  apply = functools.partial(MODEL.apply, {"params": params}, TOKENS)
  features, logits = jax.jit(lambda: (apply(method="features"), apply()))()
  assert features.shape == (3, 8)
  assert (features >= 0).all()
  assert jnp.isfinite(logits).all()
  output = params["head"]["output"]
  expected = features @ output["kernel"] + output["bias"]
  np.testing.assert_allclose(logits, expected, rtol=1e-5)


RATES = dict.fromkeys(("dropout", "attention_dropout", "head_dropout"), 0.0)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.default_cases("attention_dropout")
def test_each_dropout_acts_in_training_only(params, rate):
  config = dataclasses.replace(SMALL, layers=1, **RATES | {rate: 0.5})
  encoder = Encoder(dataclasses.replace(config, **RATES), 3)
  params = jax.tree.map(lambda leaf: 20 * leaf, params)
  del params["layers_1"]

  @jax.jit
  def run(key):
    of = lambda model, **options: model.apply(
      {"params": params}, TOKENS[:1], **options
    )
    model = Encoder(config, 3)
    trained = of(model, train=True, rngs={"dropout": key})
    return trained, of(model), of(encoder, train=True)

  first, repeat, other_key = (run(jax.random.key(seed)) for seed in (0, 0, 1))
  np.testing.assert_array_equal(first[0], repeat[0])
  assert not np.allclose(first[0], other_key[0], atol=1e-3)
  np.testing.assert_allclose(first[1], first[2], rtol=1e-6)


# Precision.


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_products_are_in_the_dtype_of_the_parameters(params, dtype):
  params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
  run = lambda params: MODEL.apply({"params": params}, TOKENS)
  jaxpr = jax.make_jaxpr(run)(params)
  kinds = {"dot_general": set(), "exp": set(), "rsqrt": set(), "erfc": set()}

  def walk(jaxpr):
    for eqn in jaxpr.eqns:
      if eqn.primitive.name in kinds:
        kinds[eqn.primitive.name] |= {str(v.aval.dtype) for v in eqn.invars}
      for inner_jaxpr in jax.extend.core.jaxprs_in_params(eqn.params):
        walk(inner_jaxpr)

  walk(jaxpr.jaxpr)
  assert kinds["dot_general"] == {dtype}
  assert kinds["exp"] == kinds["rsqrt"] == {"float32"}
  assert {str(output.dtype) for output in jaxpr.out_avals} == {"float32"}
  encode = functools.partial(MODEL.apply, method="encode")
  states = jax.eval_shape(encode, {"params": params}, TOKENS)
  assert states.dtype == dtype


# Mistakes.


# Encoders from folders in Hugging Face's layout.


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
  read = lambda name, *arguments: pretrained.load(
    plain.write(tmp_path / name, family, *arguments), plain.NUM_CLASSES
  )
  config, params = read("plain")
  expected = jax.tree.map(lambda leaf: leaf.astype(dtype).astype("f4"), params)
  other = read("other", arrays, prefix)
  assert other.config == config
  jax.tree.map(np.testing.assert_array_equal, other.params, expected)


# BERT's own has a classifier without the dense layer before it.
@pytest.mark.parametrize("lacking", ["pre_", ("pre_", "classifier"), ()])
def test_a_head_that_does_not_fit_is_left_out(tmp_path, lacking):
  number = plain.NUM_CLASSES if lacking else 2
  arrays = plain.leaves("bert", num_classes=number)
  kept_arrays = {n: a for n, a in arrays.items() if not n.startswith(lacking)}
  folder = plain.write(tmp_path, "bert", kept_arrays)
  for num_classes in (plain.NUM_CLASSES, None):  # None is the encoder alone.
    _, params = pretrained.load(folder, num_classes)
    assert set(params) == {"embeddings", "layers_0", "layers_1"}


# Mistakes.


def refused_folder(folder):
  return refusal(pretrained.load, folder, plain.NUM_CLASSES)


def refused_decoder(folder):
  return refusal(pretrained.load_decoder, folder)


def test_folders_that_are_none(tmp_path):
  file = plain.write(tmp_path, "bert") / "config.json"
  for path in (tmp_path / "absent", file):
    assert refused_folder(path) == f"{str(path)!r} must be an existing folder"


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
  assert refused_folder(tmp_path).startswith(f"{file}: {message}")


@pytest.mark.parametrize(
  ("call", "message"), read_cases("models/bad_entries.txt")
)
def test_bad_entries_of_the_configuration(tmp_path, call, message):
  write = functools.partial(plain.write, tmp_path)
  load, load_decoder = refused_folder, refused_decoder
  names = {"write": write, "load": load, "load_decoder": load_decoder}
  assert eval(call, names) == f"{tmp_path / 'config.json'}: {message}"


def test_bad_weights(tmp_path):
  folder = plain.write(tmp_path, "bert")
  file, arrays = folder / "model.safetensors", plain.leaves("bert")
  name = "encoder.layer.1.output.dense.weight"
  save_file({n: a for n, a in arrays.items() if n != name}, file)
  assert refused_folder(folder) == f"{file}: has no bert.{name}"
  for array, message in (
    (np.zeros((8, 8), "f"), "has shape [8, 8]; must be [8, 12], as config"),
    (np.zeros((8, 12), np.int8), "is int8; must be one of float32, float16, "),
  ):
    save_file(arrays | {name: array}, file)
    assert refused_folder(folder).startswith(f"{file}: {name} {message}")
  file.write_bytes(b"not a safetensors file")
  assert refused_folder(folder).startswith(f"{file}: cannot be read (")
  file.unlink()
  assert refused_folder(folder).startswith(
    f"{folder}: has no model.safetensors"
  )
  (folder / "model.safetensors.index.json").write_text("{}")
  assert "the weights are in several files" in refused_folder(folder)


def test_folders_may_be_below_the_home(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path))
  plain.write(tmp_path / "model", "bert")
  assert pretrained.load("~/model").config.hidden == 8


# A decoder.


def check_decoder(folder, logits_of, arrays):
  """That it has the logits of NumPy; its parameters."""
  model, params = pretrained.load_decoder(folder)
  tokens = plain.tokens(plain.POSITIONS, plain.POSITIONS)
  logits = jax.jit(model.apply)({"params": params}, tokens)
  expected = [logits_of(arrays, row) for row in tokens]
  np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
  # Adapters fit its queries and values.
  lora.adapt(params, ["query", "value"], jax.random.key(0), rank=2)
  return params


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_a_decoder_has_the_logits_of_numpy(tmp_path, prefix):
  arrays = plain.gpt2_leaves()
  folder = plain.write(tmp_path, "gpt2", arrays, prefix)
  check_decoder(folder, plain.gpt2_logits, arrays)


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("is_tied", [False, True])
def test_llama_has_the_logits_of_numpy(tmp_path, prefix, is_tied):
  arrays = plain.llama_leaves()
  leaves = dict(arrays)
  if is_tied:  # The last layer is no leaf of its own.
    arrays["lm_head.weight"] = arrays["embed_tokens.weight"]
    del leaves["lm_head.weight"]
  entries = {"tie_word_embeddings": is_tied}
  folder = plain.write(tmp_path, "llama", leaves, prefix, **entries)
  params = check_decoder(folder, plain.llama_logits, arrays)
  assert ("output" in params) != is_tied


@pytest.mark.parametrize(
  ("rope", "theta"),
  [
    ({"rope_theta": None, "rope_parameters": {"rope_theta": 50.0}}, 50.0),
    ({"rope_theta": 60, "rope_scaling": None}, 60),
  ],
)
def test_two_layouts_of_rotations(tmp_path, rope, theta):
  folder = plain.write(tmp_path, "llama", **rope)
  assert pretrained.load_decoder(folder)[0].rope_theta == theta


def test_bad_weights_of_a_decoder(tmp_path):
  arrays, name = plain.gpt2_leaves(), "h.1.attn.c_attn.weight"
  del arrays[name]
  folder = plain.write(tmp_path, "gpt2", arrays)
  message = f"{folder / 'model.safetensors'}: has no transformer.{name}"
  assert refused_decoder(folder).startswith(message)


def test_weights_that_would_be_misread(tmp_path, monkeypatch):
  arrays = plain.gpt2_leaves()
  folder = plain.write(tmp_path, "gpt2", arrays)
  file = folder / "model.safetensors"
  twice = arrays | {"transformer.wte.weight": arrays["wte.weight"]}
  save_file(twice, file)
  message = refused_decoder(folder)
  assert "wte.weight are one leaf" in message
  # Of a type that NumPy lacks.
  header = json.dumps(
    {"wte.weight": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}
  ).encode()
  file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
  message = refused_decoder(folder)
  assert message.startswith(f"{file}: cannot be read (")
  save_file(arrays, file)
  monkeypatch.setattr(memory, "memory_bytes", lambda: 1000)
  message = refused_decoder(folder)
  assert f"{file}: cannot be read (it takes" in message
