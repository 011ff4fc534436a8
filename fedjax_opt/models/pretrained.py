"""Encoders from a local folder in Hugging Face's layout, without PyTorch.

The folder holds `config.json` and `model.safetensors`, of model type bert or
distilbert. Leaves are read with and without the prefix of the family, and with
the older names of layer norms.
"""

import json
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.models.encoder import EncoderConfig

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

  fields: dict[str, str]  # of EncoderConfig -> key of config.json
  optional: dict[str, str]  # likewise, of keys that may be left out
  prefix: str
  layer: str  # of layer {i}
  leaves: dict[str, str]  # path of a part of a layer -> name


_FAMILIES = {
  "distilbert": _Family(
    fields={
      "vocab_size": "vocab_size",
      "hidden": "dim",
      "layers": "n_layers",
      "heads": "n_heads",
      "intermediate": "hidden_dim",
      "max_positions": "max_position_embeddings",
    },
    optional={
      "dropout": "dropout",
      "attention_dropout": "attention_dropout",
      "head_dropout": "seq_classif_dropout",
      "activation": "activation",
      "pad_id": "pad_token_id",
    },
    prefix="distilbert.",
    layer="transformer.layer.{}.",
    leaves={
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
    fields={
      "vocab_size": "vocab_size",
      "hidden": "hidden_size",
      "layers": "num_hidden_layers",
      "heads": "num_attention_heads",
      "intermediate": "intermediate_size",
      "max_positions": "max_position_embeddings",
      "type_vocab": "type_vocab_size",
    },
    optional={
      "layer_norm_eps": "layer_norm_eps",
      "dropout": "hidden_dropout_prob",
      "attention_dropout": "attention_probs_dropout_prob",
      "head_dropout": "classifier_dropout",
      "activation": "hidden_act",
      "pad_id": "pad_token_id",
    },
    prefix="bert.",
    layer="encoder.layer.{}.",
    leaves={
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
_OLDER = {
  "LayerNorm.weight": "LayerNorm.gamma",
  "LayerNorm.bias": "LayerNorm.beta",
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
  arrays = _Arrays(folder / WEIGHTS, family.prefix)
  params = {"embeddings": _embeddings(arrays, config)}
  for i in range(config.layers):
    params[f"layers_{i}"] = _layer(arrays, config, family, i)
  head = _head(arrays, config, num_classes)
  return Pretrained(config, params | ({} if head is None else {"head": head}))


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
  missing = [key for key in family.fields.values() if given.get(key) is None]
  if missing:
    raise ValueError(f"{file}: has no {missing[0]}")
  names = family.fields | family.optional
  known = {
    name: given[key]
    for name, key in names.items()
    if given.get(key) is not None
  }
  if kind == "bert":  # Its head has the rate of the encoder if none is given.
    known.setdefault("head_dropout", known.get("dropout", 0.1))
  try:
    return EncoderConfig(**known)
  except ValueError as error:
    name, _, rest = str(error).partition("=")
    raise ValueError(f"{file}: {names.get(name, name)}={rest}") from None


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


class _Arrays:
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
    self._names = set(self._open.keys())

  def find(self, name: str) -> str | None:
    """The name in the file, or None; `prefix` need not be there."""
    for end, older in _OLDER.items():
      if name.endswith(end) and self._found(name) is None:
        name = name.removesuffix(end) + older
    return self._found(name)

  def _found(self, name):
    both = (self._prefix + name, name)
    return next((each for each in both if each in self._names), None)

  def shape(self, name: str) -> tuple[int, ...]:
    """The shape of an array that is in the file."""
    return tuple(self._open.get_slice(name).get_shape())

  def get(self, name: str, *shape: int) -> np.ndarray:
    """An array in float32, which must have this shape."""
    found = self.find(name)
    if found is None:
      raise ValueError(f"{self._file}: has no {self._prefix}{name}")
    if self.shape(found) != shape:
      raise ValueError(
        f"{self._file}: {found} has shape {list(self.shape(found))}; must be "
        f"{list(shape)}, as {CONFIG} says"
      )
    kind = self._open.get_slice(found).get_dtype()
    if kind not in _KINDS:
      raise ValueError(
        f"{self._file}: {found} is {kind}; must be one of {', '.join(_KINDS)}"
      )
    return self._open.get_tensor(found).astype(np.float32)

  def dense(self, name: str, fan_in: int, fan_out: int) -> dict[str, Any]:
    """The parameters of `layers.Dense`; PyTorch's kernel is transposed."""
    kernel = self.get(f"{name}.weight", fan_out, fan_in)
    return {
      "kernel": np.ascontiguousarray(kernel.T),
      "bias": self.get(f"{name}.bias", fan_out),
    }

  def norm(self, name: str, width: int) -> dict[str, Any]:
    """The parameters of `nn.LayerNorm`."""
    return {
      "scale": self.get(f"{name}.weight", width),
      "bias": self.get(f"{name}.bias", width),
    }


def _embeddings(arrays, config):
  rows = {"word": config.vocab_size, "position": config.max_positions}
  names = {"word": "word", "position": "position", "type": "token_type"}
  if config.type_vocab is not None:
    rows["type"] = config.type_vocab
  tables = {
    part: arrays.get(
      f"embeddings.{names[part]}_embeddings.weight", number, config.hidden
    )
    for part, number in rows.items()
  }
  return tables | {"norm": arrays.norm("embeddings.LayerNorm", config.hidden)}


def _layer(arrays, config, family, i):
  wide = {"intermediate": (config.hidden, config.intermediate)}
  wide["output"] = wide["intermediate"][::-1]
  layer = {}
  for path, name in family.leaves.items():
    name = family.layer.format(i) + name
    if path.endswith("norm"):
      leaves = arrays.norm(name, config.hidden)
    else:
      leaves = arrays.dense(name, *wide.get(path, (config.hidden,) * 2))
    *group, last = path.split("/")
    (layer.setdefault(group[0], {}) if group else layer)[last] = leaves
  return layer


def _head(arrays, config, num_classes):
  """The leaves of a head for so many classes, or None."""
  parts = [arrays.find(f"{n}.weight") for n in ("pre_classifier", "classifier")]
  if None in parts or arrays.shape(parts[1])[0] != num_classes:
    return None
  return {
    "dense": arrays.dense("pre_classifier", config.hidden, config.hidden),
    "output": arrays.dense("classifier", config.hidden, num_classes),
  }
