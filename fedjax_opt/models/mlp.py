"""Multilayer perceptron."""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax

from fedjax_opt.models import layers


class MLP(nn.Module):
  """Dense layers with an activation between them.

  Attributes:
    hidden: width of every hidden layer.
    num_classes: width of the output.
    activation: applied after every hidden layer.
    initialization: distribution of the initial parameters, see `layers`.
  """

  hidden: Sequence[int] = (100,)
  num_classes: int = 10
  activation: Callable[[jax.Array], jax.Array] = nn.relu
  initialization: layers.Initialization = layers.torch_uniform

  def setup(self):
    self.layers = [
      layers.Dense(width, initialization=self.initialization)
      for width in self.hidden
    ]
    self.output = layers.Logits(
      self.num_classes, initialization=self.initialization
    )

  def __call__(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Logits [B, num_classes] of x [B, ...], which is flattened."""
    return self.output(self.features(x, train=train))

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Activations [B, d] of the last hidden layer."""
    del train
    x = x.reshape(len(x), -1)
    for layer in self.layers:
      x = self.activation(layer(x))
    return x
