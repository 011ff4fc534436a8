"""A decoder of Llama's form, which predicts the next token.

References:
  Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023;
  Su et al., "RoFormer", 2021 (rotary positions); Shazeer, "GLU Variants Improve
  Transformer", 2020 (SwiGLU); Ainslie et al., "GQA", EMNLP 2023 (grouped
  queries); Zhang and Sennrich, NeurIPS 2019 (RMSNorm).
"""

import functools
from typing import Annotated

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_opt.arrays.trees import at_least_float32
from fedjax_opt.checks import fields
from fedjax_opt.models import layers
from fedjax_opt.models.sequences import Attention

_init = nn.initializers.normal(0.02)
_Dense = functools.partial(nn.Dense, use_bias=False, kernel_init=_init)


class Llama(layers.Network):
  """Causal self-attention blocks, and a dense layer for the next token.

  Positions turn the queries and keys. Layers have no biases. The root mean
  squares of their inputs are normalized before each part of a block and at the
  end. Normalizations, rotations and the softmax compute in float32.

  Attributes:
    num_tokens: tokens are in [0, num_tokens).
    width: d, a multiple of 2 `num_heads`.
    intermediate: width of the dense layers inside a block.
    num_blocks: number of blocks.
    num_heads: heads of the queries of a block, a multiple of `num_kv_heads`.
    num_kv_heads: heads of the keys and values; each is for as many heads of
      queries, which follow each other.
    rope_theta: base of the wave lengths of the rotations.
    norm_eps: added to the mean squares.
    is_tied: whether the last layer is the embedding, transposed.
    remat: whether gradients compute each block again, see `Decoder`.
  """

  num_tokens: int
  width: int = 128
  intermediate: int = 344
  num_blocks: layers.Depth = 4
  num_heads: int = 4
  num_kv_heads: int = 4
  rope_theta: Annotated[float, fields.plain_number("(0, inf)")] = 10_000.0
  norm_eps: float = 1e-5
  is_tied: bool = False
  remat: bool = False

  def setup(self):
    if self.width % (2 * self.num_heads):
      raise ValueError(
        f"num_heads={self.num_heads}: must divide half of width={self.width}"
      )
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f"num_kv_heads={self.num_kv_heads}: must divide "
        f"num_heads={self.num_heads}"
      )
    self.embedding = nn.Embed(self.num_tokens, self.width, embedding_init=_init)
    block = nn.remat(_Block) if self.remat else _Block
    sizes = (self.intermediate, self.num_heads, self.num_kv_heads)
    numbers = (self.rope_theta, self.norm_eps)
    self.blocks = [block(*sizes, *numbers) for _ in range(self.num_blocks)]
    self.norm = nn.RMSNorm(epsilon=self.norm_eps)
    if self.is_tied:
      self.output = lambda x: at_least_float32(self.embedding.attend(x))
    else:
      self.output = layers.Logits(self.num_tokens, use_bias=False)

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Normalized outputs [B, T, d] of the last block."""
    del train
    x = self.embedding(x)
    for block in self.blocks:
      x = block(x)
    return self.norm(x)


class _Block(nn.Module):
  """x + attention(norm(x)), then x + down(silu(gate(y)) up(y)), y = norm(x)."""

  intermediate: int
  num_heads: int
  num_kv_heads: int
  rope_theta: float
  norm_eps: float

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Maps [B, T, d] to the same shape."""
    norm = functools.partial(nn.RMSNorm, epsilon=self.norm_eps)
    turned = functools.partial(_rotated, theta=self.rope_theta)
    heads = self.num_heads, self.num_kv_heads
    attention = Attention(_Dense, *heads, turned, name="attention")
    x += attention(norm(name="attention_norm")(x))
    y = norm(name="dense_norm")(x)
    gate, up = (
      _Dense(self.intermediate, name=name)(y) for name in ("gate", "up")
    )
    return x + _Dense(x.shape[-1], name="down")(nn.silu(gate) * up)


def _rotated(x: jax.Array, theta: float) -> jax.Array:
  """Turns pairs of numbers of [B, T, heads, size] by angles of the position.

  As in the layout of Hugging Face, the i-th number has the i-th of the second
  half as its partner.
  """
  length, half = x.shape[1], x.shape[-1] // 2
  angles = jnp.arange(length)[:, None] * theta ** -(jnp.arange(half) / half)
  cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
  first, second = jnp.split(at_least_float32(x), 2, axis=-1)
  turned = [first * cos - second * sin, second * cos + first * sin]
  return jnp.concatenate(turned, axis=-1).astype(x.dtype)
