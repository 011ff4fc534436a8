"""Layers that the models share: dense, convolution, pooling, normalization.

Parameters have flax.linen's names and shapes on every backend: `kernel`,
[in, out] or [kh, kw, in, out], and `bias`, [out]. Images are [B, H, W, C].

The numbers are those of `lax.conv_general_dilated` and `lax.reduce_window`.
How they are computed depends on the backend, see `resolve_implementation`.

Dense and convolution layers compute in the type of their kernel, whatever that
of their input; normalizations in float32 at least, and give the type of their
input back.
"""

import functools
import itertools
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from fedjax_opt.base import at_least_float32
from fedjax_opt.models import statistics
from fedjax_opt.registry import check_choice

# (fan_in, fan_out) -> half widths of the uniform laws of kernel and bias.
Initialization = Callable[[int, int], tuple[float, float]]
Padding = str | Sequence[tuple[int, int]]


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


def _uniform(half_width: float) -> nn.initializers.Initializer:
  def init(key, shape, dtype=jnp.float32):
    return jax.random.uniform(key, shape, dtype, -half_width, half_width)

  return init if half_width else nn.initializers.zeros


class Dense(nn.Module):
  """Affine map of the last axis, with one argument for both initial laws.

  Attributes:
    features: width of the output.
    use_bias: whether a bias is added.
    initialization: law of the initial parameters.
  """

  features: int
  use_bias: bool = True
  initialization: Initialization = torch_uniform

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Maps [..., in] to [..., features]."""
    fan_in = x.shape[-1]
    kernel_width, bias_width = self.initialization(fan_in, self.features)
    kernel = self.param(
      "kernel", _uniform(kernel_width), (fan_in, self.features)
    )
    x = x.astype(kernel.dtype) @ kernel
    if self.use_bias:
      x += self.param("bias", _uniform(bias_width), (self.features,))
    return x


class Logits(Dense):
  """A model's last layer: its output is at least float32, for the loss."""

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Maps [..., in] to [..., features]."""
    return at_least_float32(super().__call__(x))


class Conv(nn.Module):
  """Two-dimensional convolution layer; see `conv`.

  Attributes:
    features: channels of the output.
    kernel_size: height and width of the kernel.
    strides: steps between outputs, in pixels.
    padding: 'VALID', 'SAME' or ((top, bottom), (left, right)) in pixels.
    use_bias: whether a bias is added.
    initialization: law of the initial parameters.
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
    """Maps [B, H, W, C] to [B, H', W', features]."""
    kh, kw = self.kernel_size
    kernel_width, bias_width = self.initialization(
      kh * kw * x.shape[-1], kh * kw * self.features
    )
    kernel = self.param(
      "kernel", _uniform(kernel_width), (kh, kw, x.shape[-1], self.features)
    )
    bias = None
    if self.use_bias:
      bias = self.param("bias", _uniform(bias_width), (self.features,))
    x = x.astype(kernel.dtype)
    return conv(
      x, kernel, bias, self.strides, self.padding, self.implementation
    )


def resolve_implementation(implementation: str | None) -> str:
  """Picks how convolution and pooling are computed.

  `'lax'` is XLA's own convolution and window reduction. On CPU, inside a
  compiled loop (`scan`, `map`, `fori_loop`: everywhere in federated training),
  that convolution is an order of magnitude too slow, so there the default is
  `'matmul'`: the same numbers by copies and one matrix product.

  Args:
    implementation: 'lax', 'matmul', or None to choose by backend.

  Returns:
    'lax' or 'matmul'.

  Raises:
    ValueError: if it is another name.
  """
  if implementation is None:
    return "matmul" if jax.default_backend() == "cpu" else "lax"
  if implementation not in ("lax", "matmul"):
    raise ValueError(
      f"implementation={implementation!r}: expected 'lax', 'matmul' or None."
    )
  return implementation


def conv(
  x: jax.Array,
  kernel: jax.Array,
  bias: jax.Array | None = None,
  strides: tuple[int, int] = (1, 1),
  padding: Padding = "VALID",
  implementation: str | None = None,
) -> jax.Array:
  """Two-dimensional convolution, as deep learning means it (no flip).

  Args:
    x: images [B, H, W, I].
    kernel: weights [kh, kw, I, O].
    bias: added to every output pixel, [O], or None.
    strides: steps between outputs, in pixels.
    padding: 'VALID', 'SAME' or ((top, bottom), (left, right)) in pixels.
    implementation: see `resolve_implementation`.

  Returns:
    Images [B, H', W', O].

  Raises:
    ValueError: if the channels differ (grouped convolution is not supported)
      or the kernel does not fit into the padded image.
  """
  if x.shape[-1] != kernel.shape[2]:
    raise ValueError(
      f"kernel takes {kernel.shape[2]} channels but x has {x.shape[-1]}: "
      "expected equal numbers, one feature group."
    )
  if isinstance(padding, str):
    padding = lax.padtype_to_pads(
      x.shape[1:3], kernel.shape[:2], strides, padding
    )
  padded = [n + sum(pad) for n, pad in zip(x.shape[1:3], padding, strict=True)]
  if any(n < k for n, k in zip(padded, kernel.shape[:2], strict=True)):
    raise ValueError(
      f"x of {padded[0]} x {padded[1]} pixels after padding: expected at "
      f"least the kernel's {kernel.shape[0]} x {kernel.shape[1]}."
    )
  x, kernel = nn.dtypes.promote_dtype(x, kernel)
  if resolve_implementation(implementation) == "matmul":
    return _conv_matmul(x, kernel, bias, strides, padding)
  y = lax.conv_general_dilated(
    x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
  )
  return y if bias is None else y + bias


def max_pool(
  x: jax.Array, size: int = 2, implementation: str | None = None
) -> jax.Array:
  """Maximum over windows of size x size pixels that do not overlap.

  Pixels beyond the last whole window are dropped. Where several pixels of a
  window are largest, the first gets the gradient (as in PyTorch).

  Args:
    x: images [B, H, W, C].
    size: side of a window and step between windows, in pixels.
    implementation: see `resolve_implementation`.

  Returns:
    Images [B, H // size, W // size, C].

  Raises:
    ValueError: if an image is smaller than one window.
  """
  h, w = x.shape[1] // size, x.shape[2] // size
  if h == 0 or w == 0:
    raise ValueError(
      f"x of {x.shape[1]} x {x.shape[2]} pixels: expected at least one "
      f"pooling window of {size} x {size}."
    )
  if resolve_implementation(implementation) == "lax":
    return nn.max_pool(x, (size, size), strides=(size, size))
  x = _batch_last(x[:, : h * size, : w * size])
  windows = _to_blocks(x, (size, size))
  windows = windows.reshape(size * size, *windows.shape[2:])
  return _batch_first(_maximum(windows))


NORMS = ("group", "batch", "none")


class Norm(nn.Module):
  """Normalization of the channels, by groups, by batch, or none at all.

  Attributes:
    kind: 'group', 'batch' or 'none'.
    num_groups: groups of channels, for 'group'.
  """

  kind: str = "group"
  num_groups: int = 8

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """Maps [B, H, W, C] to the same shape.

    Raises:
      ValueError: for another kind, or groups that do not divide the channels.
    """
    check_choice("norm", self.kind, NORMS)
    if self.kind == "none":
      return x
    if self.kind == "batch":
      return BatchNorm()(x, train=train)
    if self.num_groups < 1 or x.shape[-1] % self.num_groups:
      raise ValueError(
        f"num_groups={self.num_groups}: must divide the {x.shape[-1]} channels"
      )
    return nn.GroupNorm(self.num_groups, epsilon=1e-5)(x)


class BatchNorm(nn.Module):
  """Batch normalization whose running statistics are parameters.

  flax.linen's own keeps them in a collection of their own, which neither
  algorithms nor rules would see. See `statistics`.

  Attributes:
    momentum: how much of the running statistics a batch leaves.
    epsilon: added to the variance.
  """

  momentum: float = 0.9
  epsilon: float = 1e-5

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """Maps [B, ..., C] to the same shape."""
    channels = (x.shape[-1],)
    scale = self.param("scale", nn.initializers.ones, channels)
    bias = self.param("bias", nn.initializers.zeros, channels)
    running_mean = self.param("running_mean", nn.initializers.zeros, channels)
    running_var = self.param("running_var", nn.initializers.ones, channels)
    dtype = jnp.promote_types(x.dtype, scale.dtype)
    x = at_least_float32(x)
    mean, var = running_mean, running_var
    if train:
      axes = tuple(range(x.ndim - 1))
      mean, var = jnp.mean(x, axes), jnp.var(x, axes)
      num = x.size // x.shape[-1]
      # As PyTorch: normalized with the biased variance, kept is the unbiased.
      for running, seen in (
        (running_mean, mean),
        (running_var, var * (num / max(num - 1, 1))),
      ):
        new = self.momentum * running + (1 - self.momentum) * seen
        x = statistics.attach(x, running, new.astype(running.dtype))
    x = (x - mean) * lax.rsqrt(var + self.epsilon) * scale + bias
    return x.astype(dtype)


# ---- What 'matmul' does -----------------------------------------------------
#
# All work is done batch-last, [C, H, W, B]: a step in H or W is then a step
# over whole runs of B numbers, which copies and compares vectorised. Patches
# are gathered into a matrix, one column per output pixel, for one product with
# the kernel. A product with few rows wastes the vector units, and the patch
# matrix repeats every pixel kh * kw times; so a kernel with few outputs is
# laid out for a block of 2 x 2 output pixels at once: four times the rows, a
# quarter of the columns, for ((kh+1)(kw+1))/(kh kw) of the multiplications.
# Max pooling then reads its windows straight from the rows.


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
  # Everything below moves in blocks of `block` input, `tile` output pixels.
  block = tile[0] * strides[0], tile[1] * strides[1]
  grid = out_size[0] // tile[0], out_size[1] // tile[1]
  kernel = _tile_kernel(kernel, tile, strides)  # [tiles, wh, ww, I, O]
  window = kernel.shape[1:3]

  needed = [
    (n - 1 + -(-k // b)) * b
    for n, k, b in zip(grid, window, block, strict=True)
  ]
  edges = [
    (before, n - before - size, 0)
    for n, size, (before, _) in zip(needed, x.shape[1:3], padding, strict=True)
  ]
  x = lax.pad(
    _batch_last(x), jnp.zeros((), x.dtype), [(0, 0, 0), *edges, (0, 0, 0)]
  )
  patches = _patches(x, block, window, grid, bias is not None)
  rows = [
    kernel[:, i, j].reshape(len(kernel), -1, features)
    for i, j in _window_parts(block, window)
  ]
  if bias is not None:
    # The bias is the weight of a patch row of ones.
    bias = jnp.asarray(bias, x.dtype)
    rows.append(jnp.broadcast_to(bias, (len(kernel), 1, features)))
  weights = jnp.concatenate(rows, 1).transpose(0, 2, 1)
  y = weights.reshape(-1, len(patches)) @ patches.reshape(len(patches), -1)
  y = y.reshape(*tile, features, *patches.shape[1:])
  return _batch_first(_from_blocks(y))


def _tile(kernel_shape, strides, out_size):
  """Height and width of the block of output pixels computed at once."""
  kh, kw, _, features = kernel_shape
  worth = features <= 32 and min(kh, kw) >= 3 and tuple(strides) == (1, 1)
  return tuple(2 if worth and n % 2 == 0 else 1 for n in out_size)


def _tile_kernel(kernel, tile, strides):
  """One shifted copy of the kernel per pixel of the tile: [tiles, ...]."""
  copies = []
  for i, j in itertools.product(*map(range, tile)):
    shift = [
      (n * step, (size - 1 - n) * step)
      for n, step, size in zip((i, j), strides, tile, strict=True)
    ]
    copies.append(jnp.pad(kernel, [*shift, (0, 0), (0, 0)]))
  return jnp.stack(copies)


def _window_parts(block, window):
  """The slices of whole or cut blocks that make up a window, in row order."""
  sides = [
    [slice(start, min(start + b, size)) for start in range(0, size, b)]
    for b, size in zip(block, window, strict=True)
  ]
  return itertools.product(*sides)


def _compile_apart(function=None, *, static_argnums=()):
  """Keeps XLA from fusing a function into what reads its result.

  XLA:CPU fuses cheap producers into every consumer. Here one array is read
  through many overlapping slices, each of which would compute it again.
  """
  if function is None:
    return functools.partial(_compile_apart, static_argnums=static_argnums)
  jitted = jax.jit(function, static_argnums=static_argnums)

  @functools.wraps(function)
  def call(*args):
    with set_xla_metadata(inlineable="false"):
      return jitted(*args)

  return call


@_compile_apart(static_argnums=(1, 2, 3, 4))
def _patches(x, block, window, grid, ones):
  """Windows of x [I, H, W, B] as [window * I (+ 1), *grid, B]."""
  blocks = _to_blocks(x, block)  # [*block, I, H', W', B]
  # Rank four to the end: with merged pixels the copies are not vectorised.
  shape = (-1, *grid, x.shape[-1])
  rows = []
  for i, j in _window_parts(block, window):
    top, left = i.start // block[0], j.start // block[1]
    # One slice, not two: its gradient is then one padding.
    part = blocks[
      : i.stop - i.start,
      : j.stop - j.start,
      :,
      top : top + grid[0],
      left : left + grid[1],
    ]
    rows.append(part.reshape(shape))
  if ones:
    rows.append(jnp.ones((1, *shape[1:]), x.dtype))
  return jnp.concatenate(rows)


@jax.custom_jvp
def _maximum(windows):
  """Maximum over the first axis; the first of equals gets the gradient."""
  return _maximum_and_winner(windows)[0]


@_maximum.defjvp
def _maximum_jvp(primals, tangents):
  maximum, winner = _maximum_and_winner(*primals)
  return maximum, _take_winner(*tangents, winner)


# Only lax inside: jnp.where is a jitted function, hence itself kept apart.


@_compile_apart
def _maximum_and_winner(windows):
  maximum = windows[0]
  winner = lax.full_like(maximum, 0, jnp.int32)
  for i, candidate in enumerate(windows[1:], 1):
    better = candidate > maximum
    winner = lax.select(better, lax.full_like(winner, i), winner)
    maximum = lax.max(candidate, maximum)
  return maximum, winner


@_compile_apart
def _take_winner(windows, winner):
  number = lax.broadcasted_iota(winner.dtype, windows.shape, 0)
  wins = number == lax.broadcast(winner, windows.shape[:1])
  return lax.select(wins, windows, lax.full_like(windows, 0)).sum(0)


def _batch_last(x):
  return x.transpose(3, 1, 2, 0)


def _batch_first(x):
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
