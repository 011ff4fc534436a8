"""VGG-16 for images of 32 x 32 pixels, without normalization layers.

References:
  Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale
  Image Recognition", ICLR 2015.
"""

from collections.abc import Sequence

import flax.linen as nn
import jax

from fedjax_opt.models import layers

_STAGES = (
  (64, 64),
  (128, 128),
  (256, 256, 256),
  (512, 512, 512),
  (512, 512, 512),
)


class VGG(nn.Module):
  """Stages of 3 x 3 convolutions with max pooling, and a dense layer.

  The defaults are VGG-16 (configuration D) as it is used for CIFAR: 13
  convolutions, then one dense layer on 512 features, which is the size of the
  last pooling's output for images of 32 x 32. It has 14,719,818 parameters for
  10 classes.

  Attributes:
    num_classes: width of the output.
    stages: output channels of the convolutions of each stage.
    implementation: see `layers.resolve_implementation`.
  """

  num_classes: int = 10
  stages: Sequence[Sequence[int]] = _STAGES
  implementation: str | None = None

  def setup(self):
    self.convs = [
      layers.Conv(
        width,
        (3, 3),
        padding="SAME",
        initialization=layers.he_uniform,
        implementation=self.implementation,
      )
      for stage in self.stages
      for width in stage
    ]
    self.output = layers.Logits(
      self.num_classes, initialization=layers.glorot_uniform
    )

  def __call__(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Logits [B, num_classes] of x [B, H, W, C]."""
    return self.output(self.features(x, train=train))

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """The output of the last pooling, flattened, [B, d]."""
    del train
    convs = iter(self.convs)
    for stage in self.stages:
      for _ in stage:
        x = nn.relu(next(convs)(x))
      x = layers.max_pool(x, implementation=self.implementation)
    return x.reshape(len(x), -1)
