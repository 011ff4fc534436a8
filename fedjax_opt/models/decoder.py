"""A transformer decoder for sequences of tokens.

References:
  Vaswani et al., "Attention Is All You Need", NeurIPS 2017; Radford et al.,
  "Language Models are Unsupervised Multitask Learners", 2019 (GPT-2).
"""

import flax.linen as nn
import jax

from fedjax_opt.models import layers

_init = nn.initializers.normal(0.02)  # As GPT-2's.


class Decoder(nn.Module):
  """Blocks of causal self-attention and a dense layer: the next token.

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
  """

  num_tokens: int
  max_length: int = 80
  width: int = 128
  num_blocks: int = 4
  num_heads: int = 4

  def setup(self):
    self.embedding = nn.Embed(self.num_tokens, self.width, embedding_init=_init)
    shape = (self.max_length, self.width)
    self.positions = self.param("positions", _init, shape)
    self.blocks = [_Block(self.num_heads) for _ in range(self.num_blocks)]
    self.norm = nn.LayerNorm(epsilon=1e-5)
    self.output = layers.Logits(self.num_tokens)

  def __call__(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Logits [B, T, num_tokens] of what follows each of x [B, T] int.

    Raises:
      ValueError: if T is larger than `max_length`.
    """
    return self.output(self.features(x, train=train))

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Normalized outputs [B, T, d] of the last block."""
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
    x += nn.MultiHeadDotProductAttention(
      self.num_heads,
      kernel_init=_init,
      attention_fn=_causal,
      name="attention",
    )(normed)
    normed = nn.LayerNorm(epsilon=1e-5, name="dense_norm")(x)
    hidden = nn.Dense(4 * width, kernel_init=_init, name="hidden")(normed)
    return x + nn.Dense(width, kernel_init=_init, name="dense")(nn.gelu(hidden))


def _causal(query, key, value, **options):
  """Attention to the tokens up to each one, its softmax in float32."""
  del options  # None of what flax offers is used.
  return jax.nn.dot_product_attention(query, key, value, is_causal=True)
