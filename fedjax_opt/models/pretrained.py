"""Encoders from a local folder in Hugging Face's layout, without PyTorch.

The folder holds `config.json` and `model.safetensors`, of model type bert or
distilbert. Leaves are read with and without the prefix of the family, and with
the older names of layer norms.
"""

import json
import os
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import traverse_util

from fedjax_opt.models.encoder import SIZES, Encoder, EncoderConfig

__all__ = ["Pretrained", "load", "read_config"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_KINDS = ("F32", "F16", "BF16")  # Types of weights, as safetensors names them.


class Pretrained(NamedTuple):
  """An encoder that was trained before.

  Attributes:
    config: of the encoder.
    params: {name: leaves} of `Encoder`, float32 NumPy arrays; those of the head
      are there if the checkpoint has a head for as many classes.
  """

  config: EncoderConfig
  params: dict[str, Any]


class _Family(NamedTuple):
  """How a model type names what an encoder is made of."""

  keys: dict[str, str]  # field of EncoderConfig -> key of config.json
  prefix: str  # of all names; it may be left out
  layer: str  # of layer {i}
  parts: dict[str, str]  # path of a part of a layer -> name


_FAMILIES = {
  "distilbert": _Family(
    keys={
      "vocab_size": "vocab_size",
      "hidden": "dim",
      "layers": "n_layers",
      "heads": "n_heads",
      "intermediate": "hidden_dim",
      "max_positions": "max_position_embeddings",
      "dropout": "dropout",
      "attention_dropout": "attention_dropout",
      "head_dropout": "seq_classif_dropout",
      "activation": "activation",
      "pad_id": "pad_token_id",
    },
    prefix="distilbert.",
    layer="transformer.layer.{}.",
    parts={
      "attention/query": "attention.q_lin",
      "attention/key": "attention.k_lin",
      "attention/value": "attention.v_lin",
      "attention/output": "attention.out_lin",
      "attention_norm": "sa_layer_norm",
      "intermediate": "ffn.lin1",
      "output": "ffn.lin2",
      "output_norm": "output_layer_norm",
    },
  ),
  "bert": _Family(
    keys={
      "vocab_size": "vocab_size",
      "hidden": "hidden_size",
      "layers": "num_hidden_layers",
      "heads": "num_attention_heads",
      "intermediate": "intermediate_size",
      "max_positions": "max_position_embeddings",
      "type_vocab": "type_vocab_size",
      "layer_norm_eps": "layer_norm_eps",
      "dropout": "hidden_dropout_prob",
      "attention_dropout": "attention_probs_dropout_prob",
      "head_dropout": "classifier_dropout",
      "activation": "hidden_act",
      "pad_id": "pad_token_id",
    },
    prefix="bert.",
    layer="encoder.layer.{}.",
    parts={
      "attention/query": "attention.self.query",
      "attention/key": "attention.self.key",
      "attention/value": "attention.self.value",
      "attention/output": "attention.output.dense",
      "attention_norm": "attention.output.LayerNorm",
      "intermediate": "intermediate.dense",
      "output": "output.dense",
      "output_norm": "output.LayerNorm",
    },
  ),
}
# What both families name alike: path of a part, or of a table -> name.
_PARTS = {
  "embeddings/word": "embeddings.word_embeddings.weight",
  "embeddings/position": "embeddings.position_embeddings.weight",
  "embeddings/type": "embeddings.token_type_embeddings.weight",
  "embeddings/norm": "embeddings.LayerNorm",
  "head/dense": "pre_classifier",
  "head/output": "classifier",
}
# Leaf of a part -> end of a name, and the older end of those of layer norms.
_ENDS = {"kernel": ".weight", "scale": ".weight", "bias": ".bias"}
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
  folder, config = _folder(folder), read_config(folder)
  family = _FAMILIES[_json(folder)["model_type"]]
  weights = _Weights(folder / WEIGHTS, family.prefix)
  # The model itself says which leaves there are, and of which shapes.
  leaves = jax.eval_shape(
    Encoder(config, num_classes or 1).init,
    jax.random.key(0),
    jax.ShapeDtypeStruct((1, 1), "int32"),
  )["params"]
  if not _fits(weights, num_classes):
    del leaves["head"]
  leaves = traverse_util.flatten_dict(leaves, sep="/")
  params = {
    path: weights.get(_name(path, family), leaf.shape, path.endswith("kernel"))
    for path, leaf in leaves.items()
  }
  return Pretrained(config, traverse_util.unflatten_dict(params, sep="/"))


def read_config(folder: str | os.PathLike) -> EncoderConfig:
  """Reads `config.json` of a folder.

  Raises:
    ValueError: naming the folder or the file, as `load`.
  """
  folder = _folder(folder)
  file, given = folder / CONFIG, _json(folder)
  kind = given.get("model_type")
  if kind not in [*_FAMILIES]:  # It may be anything that JSON has.
    raise ValueError(
      f"{file}: model_type is {kind!r}; must be one of {', '.join(_FAMILIES)}"
    )
  form = given.get("position_embedding_type", "absolute")
  if form != "absolute":
    raise ValueError(
      f"{file}: position_embedding_type is {form!r}; must be absolute"
    )
  family = _FAMILIES[kind]
  known = {
    name: given[key]
    for name, key in family.keys.items()
    if given.get(key) is not None
  }
  for name, key in family.keys.items():
    if name in SIZES and name not in known:
      raise ValueError(f"{file}: has no {key}")
  if kind == "bert":  # Its head has the rate of the encoder if none is given.
    known.setdefault("head_dropout", known.get("dropout", 0.1))
  try:
    return EncoderConfig(**known)
  except (ValueError, TypeError) as error:
    name, _, rest = str(error).partition("=")
    key = family.keys.get(name, name)
    raise ValueError(f"{file}: {key}={rest}") from None


def _folder(folder):
  path = pathlib.Path(folder).expanduser()
  if not path.is_dir():
    raise ValueError(f"{str(folder)!r} must be an existing folder")
  return path


def _json(folder):
  file = folder / CONFIG
  try:
    content = json.loads(file.read_text(encoding="utf-8"))
  except FileNotFoundError:
    raise ValueError(f"{folder}: has no {CONFIG}") from None
  except (OSError, ValueError) as error:
    raise ValueError(f"{file}: is not JSON ({error})") from None
  if not isinstance(content, dict):
    raise ValueError(f"{file}: must be a JSON object")
  return content


class _Weights:
  """The arrays of a safetensors file by name, read when asked for."""

  def __init__(self, file: pathlib.Path, prefix: str):
    import safetensors

    if not file.is_file():
      raise ValueError(
        f"{file.parent}: has no {WEIGHTS} (files of PyTorch's own format are "
        "not read)"
      )
    try:
      self._open = safetensors.safe_open(file, framework="numpy")
    except (safetensors.SafetensorError, OSError) as error:
      reason = " ".join(str(error).split())
      raise ValueError(
        f"{file}: is not a safetensors file ({reason})"
      ) from None
    self._file, self._prefix = file, prefix
    # Name without the prefix and as it is now -> name in the file.
    self._names = {}
    for name in [*self._open.keys()]:
      known = name.removeprefix(prefix)
      for older, newer in _OLDER.items():
        if known.endswith(older):
          known = known.removesuffix(older) + newer
      self._names[known] = name

  def shape(self, name: str) -> tuple[int, ...] | None:
    """The shape of an array, None if it is not there."""
    if name not in self._names:
      return None
    return tuple(self._open.get_slice(self._names[name]).get_shape())

  def get(
    self, name: str, shape: tuple[int, ...], is_kernel: bool
  ) -> np.ndarray:
    """An array of this shape in float32; PyTorch's kernels are transposed."""
    if name not in self._names:
      raise ValueError(f"{self._file}: has no {self._prefix}{name}")
    found, wanted = self._names[name], shape[::-1] if is_kernel else shape
    if self.shape(name) != wanted:
      raise ValueError(
        f"{self._file}: {found} has shape {list(self.shape(name))}; must be "
        f"{list(wanted)}, as {CONFIG} says"
      )
    kind = self._open.get_slice(found).get_dtype()
    if kind not in _KINDS:
      raise ValueError(
        f"{self._file}: {found} is {kind}; must be one of {', '.join(_KINDS)}"
      )
    array = self._open.get_tensor(found).astype(np.float32)
    return np.ascontiguousarray(array.T) if is_kernel else array


def _fits(weights, num_classes):
  """Whether there is a head, for so many classes."""
  if weights.shape("pre_classifier.weight") is None:
    return False
  output = weights.shape("classifier.weight")
  return output is not None and output[0] == num_classes


def _name(path, family):
  """The name of a leaf of `Encoder`, without the prefix."""
  if path in _PARTS:
    return _PARTS[path]
  part, _, leaf = path.rpartition("/")
  if part in _PARTS:
    return _PARTS[part] + _ENDS[leaf]
  layer, _, part = part.removeprefix("layers_").partition("/")
  return family.layer.format(layer) + family.parts[part] + _ENDS[leaf]
