"""Convolution and max pooling that are fast inside a compiled loop.

The values are those of `lax.conv_general_dilated` and `lax.reduce_window`; how
they are computed depends on the backend, see `resolve_implementation`. Images
are [B, H, W, channels].
"""

import functools
import itertools
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from fedjax_opt.arrays import target
from fedjax_opt.checks.values import check_choice

Padding = str | Sequence[tuple[int, int]]


def resolve_implementation(implementation: str | None) -> str:
  """Chooses how convolution and pooling are computed.

  `'lax'` is XLA's own convolution and window reduction; `'matmul'` is copies
  and one matrix product, which give the same values. `'matmul'` is the default
  on CPU and GPU. On CPU, XLA's convolution is slower by an order of magnitude
  inside a compiled loop (`scan`, `map`, `fori_loop`: everywhere in federated
  training). On GPU, clients with kernels of their own make it a grouped
  convolution: on an H100, rounds with products took 0.14 (CNN), 0.33
  (ResNet-18) and 0.56 (VGG-16) of the time (docs/accelerators.md).

  Args:
    implementation: 'lax', 'matmul', or None to choose by backend.

  Returns:
    'lax' or 'matmul'.

  Raises:
    ValueError: if it is another name.
  """
  if implementation is None:
    return "lax" if target.platform() == "tpu" else "matmul"
  check_choice("implementation", implementation, ("lax", "matmul"))
  return implementation


def conv(
  x: jax.Array,
  kernel: jax.Array,
  bias: jax.Array | None = None,
  strides: tuple[int, int] = (1, 1),
  padding: Padding = "VALID",
  implementation: str | None = None,
) -> jax.Array:
  """Two-dimensional convolution, without a flip of the kernel.

  Args:
    x: images [B, H, W, I].
    kernel: weights [kh, kw, I, O].
    bias: added to every output pixel, [O], or None.
    strides: steps between outputs, in pixels.
    padding: 'VALID', 'SAME' or ((top, bottom), (left, right)) in pixels.
    implementation: see `resolve_implementation`.

  Returns:
    Images [B, H', W', O], of the type to which `x` and `kernel` are promoted.

  Raises:
    ValueError: if the channels differ (grouped convolution is not supported)
      or the kernel does not fit into the padded image.
  """
  if x.shape[-1] != kernel.shape[2]:
    raise ValueError(
      f"x: has {x.shape[-1]} channels; must have {kernel.shape[2]}, those of "
      "the kernel (one feature group)"
    )
  if isinstance(padding, str):
    padding = lax.padtype_to_pads(
      x.shape[1:3], kernel.shape[:2], strides, padding
    )
  padded = [n + sum(pad) for n, pad in zip(x.shape[1:3], padding, strict=True)]
  if any(n < k for n, k in zip(padded, kernel.shape[:2], strict=True)):
    raise ValueError(
      f"x: has {padded[0]} x {padded[1]} pixels after padding; must have at "
      f"least the kernel's {kernel.shape[0]} x {kernel.shape[1]}"
    )
  x, kernel = nn.dtypes.promote_dtype(x, kernel)
  # Of an empty batch there are no patches.
  if resolve_implementation(implementation) == "matmul" and len(x):
    return _conv_matmul(x, kernel, bias, strides, padding)
  # True where each of several devices has a part.
  if jax.sharding.get_abstract_mesh().manual_axes:
    y = _conv_sharded(x, kernel, tuple(strides), tuple(map(tuple, padding)))
  else:
    y = _conv_lax(x, kernel, strides, padding)
  return y if bias is None else y + jnp.asarray(bias, y.dtype)


def _conv_lax(x, kernel, strides, padding):
  return lax.conv_general_dilated(
    x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
  )


# Inside `jax.shard_map` JAX attaches a sharding to the gradients of a
# convolution, and its rule of `vmap` refuses those that are grouped and have a
# sharding (JAX 0.7.2 to 0.10.2 at least): a grid of settings over clients with
# kernels of their own, on several devices. The gradients here are the same
# convolutions without it; there is no forward derivative.
_conv_sharded = jax.custom_vjp(_conv_lax, nondiff_argnums=(2, 3))


def _sharded_forward(x, kernel, strides, padding):
  return _conv_lax(x, kernel, strides, padding), (x, kernel)


def _sharded_backward(strides, padding, inputs, cotangent):
  """The gradients by the images and by the kernel.

  Along an axis of n pixels, a of them added before, with k weights and m
  outputs, which are spread over r = (m - 1) * stride + 1 pixels: the first is a
  convolution of the spread outputs with the turned kernel, n = r + low + high -
  k + 1; the second one of the images with the spread outputs as a kernel,
  k = n + a + high - r + 1.
  """
  x, kernel = inputs
  image_padding, kernel_padding = [], []
  for axis, stride in enumerate(strides):
    n, m = x.shape[axis + 1], cotangent.shape[axis + 1]
    k = kernel.shape[axis]
    spread, before = (m - 1) * stride + 1, padding[axis][0]
    low = k - 1 - before
    image_padding.append((low, n - spread - low + k - 1))
    kernel_padding.append((before, k - n - before + spread - 1))
  by_images = lax.conv_general_dilated(
    cotangent,
    lax.rev(kernel, (0, 1)),
    (1, 1),
    image_padding,
    lhs_dilation=strides,
    dimension_numbers=("NHWC", "HWOI", "NHWC"),
  )
  by_kernel = lax.conv_general_dilated(
    x,
    cotangent,
    (1, 1),
    kernel_padding,
    rhs_dilation=strides,
    dimension_numbers=("CHWN", "IHWO", "HWNC"),
  )
  return by_images, by_kernel


_conv_sharded.defvjp(_sharded_forward, _sharded_backward)


def max_pool(
  x: jax.Array, size: int = 2, implementation: str | None = None
) -> jax.Array:
  """Maximum over windows of size x size pixels that do not overlap.

  Pixels beyond the last whole window are dropped. If several pixels of a window
  are largest, the gradient goes to the first (as in PyTorch).

  Args:
    x: images [B, H, W, channels].
    size: side of a window and step between windows, in pixels.
    implementation: see `resolve_implementation`.

  Returns:
    Images [B, H // size, W // size, channels].

  Raises:
    ValueError: if an image is smaller than one window.
  """
  h, w = x.shape[1] // size, x.shape[2] // size
  if h == 0 or w == 0:
    raise ValueError(
      f"x: has {x.shape[1]} x {x.shape[2]} pixels; must have at least one "
      f"pooling window of {size} x {size}"
    )
  is_lax = resolve_implementation(implementation) == "lax"
  if is_lax and target.platform() != "gpu":
    return nn.max_pool(x, (size, size), strides=(size, size))
  x = x[:, : h * size, : w * size]
  if is_lax:  # The gradient of XLA's would be a scatter, of several kernels.
    b, c = x.shape[0], x.shape[-1]
    blocks = x.reshape(b, h, size, w, size, c).transpose(2, 4, 0, 1, 3, 5)
    return _maximum(blocks.reshape(size * size, b, h, w, c))
  x = _turned(x)
  windows = _to_blocks(x, (size, size))
  windows = windows.reshape(size * size, *windows.shape[2:])
  return _turned(_maximum(windows))


# The implementation 'matmul'.
#
# Layout. All arrays are batch-last, [C, H, W, B]. Neighbours in H or W are then
# B numbers apart, so copies and comparisons work on contiguous runs of B
# numbers and are vectorized.
#
# Convolution. The patches are gathered into a matrix with one column for each
# output pixel, which is multiplied by the kernel. A product with few rows does
# not fill the vector units, and the patch matrix holds every pixel kh * kw
# times. A kernel with few output channels therefore computes a tile of 2 x 2
# output pixels at once: the product has four times the rows and a quarter of
# the columns, and ((kh + 1) (kw + 1)) / (kh kw) times the multiplications.
#
# Max pooling compares the pixels of a window as arrays over all windows.


def _conv_matmul(x, kernel, bias, strides, padding):
  """`conv` on promoted and checked arguments, padding in pixels."""
  kh, kw, _, features = kernel.shape
  out_size = [
    (n + sum(pad) - k) // step + 1
    for n, pad, k, step in zip(
      x.shape[1:3], padding, (kh, kw), strides, strict=True
    )
  ]
  tile = _tile(kernel.shape, strides, out_size)
  # A block of input pixels belongs to each tile of output pixels.
  block = tile[0] * strides[0], tile[1] * strides[1]
  grid = out_size[0] // tile[0], out_size[1] // tile[1]
  kernel = _tile_kernel(kernel, tile, strides)  # [tiles, wh, ww, I, O]
  window = kernel.shape[1:3]

  lengths = [
    (n - 1 + -(-k // b)) * b
    for n, k, b in zip(grid, window, block, strict=True)
  ]
  edges = [
    (before, n - before - size, 0)
    for n, size, (before, _) in zip(lengths, x.shape[1:3], padding, strict=True)
  ]
  x = lax.pad(
    _turned(x), jnp.zeros((), x.dtype), [(0, 0, 0), *edges, (0, 0, 0)]
  )
  # For a GPU XLA copies patches whose number of rows 8 does not divide, to pad
  # them.
  unit = 8 if target.platform() == "gpu" else 1
  length = window[0] * window[1] * len(x)
  num_ones = 0 if bias is None else 1 + -(length + 1) % unit
  patches = _patches(x, block, window, grid, num_ones)
  rows = [
    kernel[:, i, j].reshape(len(kernel), -1, features)
    for i, j in _window_parts(block, window)
  ]
  if bias is not None:
    # The bias is the weight of a patch row of ones.
    bias = jnp.asarray(bias, x.dtype)
    bias_rows = jnp.broadcast_to(bias, (len(kernel), 1, features))
    rows.append(jnp.pad(bias_rows, [(0, 0), (0, num_ones - 1), (0, 0)]))
  weights = jnp.concatenate(rows, 1).transpose(0, 2, 1)
  y = weights.reshape(-1, len(patches)) @ patches.reshape(len(patches), -1)
  y = y.reshape(*tile, features, *patches.shape[1:])
  return _turned(_from_blocks(y))


def _tile(kernel_shape, strides, out_size):
  """Height and width of the tile of output pixels computed at once."""
  kh, kw, _, features = kernel_shape
  worth = features <= 32 and min(kh, kw) >= 3 and tuple(strides) == (1, 1)
  return tuple(2 if worth and n % 2 == 0 else 1 for n in out_size)


def _tile_kernel(kernel, tile, strides):
  """[tiles, wh, ww, I, O], a shifted kernel for each pixel of the tile."""
  copies = []
  for i, j in itertools.product(*map(range, tile)):
    shift = [
      (n * step, (size - 1 - n) * step)
      for n, step, size in zip((i, j), strides, tile, strict=True)
    ]
    copies.append(jnp.pad(kernel, [*shift, (0, 0), (0, 0)]))
  return jnp.stack(copies)


def _window_parts(block, window):
  """The pairs of slices that cut a window into blocks, in row order."""
  sides = [
    [slice(start, min(start + b, size)) for start in range(0, size, b)]
    for b, size in zip(block, window, strict=True)
  ]
  return itertools.product(*sides)


def _compile_apart(*static_argnums):
  """Prevents XLA from fusing a function into the consumers of its result.

  XLA:CPU fuses cheap producers into every consumer. Here the consumers are many
  overlapping slices, each of which would compute the array again. Elsewhere it
  does nothing.

  Args:
    *static_argnums: as of `jax.jit`.
  """

  def decorate(function):
    jitted = jax.jit(function, static_argnums=static_argnums)

    @functools.wraps(function)
    def call(*args):
      if target.platform() != "cpu":
        return function(*args)
      with set_xla_metadata(inlineable="false"):
        return jitted(*args)

    return call

  return decorate


@_compile_apart(1, 2, 3, 4)
def _patches(x, block, window, grid, num_ones):
  """Windows of x [I, H, W, B] and rows of ones, [window * I + n, *grid, B]."""
  blocks = _to_blocks(x, block)  # [*block, I, H', W', B]
  # Four axes, because the copies are not vectorized if H' and W' are one axis.
  shape = (-1, *grid, x.shape[-1])
  rows = []
  for i, j in _window_parts(block, window):
    top, left = i.start // block[0], j.start // block[1]
    # One slice of all axes, because its gradient is then one padding.
    part = blocks[
      : i.stop - i.start,
      : j.stop - j.start,
      :,
      top : top + grid[0],
      left : left + grid[1],
    ]
    rows.append(part.reshape(shape))
  if num_ones:
    rows.append(jnp.ones((num_ones, *shape[1:]), x.dtype))
  return jnp.concatenate(rows)


@jax.custom_jvp
def _maximum(windows):
  """Maximum over the first axis; of equal values the first has the gradient."""
  return _maximum_and_winner(windows)[0]


@_maximum.defjvp
def _maximum_jvp(primals, tangents):
  maximum, winner = _maximum_and_winner(*primals)
  return maximum, _take_winner(*tangents, winner)


# The two functions below use lax alone: jnp.where is itself a jitted function,
# which would be compiled apart too.


@_compile_apart()
def _maximum_and_winner(windows):
  """Maximum over the first axis, and the index of the first that has it."""
  maximum = windows[0]
  winner = lax.full_like(maximum, 0, jnp.int32)
  for i, candidate in enumerate(windows[1:], 1):
    better = candidate > maximum
    winner = lax.select(better, lax.full_like(winner, i), winner)
    maximum = lax.max(candidate, maximum)
  return maximum, winner


@_compile_apart()
def _take_winner(windows, winner):
  """The values at the indices `winner` of the first axis."""
  index = lax.broadcasted_iota(winner.dtype, windows.shape, 0)
  wins = index == lax.broadcast(winner, windows.shape[:1])
  return lax.select(wins, windows, lax.full_like(windows, 0)).sum(0)


def _turned(x):
  """[B, H, W, C] -> [C, H, W, B], and back."""
  return x.transpose(3, 1, 2, 0)


def _to_blocks(x, block):
  """[C, H, W, B] -> [bh, bw, C, H / bh, W / bw, B]."""
  c, h, w, batch = x.shape
  x = x.reshape(c, h // block[0], block[0], w // block[1], block[1], batch)
  return x.transpose(2, 4, 0, 1, 3, 5)


def _from_blocks(x):
  """[bh, bw, C, H, W, B] -> [C, H * bh, W * bw, B]."""
  bh, bw, c, h, w, batch = x.shape
  return x.transpose(2, 3, 0, 4, 1, 5).reshape(c, h * bh, w * bw, batch)
