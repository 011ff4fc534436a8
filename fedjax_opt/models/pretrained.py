"""Transformers from a local folder in Hugging Face's layout, without PyTorch.

The folder holds `config.json` and `model.safetensors`, of model type bert or
distilbert for an encoder, gpt2 or llama for a decoder. Leaves are read with and
without the prefix of the family, and with the older names of layer norms.
"""

import os
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import traverse_util

from fedjax_opt.checks import errors, memory
from fedjax_opt.files import json_files
from fedjax_opt.files.folders import user_path
from fedjax_opt.models.encoder import SIZES, Encoder, EncoderConfig
from fedjax_opt.models.llama import Llama
from fedjax_opt.models.sequences import Decoder

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_DTYPES = ("float32", "float16", "bfloat16")  # Of weights.


class Pretrained(NamedTuple):
  """An encoder that was trained before.

  Attributes:
    config: of the encoder.
    params: {name: leaves} of `Encoder`, float32 NumPy arrays; those of the head
      are there if the checkpoint has a head for as many classes.
  """

  config: EncoderConfig
  params: dict[str, Any]


# The two columns of the tables below.
_FAMILIES = ("distilbert", "bert")
# Field of EncoderConfig -> key of config.json.
_KEYS = {
  "vocab_size": ("vocab_size", "vocab_size"),
  "hidden": ("dim", "hidden_size"),
  "layers": ("n_layers", "num_hidden_layers"),
  "heads": ("n_heads", "num_attention_heads"),
  "intermediate": ("hidden_dim", "intermediate_size"),
  "max_positions": ("max_position_embeddings", "max_position_embeddings"),
  "type_vocab": (None, "type_vocab_size"),
  "layer_norm_eps": (None, "layer_norm_eps"),
  "dropout": ("dropout", "hidden_dropout_prob"),
  "attention_dropout": ("attention_dropout", "attention_probs_dropout_prob"),
  "head_dropout": ("seq_classif_dropout", "classifier_dropout"),
  "activation": ("activation", "hidden_act"),
  "pad_id": ("pad_token_id", "pad_token_id"),
}
# Path of a part of `Encoder`, or of one of its layers -> name.
_ENCODER_NAMES = {
  "embeddings/word": 2 * ("embeddings.word_embeddings",),
  "embeddings/position": 2 * ("embeddings.position_embeddings",),
  "embeddings/type": 2 * ("embeddings.token_type_embeddings",),
  "embeddings/norm": 2 * ("embeddings.LayerNorm",),
  "layers": ("transformer.layer", "encoder.layer"),
  "attention/query": ("attention.q_lin", "attention.self.query"),
  "attention/key": ("attention.k_lin", "attention.self.key"),
  "attention/value": ("attention.v_lin", "attention.self.value"),
  "attention/output": ("attention.out_lin", "attention.output.dense"),
  "attention_norm": ("sa_layer_norm", "attention.output.LayerNorm"),
  "intermediate": ("ffn.lin1", "intermediate.dense"),
  "output": ("ffn.lin2", "output.dense"),
  "output_norm": ("output_layer_norm", "output.LayerNorm"),
  "head/dense": 2 * ("pre_classifier",),
  "head/output": 2 * ("classifier",),
}
# Field of Decoder -> key of GPT-2's config.json. Path of a part of `Decoder`,
# or of one of its blocks -> name; three kernels are one leaf there.
_DECODER_KEYS = {
  "num_tokens": "vocab_size",
  "max_length": "n_positions",
  "width": "n_embd",
  "num_blocks": "n_layer",
  "num_heads": "n_head",
}
_DECODER_PARTS = {
  "embedding/embedding": "wte",
  "positions": "wpe",
  "blocks": "h",
  "attention_norm": "ln_1",
  **dict.fromkeys(
    ("attention/query", "attention/key", "attention/value"), "attn.c_attn"
  ),
  "attention/out": "attn.c_proj",
  "dense_norm": "ln_2",
  "hidden": "mlp.c_fc",
  "dense": "mlp.c_proj",
  "norm": "ln_f",
}
_JOINED = ("query", "key", "value")
# The same of Llama; of the second table, without the prefix.
_LLAMA_KEYS = {
  "num_tokens": "vocab_size",
  "width": "hidden_size",
  "intermediate": "intermediate_size",
  "num_blocks": "num_hidden_layers",
  "num_heads": "num_attention_heads",
  "num_kv_heads": "num_key_value_heads",
  "norm_eps": "rms_norm_eps",
}
_LLAMA_PARTS = {
  "embedding/embedding": "embed_tokens",
  "blocks": "layers",
  "attention_norm": "input_layernorm",
  "attention/query": "self_attn.q_proj",
  "attention/key": "self_attn.k_proj",
  "attention/value": "self_attn.v_proj",
  "attention/out": "self_attn.o_proj",
  "dense_norm": "post_attention_layernorm",
  "gate": "mlp.gate_proj",
  "up": "mlp.up_proj",
  "down": "mlp.down_proj",
  "norm": "norm",
  "output": "lm_head",
}
# Leaf of a part -> end of a name; a table is the part itself. And the older
# ends of layer norms.
_ENDS = {"kernel": "weight", "scale": "weight", "bias": "bias"}
_OLDER = {
  "LayerNorm.gamma": "LayerNorm.weight",
  "LayerNorm.beta": "LayerNorm.bias",
}


def load(
  folder: str | os.PathLike, num_classes: int | None = None
) -> Pretrained:
  """Reads an encoder.

  Args:
    folder: holds `config.json` and `model.safetensors`.
    num_classes: of the task. A head of DistilBERT's form (`pre_classifier` and
      `classifier`) is read if it is for so many classes, else left out.

  Returns:
    The configuration and the parameters.

  Raises:
    ValueError: naming the folder or the file, if something is missing, cannot
      be read or does not fit.
  """
  config = read_config(folder)
  # DistilBERT has no types of segments.
  column = 0 if config.type_vocab is None else 1
  family = _FAMILIES[column]
  parts = {part: names[column] for part, names in _ENCODER_NAMES.items()}
  file = user_path(folder) / WEIGHTS
  arrays = _read_weights(file, f"{family}.")
  leaves = _leaves(Encoder(config, num_classes or 1))
  _, output = arrays.get("classifier.weight", (None, np.empty(0)))
  if "pre_classifier.weight" not in arrays or len(output) != num_classes:
    del leaves["head"]
  params = _transposed(file, arrays, f"{family}.", parts, leaves)
  return Pretrained(config, params)


def load_decoder(
  folder: str | os.PathLike,
) -> tuple[Decoder | Llama, dict[str, Any]]:
  """Reads a decoder of GPT-2's or of Llama's form.

  GPT-2's last layer is the embedding, transposed; here it is a leaf of its own.
  GPT-2's dropout is left out. Of Llama the rotations are the plain ones: scaled
  ones, of longer texts, are refused.

  Args:
    folder: holds `config.json` and `model.safetensors`.

  Returns:
    The model, and its parameters, float32 NumPy arrays.

  Raises:
    ValueError: naming the folder or the file, as `load`.
  """
  readers = {"gpt2": _gpt2, "llama": _llama}
  file, config = _read_json(folder, ("model_type", None, tuple(readers)))
  return readers[config["model_type"]](file, config)


def _gpt2(file, config):
  """A decoder of GPT-2's form, see `load_decoder`."""
  _check_entries(
    file,
    config,
    ("activation_function", "gelu_new", ("gelu_new",)),
    ("layer_norm_epsilon", 1e-5, (1e-5,)),
    ("scale_attn_weights", True, (True,)),
    ("scale_attn_by_inverse_layer_idx", False, (False,)),
    ("tie_word_embeddings", True, (True,)),
  )
  model, leaves = _made(Decoder, file, config, _DECODER_KEYS)
  size = 4 * model.width
  _check_entries(file, config, ("n_inner", size, (size, None)))
  file, params = file.parent / WEIGHTS, {}
  arrays = _read_weights(file, "transformer.")
  output = leaves.pop("output")
  for path, leaf in traverse_util.flatten_dict(leaves, sep="/").items():
    part = path.split("/")[-2:][0]
    *lead, width = leaf.shape
    num_parts = len(_JOINED) if part in _JOINED else 1
    array = _found(
      file,
      arrays,
      "transformer.",
      _name(path, _DECODER_PARTS),
      (*lead, num_parts * width),
    )
    index = _JOINED.index(part) if num_parts > 1 else 0
    params[path] = np.split(array, num_parts, axis=-1)[index]
  table = params["embedding/embedding"]
  params["output/kernel"] = np.ascontiguousarray(table.T)
  params["output/bias"] = np.zeros(output["bias"].shape, np.float32)
  return model, traverse_util.unflatten_dict(params, sep="/")


def _llama(file, config):
  """A decoder of Llama's form, see `load_decoder`."""
  # Older folders have `rope_theta` and `rope_scaling`.
  rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
  rope = rope if isinstance(rope, dict) else {"rope_type": rope}
  entries = {key: value for key, value in config.items() if value is not None}
  heads = config.get("num_attention_heads")
  config = {"num_key_value_heads": heads} | rope | entries
  _check_entries(
    file,
    config,
    ("hidden_act", "silu", ("silu",)),
    ("attention_bias", False, (False,)),
    ("mlp_bias", False, (False,)),
    ("tie_word_embeddings", False, (False, True)),
    ("rope_type", config.get("type", "default"), ("default",)),
  )
  model, leaves = _made(
    Llama,
    file,
    config,
    _LLAMA_KEYS,
    rope_theta=config.get("rope_theta", 10_000.0),
    is_tied=config.get("tie_word_embeddings", False),
  )
  size = model.width // model.num_heads
  _check_entries(file, config, ("head_dim", size, (size,)))
  file = file.parent / WEIGHTS
  arrays = _read_weights(file, "model.")
  return model, _transposed(file, arrays, "model.", _LLAMA_PARTS, leaves)


def _made(kind, file, config, keys, **options):
  """A decoder, of the entries of `config.json`, and its leaves' shapes."""
  for key in keys.values():
    if config.get(key) is None:
      raise ValueError(f"{file}: has no {key}")
  try:
    model = kind(**{name: config[key] for name, key in keys.items()}, **options)
    return model, _leaves(model)
  except (ValueError, TypeError) as error:
    name, _, reason = errors.first_line(error).partition("=")
    raise ValueError(f"{file}: {keys.get(name, name)}={reason}") from None


def read_config(folder: str | os.PathLike) -> EncoderConfig:
  """Reads `config.json` of a folder with an encoder.

  Raises:
    ValueError: naming the folder or the file, as `load`.
  """
  file, config = _read_json(
    folder,
    ("model_type", None, _FAMILIES),
    ("position_embedding_type", "absolute", ("absolute",)),
    ("is_decoder", False, (False,)),
  )
  family = config["model_type"]
  keys = {name: row[_FAMILIES.index(family)] for name, row in _KEYS.items()}
  arguments = {
    name: config[key]
    for name, key in keys.items()
    if config.get(key) is not None
  }
  for name in SIZES:
    if keys[name] and name not in arguments:
      raise ValueError(f"{file}: has no {keys[name]}")
  if family == "bert":  # Its head has the rate of the encoder if none is given.
    arguments.setdefault("head_dropout", arguments.get("dropout", 0.1))
  try:
    return EncoderConfig(**arguments)
  except (ValueError, TypeError) as error:
    name, _, reason = str(error).partition("=")
    raise ValueError(f"{file}: {keys.get(name, name)}={reason}") from None


def _read_json(folder, *entries):
  """`config.json`: its path and content, some (key, default, accepted)."""
  path = user_path(folder)
  if not path.is_dir():
    raise ValueError(f"{str(folder)!r} must be an existing folder")
  file = path / CONFIG
  with errors.while_reading(file, "must be a JSON object", ValueError):
    config = json_files.read_json(file)
  _check_entries(file, config, *entries)
  return file, config


def _check_entries(file, config, *entries):
  """Checks entries of `config.json`, each (key, default, accepted)."""
  for key, default, accepted in entries:
    value = config.get(key, default)
    if value not in accepted:  # It may be anything that JSON has.
      raise ValueError(
        f"{file}: {key} is {value!r}; must be one of "
        + ", ".join(map(str, accepted))
      )


def _leaves(model):
  """The shapes of a model's parameters."""
  tokens = jax.ShapeDtypeStruct((1, 1), "int32")
  return jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]


def _read_weights(file, prefix):
  """{name as it is now, without the prefix: (name in the file, array)}."""
  import safetensors.numpy

  if not file.is_file():
    if (file.parent / f"{WEIGHTS}.index.json").is_file():
      raise ValueError(
        f"{file.parent}: the weights are in several files; must be in one, "
        f"{WEIGHTS}: save them again with a larger max_shard_size"
      )
    raise ValueError(
      f"{file.parent}: has no {WEIGHTS} (files of PyTorch's own format are not "
      "read)"
    )
  # Also of types that NumPy lacks.
  with errors.while_reading(file, "must be a safetensors file", Exception):
    memory.check_memory("it takes", file.stat().st_size)
    arrays = safetensors.numpy.load_file(file)
  leaves = {}
  for name, array in arrays.items():
    new_name = name.removeprefix(prefix)
    for older, newer in _OLDER.items():
      new_name = new_name.replace(older, newer)
    if new_name in leaves:
      raise ValueError(f"{file}: {name} and {leaves[new_name][0]} are one leaf")
    leaves[new_name] = name, array
  return leaves


def _transposed(file, arrays, prefix, parts, leaves):
  """The parameters of a model whose kernels are [out, in], as PyTorch's."""
  params = {}
  for path, leaf in traverse_util.flatten_dict(leaves, sep="/").items():
    name, is_kernel = _name(path, parts), path.endswith("kernel")
    shape = leaf.shape[::-1] if is_kernel else leaf.shape
    array = _found(file, arrays, prefix, name, shape)
    params[path] = np.ascontiguousarray(array.T) if is_kernel else array
  return traverse_util.unflatten_dict(params, sep="/")


def _found(file, arrays, prefix, new_name, shape):
  """The array of a name, of this shape, in float32."""
  if new_name not in arrays:
    raise ValueError(f"{file}: has no {prefix}{new_name}")
  name, array = arrays[new_name]
  if array.shape != shape:
    raise ValueError(
      f"{file}: {name} has shape {list(array.shape)}; must be {list(shape)}, "
      f"as {CONFIG} says"
    )
  if array.dtype.name not in _DTYPES:
    raise ValueError(
      f"{file}: {name} is {array.dtype}; must be one of {', '.join(_DTYPES)}"
    )
  return array.astype(np.float32)


def _name(path, parts):
  """The name of a leaf, without the prefix, given those of a model's parts."""
  names = []
  part, _, leaf = path.rpartition("/")
  if leaf not in _ENDS:
    part = path
  stack, _, number = part.partition("/")[0].rpartition("_")
  if number.isdigit():
    names, part = [parts[stack], number], part.partition("/")[2]
  return ".".join([*names, parts[part], _ENDS.get(leaf, "weight")])
