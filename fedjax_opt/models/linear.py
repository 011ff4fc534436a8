"""Linear model: linear regression, and logistic regression with its logits."""

import flax.linen as nn
import jax

from fedjax_opt.models import layers


class LinearModel(nn.Module):
  """One affine map of the flattened input: `x W + b`.

  It is linear regression with the squared loss, and logistic regression with
  the logistic or cross-entropy loss.

  Attributes:
    num_outputs: number of classes or of regression targets.
    use_bias: whether `b` is added.
    initialization: distribution of the initial parameters, see `layers`.
  """

  num_outputs: int
  use_bias: bool = True
  initialization: layers.Initialization = layers.torch_uniform

  def setup(self):
    self.output = layers.Logits(
      self.num_outputs, self.use_bias, self.initialization
    )

  def __call__(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Outputs [B, num_outputs] of x [B, ...]."""
    return self.output(self.features(x, train=train))

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """The flattened input [B, d] itself."""
    del train
    return x.reshape(len(x), -1)
