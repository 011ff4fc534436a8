"""Networks of dense layers, and of convolutions and dense layers.

References:
  Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale
  Image Recognition", ICLR 2015 (VGG).
"""

import functools
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax

from fedjax_opt.models import layers
from fedjax_opt.models.convolution import Padding, max_pool


class LinearModel(layers.Network):
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

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """The flattened input [B, d] itself."""
    del train
    return x.reshape(len(x), -1)


class MLP(layers.Network):
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
    options = {"initialization": self.initialization}
    self.layers = [layers.Dense(width, **options) for width in self.hidden]
    self.output = layers.Logits(self.num_classes, **options)

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Activations [B, d] of the last hidden layer."""
    del train
    x = x.reshape(len(x), -1)
    for layer in self.layers:
      x = self.activation(layer(x))
    return x


class CNN(layers.Network):
  """Convolutions and two dense layers.

  The defaults are the network of the Δ-SGD paper's code for 28 x 28 x 1
  images, 21,840 parameters:

    conv 5x5, 10 -> max pool 2 -> ReLU ->
    conv 5x5, 20 -> Dropout2d -> max pool 2 -> ReLU ->
    dense 50 -> ReLU -> Dropout -> dense num_classes

  Images that are too small for two 5 x 5 convolutions without padding, such as
  8 x 8, need `kernel_size=3, padding='SAME'`.

  Attributes:
    num_classes: width of the output.
    dropout: rate of both dropouts, active where `train=True`; 0 for none.
    channels: output channels of every convolution.
    kernel_size: side of the kernels.
    padding: 'VALID', 'SAME' or pixels, see `layers.Conv`.
    strided: whether convolutions have stride 2, without pooling after them, for
      a quarter of the work.
    hidden: width of the dense layer.
    initialization: distribution of the initial parameters, see `layers`.
    implementation: see `convolution.resolve_implementation`.
  """

  num_classes: int = 10
  dropout: float = 0.5
  channels: Sequence[int] = (10, 20)
  kernel_size: int = 5
  padding: Padding = "VALID"
  strided: bool = False
  hidden: int = 50
  initialization: layers.Initialization = layers.torch_uniform
  implementation: str | None = None

  def setup(self):
    options = {"initialization": self.initialization}
    conv = functools.partial(
      layers.Conv,
      kernel_size=(self.kernel_size, self.kernel_size),
      strides=(2, 2) if self.strided else (1, 1),
      padding=self.padding,
      implementation=self.implementation,
      **options,
    )
    self.convs = [conv(width) for width in self.channels]
    # Dropout2d drops whole channels of an example.
    self.channel_dropout = nn.Dropout(self.dropout, broadcast_dims=(1, 2))
    self.hidden_layer = layers.Dense(self.hidden, **options)
    self.hidden_dropout = nn.Dropout(self.dropout)
    self.output = layers.Logits(self.num_classes, **options)

  def __call__(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Logits [B, num_classes] of x [B, H, W, channels]."""
    x = self.features(x, train=train)
    return self.output(self.hidden_dropout(x, deterministic=not train))

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """Activations [B, hidden] of the dense layer, before its dropout."""
    for i, conv in enumerate(self.convs):
      x = conv(x)
      if not self.strided:
        x = max_pool(x, implementation=self.implementation)
      if i == len(self.convs) - 1:
        # In the paper's code the dropout is before the pooling. After it the
        # result is the same for a quarter of the work, because max(c y) =
        # c max(y) for a factor c >= 0.
        x = self.channel_dropout(x, deterministic=not train)
      x = nn.relu(x)
    return nn.relu(self.hidden_layer(x.reshape(len(x), -1)))


_STAGES = (
  (64, 64),
  (128, 128),
  (256, 256, 256),
  (512, 512, 512),
  (512, 512, 512),
)


class VGG(layers.Network):
  """Stages of 3 x 3 convolutions with max pooling, and a dense layer.

  The defaults are VGG-16 (configuration D) as it is used for CIFAR: 13
  convolutions, then one dense layer on 512 features, which is the size of the
  last pooling's output for images of 32 x 32. It has 14,719,818 parameters for
  10 classes.

  Attributes:
    num_classes: width of the output.
    stages: output channels of the convolutions of each stage.
    implementation: see `convolution.resolve_implementation`.
  """

  num_classes: int = 10
  stages: Sequence[Sequence[int]] = _STAGES
  implementation: str | None = None

  def setup(self):
    conv = functools.partial(
      layers.Conv,
      kernel_size=(3, 3),
      padding="SAME",
      initialization=layers.he_uniform,
      implementation=self.implementation,
    )
    self.convs = [conv(width) for stage in self.stages for width in stage]
    self.output = layers.Logits(
      self.num_classes, initialization=layers.glorot_uniform
    )

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """The output of the last pooling, flattened, [B, d]."""
    del train
    convs = iter(self.convs)
    for stage in self.stages:
      for _ in stage:
        x = nn.relu(next(convs)(x))
      x = max_pool(x, implementation=self.implementation)
    return x.reshape(len(x), -1)
