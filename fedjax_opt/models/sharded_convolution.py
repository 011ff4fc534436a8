"""XLA's convolution inside `jax.shard_map`, with gradients that can be vmapped.

There JAX attaches a sharding to the gradients of a convolution, and its rule of
`vmap` refuses those that are grouped and have a sharding (JAX 0.7.2 to 0.10.2
at least): a grid of settings over clients with kernels of their own, on several
devices. The gradients here are the same convolutions without it.
"""

import functools

import jax
from jax import lax

_Sides = tuple[int, int]
Padding = tuple[_Sides, _Sides]


def is_inside_shard_map() -> bool:
  """Whether what is traced now runs on several devices, with a part on each."""
  return bool(jax.sharding.get_abstract_mesh().manual_axes)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def conv(
  x: jax.Array, kernel: jax.Array, strides: _Sides, padding: Padding
) -> jax.Array:
  """Two-dimensional convolution, which has no forward derivative.

  Args:
    x: images [B, H, W, I].
    kernel: weights [kh, kw, I, O].
    strides: steps between outputs, in pixels.
    padding: ((top, bottom), (left, right)) in pixels.

  Returns:
    Images [B, H', W', O].
  """
  return lax.conv_general_dilated(
    x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
  )


def _forward(x, kernel, strides, padding):
  return conv(x, kernel, strides, padding), (x, kernel)


def _backward(strides, padding, inputs, cotangent):
  """The gradients by the images and by the kernel.

  Along an axis of n pixels, a of them added before, with k weights and m
  outputs, which are spread over r = (m - 1) * stride + 1 pixels: the first is a
  convolution of the spread outputs with the turned kernel, n = r + low + high -
  k + 1; the second one of the images with the spread outputs as a kernel,
  k = n + a + high - r + 1.
  """
  x, kernel = inputs
  of_images, of_kernel = [], []
  for axis, stride in enumerate(strides):
    n, m = x.shape[axis + 1], cotangent.shape[axis + 1]
    k = kernel.shape[axis]
    spread, before = (m - 1) * stride + 1, padding[axis][0]
    low = k - 1 - before
    of_images.append((low, n - spread - low + k - 1))
    of_kernel.append((before, k - n - before + spread - 1))
  by_images = lax.conv_general_dilated(
    cotangent,
    lax.rev(kernel, (0, 1)),
    (1, 1),
    of_images,
    lhs_dilation=strides,
    dimension_numbers=("NHWC", "HWOI", "NHWC"),
  )
  by_kernel = lax.conv_general_dilated(
    x,
    cotangent,
    (1, 1),
    of_kernel,
    rhs_dilation=strides,
    dimension_numbers=("CHWN", "IHWO", "HWNC"),
  )
  return by_images, by_kernel


conv.defvjp(_forward, _backward)
