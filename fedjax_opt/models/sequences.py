"""Networks for sequences of tokens, which predict the next token.

References:
  Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 1997.
  Vaswani et al., "Attention Is All You Need", NeurIPS 2017; Radford et al.,
  "Language Models are Unsupervised Multitask Learners", 2019 (GPT-2).
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_opt.models import layers

_init = nn.initializers.normal(0.02)  # As GPT-2's.
_Dense = functools.partial(nn.Dense, kernel_init=_init)


class LSTM(layers.Network):
  """An embedding, LSTM layers, and a dense layer that predicts the next token.

  The defaults are the model of McMahan et al., AISTATS 2017, and of Reddi et
  al., "Adaptive Federated Optimization", ICLR 2021, for the next character of
  Shakespeare: embeddings of 8, two layers of 256 units. For 66 tokens it has
  0.81 million parameters.

  Attributes:
    num_tokens: tokens are in [0, num_tokens).
    embedding_size: width of the embedding.
    hidden: width of each LSTM layer.
  """

  num_tokens: int
  embedding_size: int = 8
  hidden: tuple[int, ...] = (256, 256)

  def setup(self):
    self.embedding = nn.Embed(self.num_tokens, self.embedding_size)
    self.layers = [nn.RNN(nn.OptimizedLSTMCell(width)) for width in self.hidden]
    self.output = layers.Logits(self.num_tokens)

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Outputs [B, T, d] of the last LSTM layer."""
    del train
    x = self.embedding(x)
    for layer, width in zip(self.layers, self.hidden, strict=True):
      # In the dtype of the parameters; the cell's own would be float32.
      zeros = jnp.zeros((len(x), width), x.dtype)
      x = layer(x, initial_carry=(zeros, zeros))
    return x


class Decoder(layers.Network):
  """Causal self-attention blocks, and a dense layer for the next token.

  As in GPT-2: positions are learned, and layers are normalized before each part
  of a block and at the end. The default sizes are those of Karpathy's nanoGPT
  for the characters of Shakespeare on a CPU: 4 blocks, 4 heads, width 128, no
  dropout. For 66 tokens and 80 positions it has 0.82 million parameters, as
  many as `LSTM`. Normalizations and the softmax compute in float32.

  Attributes:
    num_tokens: tokens are in [0, num_tokens).
    max_length: longest sequence.
    width: d, a multiple of `num_heads`.
    num_blocks: number of blocks.
    num_heads: attention heads of a block.
    remat: whether gradients compute each block again instead of storing its
      activations: less memory, a third more to compute.
  """

  num_tokens: int
  max_length: int = 80
  width: int = 128
  num_blocks: layers.Depth = 4
  num_heads: int = 4
  remat: bool = False

  def setup(self):
    if self.width % self.num_heads:
      raise ValueError(
        f"num_heads={self.num_heads}: must divide width={self.width}"
      )
    self.embedding = nn.Embed(self.num_tokens, self.width, embedding_init=_init)
    shape = (self.max_length, self.width)
    self.positions = self.param("positions", _init, shape)
    block = nn.remat(_Block) if self.remat else _Block
    self.blocks = [block(self.num_heads) for _ in range(self.num_blocks)]
    self.norm = nn.LayerNorm(epsilon=1e-5)
    self.output = layers.Logits(self.num_tokens)

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Normalized outputs [B, T, d] of the last block.

    Raises:
      ValueError: if T is larger than `max_length`.
    """
    del train
    length = x.shape[1]
    if length > self.max_length:
      raise ValueError(
        f"x: has sequences of {length} tokens; must be at most "
        f"max_length={self.max_length}"
      )
    x = self.embedding(x) + self.positions[:length]
    for block in self.blocks:
      x = block(x)
    return self.norm(x)


class _Block(nn.Module):
  """x + attention(norm(x)), then x + dense(norm(x)) with 4 d hidden units."""

  num_heads: int

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Maps [B, T, d] to the same shape."""
    width = x.shape[-1]
    normed = nn.LayerNorm(epsilon=1e-5, name="attention_norm")(x)
    heads = self.num_heads, self.num_heads
    x += Attention(_Dense, *heads, name="attention")(normed)
    normed = nn.LayerNorm(epsilon=1e-5, name="dense_norm")(x)
    hidden = _Dense(4 * width, name="hidden")(normed)
    return x + _Dense(width, name="dense")(nn.gelu(hidden))


class Attention(nn.Module):
  """Attention to the tokens up to each one, its softmax in float32.

  Attributes:
    dense: `(width, name=...) -> layer`, of queries, keys, values and output.
    num_heads: heads of the queries.
    num_kv_heads: heads of the keys and values; each is for as many heads of
      queries, which follow each other.
    turned: what is made of queries and of keys [B, T, heads, size]; None for
      nothing.
  """

  dense: Callable[..., nn.Module]
  num_heads: int
  num_kv_heads: int
  turned: Callable[[jax.Array], jax.Array] | None = None

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Maps [B, T, d] to the same shape."""
    size = x.shape[-1] // self.num_heads
    turned = self.turned or (lambda heads: heads)

    def heads_of(name, number):  # [B, T, number, d / num_heads]
      y = self.dense(number * size, name=name)(x)
      return y.reshape(*y.shape[:2], number, size)

    query = turned(heads_of("query", self.num_heads))
    key = turned(heads_of("key", self.num_kv_heads))
    value = heads_of("value", self.num_kv_heads)
    mixed = jax.nn.dot_product_attention(query, key, value, is_causal=True)
    return self.dense(x.shape[-1], name="out")(mixed.reshape(x.shape))
