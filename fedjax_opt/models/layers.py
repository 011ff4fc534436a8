"""Layers that the models share: dense, convolution, normalization.

Parameters have flax.linen's names and shapes on every backend: `kernel`,
[in, out] or [kh, kw, in, out], and `bias`, [out]. Images are
[B, H, W, channels].

Dense and convolution layers compute in the dtype of their kernel, whatever that
of their input. Normalizations compute in float32 or wider, and return the wider
dtype of their input and their parameters.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Annotated

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt.arrays import running_statistics
from fedjax_opt.arrays.trees import at_least_float32
from fedjax_opt.checks import fields, memory
from fedjax_opt.checks.values import check_at_least, check_choice, checked_array
from fedjax_opt.models.convolution import Padding, conv

# Half width of the uniform distribution around 0 from which a parameter is
# drawn, or flax's initializer of it.
_Draw = float | nn.initializers.Initializer
# (fan_in, fan_out) -> how kernel and bias are drawn.
Initialization = Callable[[int, int], tuple[_Draw, _Draw]]


def torch_uniform(fan_in: int, fan_out: int) -> tuple[float, float]:
  """PyTorch's default: kernel and bias from U(+-1/sqrt(fan_in))."""
  del fan_out
  return fan_in**-0.5, fan_in**-0.5


def glorot_uniform(fan_in: int, fan_out: int) -> tuple[float, float]:
  """Keras' default: kernel from U(+-sqrt(6/(fan_in+fan_out))), bias zero."""
  return (6 / (fan_in + fan_out)) ** 0.5, 0.0


def he_uniform(fan_in: int, fan_out: int) -> tuple[float, float]:
  """He et al., 2015: kernel of variance 2/fan_in, uniform, bias zero."""
  del fan_out
  return (6 / fan_in) ** 0.5, 0.0


def bert_normal(
  fan_in: int, fan_out: int
) -> tuple[nn.initializers.Initializer, float]:
  """Devlin et al., 2019: kernel from N(0, 0.02^2), bias zero."""
  del fan_in, fan_out
  return nn.initializers.normal(0.02), 0.0


# In the type of drawn kernels; those of flax are float64 with JAX_ENABLE_X64.
_zeros = nn.initializers.constant(0, jnp.float32)
_ones = nn.initializers.constant(1, jnp.float32)


def _initializer(draw: _Draw) -> nn.initializers.Initializer:
  """U(+-draw), zeros for 0; an initializer as it is."""
  if callable(draw):
    return draw

  def init(key, shape, dtype=jnp.float32):
    return jax.random.uniform(key, shape, dtype, -draw, draw)

  return init if draw else _zeros


def _parameters(module, shape):
  """Kernel [..., in, features] and bias of a layer, or None for the bias."""
  area = math.prod(shape[:-2])
  of_kernel, of_bias = module.initialization(area * shape[-2], area * shape[-1])
  kernel = module.param("kernel", _initializer(of_kernel), shape)
  if not module.use_bias:
    return kernel, None
  return kernel, module.param("bias", _initializer(of_bias), shape[-1:])


class Dense(nn.Module):
  """Affine map of the last axis.

  Attributes:
    features: width of the output.
    use_bias: whether a bias is added.
    initialization: distribution of the initial kernel and bias.
  """

  features: int
  use_bias: bool = True
  initialization: Initialization = torch_uniform

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Maps [..., in] to [..., features]."""
    check_at_least(f"{self.name}: width", self.features, 1)
    memory.check_memory(
      f"{self.name}: width={self.features} takes",
      4 * x.shape[-1] * self.features,
    )
    kernel, bias = _parameters(self, (x.shape[-1], self.features))
    x = x.astype(kernel.dtype) @ kernel
    return x if bias is None else x + bias


class Logits(Dense):
  """A model's last layer: its output is float32 or wider, for the loss."""

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Maps [..., in] to [..., features]."""
    return at_least_float32(super().__call__(x))


# What attributes of a model may be, by their annotations. Wider layers and
# deeper models are no models of clients, and fill the memory.
Depth = Annotated[int, fields.integer(1, most=1000)]
_SIZE = fields.integer(1, most=1_000_000)
_SIZES = fields.sequence_of(_SIZE, "a list of whole numbers")


def _is_padding(name, value):
  """Checks that padding is a word, or pixels on both sides of both axes."""
  if isinstance(value, str):
    check_choice(name, value, ("VALID", "SAME"))
  else:
    checked_array(name, value, "[2, 2]", of_integers=True, interval="[0, 1e6]")


_ATTRIBUTES = {
  int: _SIZE,
  float: fields.plain_number("[0, 1)"),
  Sequence[int]: _SIZES,
  tuple[int, ...]: _SIZES,
  Sequence[Sequence[int]]: fields.sequence_of(_SIZES, "a list of lists"),
  Initialization: fields.function("(fan_in, fan_out)"),
  Padding: fields.Field(_is_padding),
}


class Network(nn.Module):
  """A model of `features`, which its last layer `output` maps to logits."""

  def __post_init__(self):
    for name, field in _fields_of(type(self)).items():
      field.check(name, getattr(self, name))
    super().__post_init__()

  def __call__(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Logits [B, classes] of x [B, ...]; [B, T, tokens] of tokens x [B, T]."""
    return self.output(self.features(x, train=train))


@functools.cache
def _fields_of(model: type) -> dict[str, fields.Field]:
  """What the attributes of a kind of model may be."""
  annotations = {
    attribute.name: attribute.type
    for attribute in dataclasses.fields(model)
    if attribute.name != "parent"
  }
  attribute_fields = {
    name: _ATTRIBUTES[annotation]
    for name, annotation in annotations.items()
    if annotation in _ATTRIBUTES
  }
  return {
    name: field
    for name, field in fields.fields_of(model, **attribute_fields).items()
    if name in annotations
  }


class Conv(nn.Module):
  """Two-dimensional convolution layer; see `conv`.

  Attributes:
    features: channels of the output.
    kernel_size: height and width of the kernel.
    strides: steps between outputs, in pixels.
    padding: 'VALID', 'SAME' or ((top, bottom), (left, right)) in pixels.
    use_bias: whether a bias is added.
    initialization: distribution of the initial kernel and bias.
    implementation: see `resolve_implementation`.
  """

  features: int
  kernel_size: tuple[int, int]
  strides: tuple[int, int] = (1, 1)
  padding: Padding = "VALID"
  use_bias: bool = True
  initialization: Initialization = torch_uniform
  implementation: str | None = None

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Maps [B, H, W, channels] to [B, H', W', features]."""
    shape = (*self.kernel_size, x.shape[-1], self.features)
    kernel, bias = _parameters(self, shape)
    x = x.astype(kernel.dtype)
    return conv(
      x, kernel, bias, self.strides, self.padding, self.implementation
    )


NORMS = ("group", "batch", "batch_untracked", "none")


class Norm(nn.Module):
  """Group normalization, batch normalization, or none.

  Attributes:
    kind: 'group', 'batch', 'batch_untracked' (see `BatchNorm`) or 'none'.
    num_groups: number of groups of channels, for 'group'.
  """

  kind: str = "group"
  num_groups: int = 8

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """Maps [B, H, W, channels] to the same shape.

    Raises:
      ValueError: for another kind, or groups that do not divide the channels.
    """
    check_choice("norm", self.kind, NORMS)
    if self.kind == "none":
      return x
    if self.kind.startswith("batch"):
      return BatchNorm(tracked=self.kind == "batch")(x, train=train)
    if self.num_groups < 1 or x.shape[-1] % self.num_groups:
      raise ValueError(
        f"num_groups={self.num_groups}: must divide the {x.shape[-1]} channels"
      )
    return nn.GroupNorm(self.num_groups, epsilon=1e-5)(x)


class BatchNorm(nn.Module):
  """Batch normalization whose running statistics are parameters.

  flax.linen keeps them in another collection, which algorithms and rules do not
  see. How they are updated: see `running_statistics`.

  Attributes:
    momentum: weight of the old running statistics in the new ones.
    epsilon: added to the variance.
    tracked: whether there are running statistics. Without them, an evaluation
      too normalizes by the mean and variance of its own batch, so that what a
      model says of an example depends on the others beside it.
  """

  momentum: float = 0.9
  epsilon: float = 1e-5
  tracked: bool = True

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """Maps [B, ..., C] to the same shape."""
    channels = (x.shape[-1],)
    scale = self.param("scale", _ones, channels)
    bias = self.param("bias", _zeros, channels)
    if self.tracked:
      running_mean = self.param("running_mean", _zeros, channels)
      running_var = self.param("running_var", _ones, channels)
    dtype = jnp.promote_types(x.dtype, scale.dtype)
    x = at_least_float32(x)
    if train or not self.tracked:
      axes = tuple(range(x.ndim - 1))
      mean, var = jnp.mean(x, axes), jnp.var(x, axes)
    else:
      mean, var = running_mean, running_var
    if train and self.tracked:
      num = x.size // x.shape[-1]
      # As in PyTorch, the biased variance normalizes the batch, and the
      # unbiased one enters the running variance.
      for running, batch_value in (
        (running_mean, mean),
        (running_var, var * (num / max(num - 1, 1))),
      ):
        new_value = self.momentum * running + (1 - self.momentum) * batch_value
        x = running_statistics.attach(
          x, running, new_value.astype(running.dtype)
        )
    x = (x - mean) * lax.rsqrt(var + self.epsilon) * scale + bias
    return x.astype(dtype)
