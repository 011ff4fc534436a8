"""LoRA: low-rank adapters beside frozen dense layers of a flax.linen model.

A model with adapters is one tree:

  base        the model as it was
  lora_a      {layer: [in, r]}
  lora_b      {layer: [r, out]}
  lora_scale  [], alpha / r

where a layer is named by its path, such as 'layers_0/attention/query'. Use
`fedjax_opt.train_only` to say what is trained, sent and kept: 'lora_a' and
'lora_b' for LoRA, only 'lora_b' for FFA-LoRA, and perhaps a head, 'base/head'.

References:
  Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022.

  Sun et al., "Improving LoRA in Privacy-preserving Federated Learning", ICLR
  2024 (FFA-LoRA).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import trainable
from fedjax_opt.arrays import trees
from fedjax_opt.base import Params
from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import Count, PositiveFloat
from fedjax_opt.checks.values import brief

__all__ = ["adapt", "merged", "on_adapted"]

# What is trained of the adapters.
ADAPTERS = ("lora_a", "lora_b")
_LAYER_PARTS = ("base", *ADAPTERS, "lora_scale")


def _is_key(name: str, value: Any) -> None:
  dtype, shape = (getattr(value, n, None) for n in ("dtype", "shape"))
  is_key = dtype is not None and jax.dtypes.issubdtype(
    dtype, jax.dtypes.prng_key
  )
  if not (is_key and shape == ()) and not (dtype == "uint32" and shape == (2,)):
    raise TypeError(
      f"{name}={brief(value)}: must be a random key, such as jax.random.key(0)"
    )


def _has_adapters(value: Any) -> bool:
  return isinstance(value, Mapping) and {*_LAYER_PARTS} <= {*value}


def _is_adapted(name: str, value: Any) -> None:
  if not _has_adapters(value):
    raise TypeError(
      f"{name}={brief(value)}: must be what lora.adapt returned, a "
      f"dict with {', '.join(_LAYER_PARTS)}"
    )


@fields.checked(layers=fields.ANYTHING, key=fields.Field(_is_key))
def adapt(
  params: Params,
  layers: Sequence[str],
  key: jax.Array,
  *,
  rank: Count = 8,
  alpha: PositiveFloat = 16.0,
) -> dict[str, Any]:
  r"""A model with adapters beside some of its dense layers.

  A layer computes :math:`x W + \frac{\alpha}{r} x A B` instead of :math:`x W`
  (Hu et al., 2022, equation 3, transposed). A is drawn as in the authors'
  program, uniformly in :math:`\pm 1 / \sqrt{in}`. B is 0, so the model computes
  the same as before.

  Args:
    params: the model, of flax.linen.
    layers: which layers, by their last names, such as 'query' for all layers
      of that name, or 'layers_0/attention/query' for one.
    key: random key of A.
    rank: r, columns of A; at most the smaller side of each layer.
    alpha: numerator of the scale; positive.

  Returns:
    The tree with the parts base, lora_a, lora_b and lora_scale.

  Raises:
    ValueError: if a name matches no layer with a kernel [in, out], or a number
      is out of range.
    TypeError: if an argument is of a wrong type.
  """
  layers = trainable.checked_paths("layers", layers)
  if _has_adapters(params):
    raise ValueError("params: has adapters already; give its base")
  leaves, _ = jax.tree_util.tree_flatten_with_path(params)
  kernels = {  # Of dense layers, [in, out].
    layer: leaf
    for key_path, leaf in leaves
    if (layer := _layer(key_path)) is not None and np.ndim(leaf) == 2
  }
  is_of = lambda path, name: f"/{path}".endswith(f"/{name}")
  for name in layers:
    if not any(is_of(path, name) for path in kernels):
      raise ValueError(
        f"layers={name!r}: matches no dense layer of the model; must be among "
        + (", ".join(kernels) or "none: it has no kernel [in, out]")
      )
  targets = {
    path: kernel
    for path, kernel in kernels.items()
    if any(is_of(path, name) for name in layers)
  }
  a, b = {}, {}
  keys = jax.random.split(key, len(targets))
  for layer_key, (path, kernel) in zip(keys, targets.items(), strict=True):
    size_in, size_out = kernel.shape
    if rank > min(kernel.shape):
      raise ValueError(
        f"rank={rank}: must be at most {min(kernel.shape)}, the smaller side "
        f"of {path}, {list(kernel.shape)}"
      )
    a[path] = jax.random.uniform(
      layer_key, (size_in, rank), kernel.dtype, -(size_in**-0.5), size_in**-0.5
    )
    b[path] = jnp.zeros((rank, size_out), kernel.dtype)
  scale = jnp.asarray(alpha / rank, jnp.result_type(*targets.values()))
  return {"base": params, "lora_a": a, "lora_b": b, "lora_scale": scale}


def on_adapted(function: Callable[..., Any]) -> Callable[..., Any]:
  """Makes a function of a model, such as its loss, one of the adapted model.

  The adapters are added to the outputs of the layers. So clients have no own
  copies of whole kernels, and no gradients of their size.

  Args:
    function: `(params, ...)`, which applies a module of flax.linen to them.

  Returns:
    `(adapted, ...)`, which raises ValueError if the module does not call each
    adapted layer.

  Raises:
    TypeError: if it is no function.
  """
  if not callable(function):
    raise TypeError(
      f"function={brief(function)}: must be a function (params, ...)"
    )

  def of_adapted(adapted, *args, **kwargs):
    scale = jax.lax.stop_gradient(adapted["lora_scale"])
    used_paths, open_paths = set(), set()

    def intercept(call, args, kwargs, context):
      path = "/".join(context.module.path)
      # A layer may be made of another one's call; both are at one path.
      if (
        context.method_name != "__call__"
        or path not in adapted["lora_a"]
        or path in open_paths
      ):
        return call(*args, **kwargs)
      open_paths.add(path)
      output = call(*args, **kwargs)
      open_paths.remove(path)
      used_paths.add(path)
      a, b = (adapted[part][path] for part in ADAPTERS)
      low = args[0].astype(a.dtype) @ a
      return output + (scale.astype(a.dtype) * (low @ b)).astype(output.dtype)

    with nn.intercept_methods(intercept):
      output = function(adapted["base"], *args, **kwargs)
    for path in adapted["lora_a"]:
      if path not in used_paths:
        raise ValueError(
          f"lora_a[{path!r}]: {getattr(function, '__name__', 'the function')} "
          "calls no layer of this path; must be of the model that was adapted"
        )
    return output

  return of_adapted


@fields.checked(adapted=fields.Field(_is_adapted))
def merged(adapted: Params) -> Params:
  """The model whose kernels have the adapters added; it computes the same.

  Args:
    adapted: what `adapt` returned, trained or not; also with a leading axis S,
      as the result of a `sweep` has it.

  Returns:
    The model, of the structure of what was adapted.

  Raises:
    TypeError: if it is no such model.
  """
  scale = adapted["lora_scale"][..., None, None]
  products = {
    path: scale * (a @ adapted["lora_b"][path])
    for path, a in adapted["lora_a"].items()
  }
  return added(adapted["base"], products)


def added(params: Params, changes: dict[str, jax.Array]) -> Params:
  """A model with something added to some kernels, {layer: [in, out]}."""

  def add(key_path, leaf):
    change = changes.get(_layer(key_path))
    return leaf if change is None else leaf + change.astype(leaf.dtype)

  return jax.tree_util.tree_map_with_path(add, params)


def _layer(key_path) -> str | None:
  """The path of the layer whose kernel is at a place; None of other leaves."""
  path = trees.name_of(key_path)
  return path.removesuffix("/kernel") if path.endswith("/kernel") else None
