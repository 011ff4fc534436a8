"""Residual networks for images of 32 x 32 pixels.

References:
  He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR
  2016: section 4.2 for ResNet-20 and -56, table 1 for ResNet-18 and -50.
"""

import functools
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_opt.checks.values import check_choice, check_count
from fedjax_opt.models import layers


class ResNet(layers.Network):
  """A 3 x 3 convolution, stages of residual blocks, mean pooling, dense layer.

  All but the first stage begin with a block of stride 2.

  Attributes:
    blocks: number of blocks of each stage.
    widths: channels of each stage; the output of a bottleneck block has four
      times as many.
    num_classes: width of the output.
    bottleneck: whether the convolutions of a block are 1 x 1, 3 x 3, 1 x 1 and
      not 3 x 3, 3 x 3.
    projection: the shortcut if shapes differ: a 1 x 1 convolution if True; else
      the subsampled input with zeros in the new channels.
    norm: normalization after each convolution: 'group', 'batch' (see
      `statistics`), 'batch_untracked' (as 'batch', but those on the residual
      path of a block have no running statistics, as in the ResNet-18 of the
      Δ-SGD paper's program) or 'none' (then the convolutions have a bias).
    num_groups: number of groups of channels for 'group'; must divide all
      widths.
    implementation: see `convolution.resolve_implementation`.
  """

  blocks: Sequence[int]
  widths: Sequence[int]
  num_classes: int = 10
  bottleneck: bool = False
  projection: bool = True
  norm: str = "group"
  num_groups: int = 8
  implementation: str | None = None

  def setup(self):
    check_choice("norm", self.norm, layers.NORMS)
    check_count("widths", self.widths, len(self.blocks), "stages of blocks")
    if not len(self.blocks):
      raise ValueError("blocks: is empty; must be at least one stage")
    conv = functools.partial(
      layers.Conv,
      use_bias=self.norm == "none",
      initialization=layers.he_uniform,
      implementation=self.implementation,
    )
    norm = functools.partial(layers.Norm, num_groups=self.num_groups)
    # Of stem and shortcut, which keep running statistics in any case.
    tracked = "batch" if self.norm == "batch_untracked" else self.norm
    self.stem = conv(self.widths[0], (3, 3), padding="SAME")
    self.stem_norm = norm(tracked)
    self.stages = [
      [
        _Block(
          width,
          stride=2 if i > 0 and j == 0 else 1,
          bottleneck=self.bottleneck,
          projection=self.projection,
          conv=conv,
          norm=functools.partial(norm, self.norm),
          shortcut_norm=functools.partial(norm, tracked),
        )
        for j in range(count)
      ]
      for i, (width, count) in enumerate(
        zip(self.widths, self.blocks, strict=True)
      )
    ]
    self.output = layers.Logits(
      self.num_classes, initialization=layers.glorot_uniform
    )

  def features(self, x: jax.Array, *, train: bool = False) -> jax.Array:
    """The mean of the last block's output over the pixels, [B, d]."""
    x = nn.relu(self.stem_norm(self.stem(x), train=train))
    for stage in self.stages:
      for block in stage:
        x = block(x, train=train)
    return jnp.mean(x, axis=(1, 2))


class _Block(nn.Module):
  """A residual block: ReLU(shortcut(x) + residual(x)).

  Attributes:
    width: channels of the inner convolutions.
    stride: stride of the first 3 x 3 convolution.
    bottleneck: see `ResNet`.
    projection: see `ResNet`.
    conv: makes a convolution.
    norm: makes a normalization of the residual path.
    shortcut_norm: makes one of the shortcut.
  """

  width: int
  stride: int
  bottleneck: bool
  projection: bool
  conv: Callable[..., nn.Module]
  norm: Callable[[], nn.Module]
  shortcut_norm: Callable[[], nn.Module]

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """Maps [B, H, W, channels] to [B, H / stride, W / stride, features]."""
    inner, outer = self.width, 4 * self.width
    parts = [(inner, 3, self.stride), (inner, 3, 1)]
    if self.bottleneck:
      parts = [(inner, 1, 1), (inner, 3, self.stride), (outer, 1, 1)]
    residual = x
    for i, part in enumerate(parts):
      residual = self._conv_and_norm(residual, *part, self.norm, train)
      if i < len(parts) - 1:
        residual = nn.relu(residual)
    if x.shape != residual.shape:
      channels = residual.shape[-1]
      if self.projection:
        shortcut = (channels, 1, self.stride, self.shortcut_norm)
        x = self._conv_and_norm(x, *shortcut, train)
      else:
        x = x[:, :: self.stride, :: self.stride]
        x = jnp.pad(x, [(0, 0)] * 3 + [(0, channels - x.shape[-1])])
    return nn.relu(x + residual)

  def _conv_and_norm(self, x, width, size, stride, norm, train):
    # The padding of PyTorch; 'SAME' with a stride of 2 would pad one side only.
    padding = [(size // 2, size // 2)] * 2
    conv = self.conv(
      width, (size, size), strides=(stride, stride), padding=padding
    )
    return norm()(conv(x), train=train)


# For 10 classes, in this order: 0.27, 0.85, 11.2 and 23.5 million parameters.
resnet20, resnet56 = (
  functools.partial(
    ResNet, blocks=(n, n, n), widths=(16, 32, 64), projection=False
  )
  for n in (3, 9)
)
resnet18 = functools.partial(
  ResNet, blocks=(2, 2, 2, 2), widths=(64, 128, 256, 512)
)
resnet50 = functools.partial(
  ResNet, blocks=(3, 4, 6, 3), widths=(64, 128, 256, 512), bottleneck=True
)
