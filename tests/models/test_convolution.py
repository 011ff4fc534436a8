"""Convolution and pooling against lax."""

import functools
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_opt import target
from fedjax_opt.models import convolution
from tests.helpers import refusals

# Image height, width; kernel height, width, in, out; strides; padding.
CONVOLUTIONS = [
  (28, 28, 5, 5, 1, 10, (1, 1), "VALID"),
  (12, 12, 5, 5, 10, 20, (1, 1), "VALID"),
  (8, 8, 3, 3, 2, 4, (1, 1), "SAME"),
  (8, 8, 4, 4, 2, 3, (1, 1), "SAME"),
  (6, 6, 3, 3, 2, 40, (1, 1), "SAME"),
  (8, 8, 3, 3, 2, 4, (2, 2), "SAME"),
  (9, 8, 3, 3, 2, 4, (2, 1), "VALID"),
  (11, 8, 1, 1, 3, 4, (2, 2), "VALID"),
  (10, 10, 2, 2, 3, 4, (3, 3), "VALID"),
  (5, 5, 3, 3, 2, 4, (1, 1), ((1, 1), (2, 0))),
  (5, 5, 5, 5, 2, 4, (1, 1), "VALID"),
]


def _reference(x, kernel, bias, strides, padding):
  y = lax.conv_general_dilated(
    x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
  )
  return y + bias


def _arrays(case, batch=3, seed=0):
  h, w, kh, kw, i, o, _, _ = case
  rng = np.random.default_rng(seed)
  shapes = (batch, h, w, i), (kh, kw, i, o), (o,)
  scales = 1.0, (kh * kw * i) ** -0.5, 1.0
  return tuple(
    jnp.asarray(rng.normal(size=shape) * scale, jnp.float32)
    for shape, scale in zip(shapes, scales, strict=True)
  )


def _with_gradients(function):
  """Value and gradients of a weighted mean of the outputs, smooth weights."""

  def loss(*args):
    y = function(*args)
    weights = jnp.sin(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
    return (y * weights).sum() / y.size**0.5, y

  return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))


_assert_trees_close = functools.partial(
  chex.assert_trees_all_close, rtol=1e-5, atol=1e-5
)


def _both(implementation, strides, padding):
  """Our convolution, and the one of lax."""
  return (
    lambda x, k, b: convolution.conv(x, k, b, strides, padding, implementation),
    lambda x, k, b: _reference(x, k, b, strides, padding),
  )


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.slow_cases(*map(str, CONVOLUTIONS[1:5:2] + CONVOLUTIONS[6:12:4]))
def test_conv_and_gradients_equal_lax(case):
  """Of two clients, each with a kernel of its own."""
  *_, strides, padding = case
  arrays = zip(_arrays(case), _arrays(case, seed=1), strict=True)
  of_clients = [
    jax.vmap(_with_gradients(function))
    for function in _both("matmul", strides, padding)
  ]
  evaluate = jax.jit(lambda *args: [call(*args) for call in of_clients])
  _assert_trees_close(*evaluate(*map(jnp.stack, arrays)))


@pytest.mark.parametrize("case", CONVOLUTIONS[5:13:2], ids=str)
def test_gradients_on_several_devices_equal_lax(case):
  *_, strides, padding = case
  x, kernel, bias = _arrays(case)
  kernels = kernel * jnp.arange(1.0, 7.0).reshape(2, 3, 1, 1, 1, 1)
  images = jnp.stack([x, -x, x + 1])

  def of_all(function):  # Settings [2] over clients [3] with the same images.
    squared = lambda *args: function(*args) ** 2  # Gradients of own outputs.
    of_clients = jax.vmap(_with_gradients(squared), (0, 0, None))
    return jax.vmap(of_clients, (None, 0, None))

  ours, plain = map(of_all, _both("lax", strides, padding))
  on_devices = jax.shard_map(
    ours,
    mesh=jax.make_mesh((1, 1), ("clients", "grid")),
    in_specs=jax.P(),
    out_specs=jax.P(),
    check_vma=False,
  )
  evaluate = jax.jit(lambda *args: [of(*args) for of in (on_devices, plain)])
  _assert_trees_close(*evaluate(images, kernels, bias))


@pytest.mark.parametrize("shape", [(2, 7, 5, 3), (1, 9, 6, 1)])
@pytest.mark.parametrize("size", [2, 3])
def test_max_pool_and_gradient_equal_reduce_window(shape, size):
  # Few distinct values: ties must go to the first, as reduce_window does.
  x = np.random.default_rng(0).integers(0, 4, shape).astype(np.float32)

  def loss(x, implementation):
    y = convolution.max_pool(x, size, implementation)
    return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum(), y

  @jax.jit
  def evaluate(x):
    of = jax.value_and_grad(loss, has_aux=True)
    with target.use([types.SimpleNamespace(platform="cuda")]):
      on_gpu = of(x, "lax")
    return of(x, "lax"), of(x, "matmul"), on_gpu

  expected, *outputs = evaluate(x)
  for actual in outputs:
    _assert_trees_close(actual, expected)


def test_max_pool_has_forward_derivatives():
  x = jnp.arange(16.0).reshape(1, 4, 4, 1)
  _, tangent = jax.jvp(
    lambda x: convolution.max_pool(x, implementation="matmul"), (x,), (2 * x,)
  )
  np.testing.assert_allclose(tangent[0, :, :, 0], [[10, 14], [26, 30]])


@pytest.mark.parametrize("bias", [True, False])
def test_conv_has_the_type_of_its_images_and_kernel(bias):
  x, kernel, of_bias = _arrays(CONVOLUTIONS[2])
  x, kernel = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
  ours, plain = (
    convolution.conv(
      x, kernel, of_bias if bias else None, implementation=implementation
    )
    for implementation in ("matmul", "lax")
  )
  assert ours.dtype == plain.dtype == jnp.bfloat16
  np.testing.assert_allclose(
    np.float32(ours), np.float32(plain), rtol=0.02, atol=0.03
  )


@pytest.mark.parametrize("implementation", ["lax", "matmul"])
def test_conv_of_an_empty_batch(implementation):
  args = _arrays(CONVOLUTIONS[2], batch=0)
  conv = lambda *args: convolution.conv(*args, implementation=implementation)
  assert conv(*args).shape == (0, 6, 6, 4)
  grads = jax.grad(lambda *args: conv(*args).sum(), argnums=(1, 2))(*args)
  _assert_trees_close(grads, tuple(map(jnp.zeros_like, args[1:])))


IMAGE = np.ones((1, 4, 4, 1), np.float32)
test_is_refused = refusals.of_table("convolution.txt", convolution, IMAGE=IMAGE)
