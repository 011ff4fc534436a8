"""The file `params.safetensors` of a run's folder: a model, by leaf name."""

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy
from flax import traverse_util

from fedjax_opt.arrays import trees
from fedjax_opt.base import Params
from fedjax_opt.files.json_files import parse, to_json

_ONLY = "params"  # The name of the leaf of a model that is one array.
# In the metadata of a model that is a dictionary with one leaf of that name.
_IS_DICT = "is_dict"


def encoded(params: Params, about: Mapping[str, Any]) -> bytes:
  """The content of the file of a model.

  Args:
    params: the model. A leaf is named by its path, such as `Dense_0/kernel`;
      a model that is one array has the leaf `params`.
    about: {name: value}, values that JSON has; written as its metadata.

  Raises:
    ValueError: if two leaves have the same name, or the name of a leaf is the
      beginning of another's path.
  """
  leaves = jax.tree_util.tree_leaves_with_path(params)
  arrays = {
    trees.name_of(key_path) or _ONLY: (
      # Rows first, the order in which safetensors writes bytes.
      np.array(leaf, order="C")
    )
    for key_path, leaf in leaves
  }
  if len(arrays) < len(leaves):
    raise ValueError("params: two leaves have the same name, joined by '/'")
  if name := _leaf_with_leaves(arrays):
    raise ValueError(f"params: {name!r} is a leaf, and holds others")
  metadata = {name: json.dumps(to_json(value)) for name, value in about.items()}
  if list(arrays) == [_ONLY] and leaves[0][0]:
    metadata[_IS_DICT] = json.dumps(True)
  return _in_order(safetensors.numpy.save(arrays, metadata))


def _in_order(content: bytes) -> bytes:
  """The content with sorted metadata: the library's order is random."""
  end = 8 + int.from_bytes(content[:8], "little")
  header = json.loads(content[8:end])
  header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  return len(text).to_bytes(8, "little") + text + content[end:]


def read_model(path: pathlib.Path) -> tuple[Params, dict[str, Any]]:
  """Reads a model.

  Args:
    path: of the file.

  Returns:
    The model as nested dictionaries of NumPy arrays, by the parts of the names
    of leaves, or the array if it is one; and the metadata.

  Raises:
    ValueError: if it is no such file.
    OSError: if it cannot be read.
  """
  try:
    with safetensors.safe_open(path, framework="numpy") as file:
      arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
      metadata = file.metadata() or {}
  except (safetensors.SafetensorError, TypeError, AttributeError) as error:
    # Also types unknown to NumPy.
    raise ValueError(" ".join(str(error).split())) from None
  about = {name: parse(text) for name, text in metadata.items()}
  if list(arrays) == [_ONLY] and not about.pop(_IS_DICT, False):
    return arrays[_ONLY], about
  if name := _leaf_with_leaves(arrays):
    raise ValueError(f"{name!r} is a leaf, and holds others")
  return traverse_util.unflatten_dict(arrays, sep="/"), about


def _leaf_with_leaves(names: Iterable[str]) -> str | None:
  """The first leaf whose name is the beginning of another's path, or None."""
  names = list(names)
  for name in names:
    if any(other.startswith(f"{name}/") for other in names):
      return name
  return None
