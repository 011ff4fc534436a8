"""Layers that the models share: dense, convolution, max pooling.

The layers keep flax.linen's parameter names and shapes (`kernel` and `bias`;
a convolution's kernel is [kh, kw, in, out]).
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

# Half widths of the uniform laws of a layer's kernel and bias, given the
# number of inputs and of outputs of one of its units.
Initialization = Callable[[int, int], tuple[float, float]]
Padding = str | Sequence[tuple[int, int]]


def torch_uniform(fan_in: int, fan_out: int) -> tuple[float, float]:
  """PyTorch's default: kernel and bias from U(+-1/sqrt(fan_in))."""
  del fan_out
  return fan_in**-0.5, fan_in**-0.5


def glorot_uniform(fan_in: int, fan_out: int) -> tuple[float, float]:
  """Keras' default: kernel from U(+-sqrt(6/(fan_in+fan_out))), bias zero."""
  return (6 / (fan_in + fan_out)) ** 0.5, 0.0


def _uniform(half_width: float) -> nn.initializers.Initializer:
  def init(key, shape, dtype=jnp.float32):
    return jax.random.uniform(key, shape, dtype, -half_width, half_width)

  return init if half_width else nn.initializers.zeros


def conv(
  x: jax.Array,
  kernel: jax.Array,
  strides: tuple[int, int] = (1, 1),
  padding: Padding = "VALID",
  implementation: str | None = None,
) -> jax.Array:
  """Two-dimensional convolution, [B, H, W, I] by [kh, kw, I, O]."""
  if implementation is None:
    implementation = "dot" if jax.default_backend() == "cpu" else "lax"
  if implementation == "lax":
    return lax.conv_general_dilated(
      x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
  kh, kw, _, _ = kernel.shape
  if isinstance(padding, str):
    padding = lax.padtype_to_pads(x.shape[1:3], (kh, kw), strides, padding)
  x = jnp.pad(x, [(0, 0), *padding, (0, 0)])
  out_h = (x.shape[1] - kh) // strides[0] + 1
  out_w = (x.shape[2] - kw) // strides[1] + 1
  patches = jnp.concatenate(
    [
      x[
        :,
        i : i + (out_h - 1) * strides[0] + 1 : strides[0],
        j : j + (out_w - 1) * strides[1] + 1 : strides[1],
      ]
      for i, j in itertools.product(range(kh), range(kw))
    ],
    axis=-1,
  )
  return patches @ kernel.reshape(-1, kernel.shape[-1])


def max_pool(x: jax.Array, size: int = 2) -> jax.Array:
  """Maximum over size x size windows that do not overlap; [B, H, W, C]."""
  b, h, w, c = x.shape
  x = x[:, : h // size * size, : w // size * size]
  return x.reshape(b, h // size, size, w // size, size, c).max((2, 4))


class Dense(nn.Module):
  """`flax.linen.Dense` with one argument for both initial laws."""

  features: int
  use_bias: bool = True
  init_law: Initialization = torch_uniform

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    kernel_width, bias_width = self.init_law(x.shape[-1], self.features)
    shape = (x.shape[-1], self.features)
    x = x @ self.param("kernel", _uniform(kernel_width), shape)
    if self.use_bias:
      x += self.param("bias", _uniform(bias_width), (self.features,))
    return x


class Conv(nn.Module):
  """Convolution layer on [B, H, W, C]."""

  features: int
  kernel_size: tuple[int, int]
  strides: tuple[int, int] = (1, 1)
  padding: Any = "VALID"
  use_bias: bool = True
  init_law: Initialization = torch_uniform
  implementation: str | None = None

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    kh, kw = self.kernel_size
    kernel_width, bias_width = self.init_law(
      kh * kw * x.shape[-1], kh * kw * self.features
    )
    shape = (kh, kw, x.shape[-1], self.features)
    kernel = self.param("kernel", _uniform(kernel_width), shape)
    x = conv(x, kernel, self.strides, self.padding, self.implementation)
    if self.use_bias:
      x += self.param("bias", _uniform(bias_width), (self.features,))
    return x
