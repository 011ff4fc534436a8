"""Models in flax.linen.

Every model gives `model.apply({'params': params}, x, train=...)`, logits
[B, classes], and the method `features`, its penultimate features [B, d]. It
computes in the type of its parameters; logits are at least float32.
"""

from fedjax_opt.models.cnn import CNN
from fedjax_opt.models.linear import LinearModel
from fedjax_opt.models.mlp import MLP
from fedjax_opt.models.resnet import (
  ResNet,
  resnet18,
  resnet20,
  resnet50,
  resnet56,
)
from fedjax_opt.models.vgg import VGG

__all__ = [
  "CNN",
  "MLP",
  "VGG",
  "LinearModel",
  "ResNet",
  "resnet18",
  "resnet20",
  "resnet50",
  "resnet56",
]
