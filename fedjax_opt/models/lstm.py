"""Long short-term memory for sequences of tokens.

References:
  Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 1997.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_opt.models import layers


class LSTM(nn.Module):
  """An embedding, LSTM layers, and a dense layer: the next token.

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

  def __call__(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Logits [B, T, num_tokens] of what follows each of x [B, T] int."""
    return self.output(self.features(x, train=train))

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Outputs [B, T, d] of the last LSTM layer."""
    del train
    x = self.embedding(x)
    for layer, width in zip(self.layers, self.hidden, strict=True):
      # In the dtype of the parameters; the cell's own would be float32.
      zeros = jnp.zeros((len(x), width), x.dtype)
      x = layer(x, initial_carry=(zeros, zeros))
    return x
