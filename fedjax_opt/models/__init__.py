"""Models in flax.linen.

`model.apply({'params': params}, x, train=...)` returns the logits [B, classes];
with `method='features'`, the penultimate features [B, d]. Of sequences x [B, T]
there are logits and features for each token. Models compute in the dtype of
their parameters; logits are float32 or wider.
"""

from fedjax_opt.models import pretrained
from fedjax_opt.models.cnn import CNN
from fedjax_opt.models.decoder import Decoder
from fedjax_opt.models.encoder import Encoder, EncoderConfig
from fedjax_opt.models.linear import LinearModel
from fedjax_opt.models.lstm import LSTM
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
  "LSTM",
  "MLP",
  "VGG",
  "Decoder",
  "Encoder",
  "EncoderConfig",
  "LinearModel",
  "ResNet",
  "pretrained",
  "resnet18",
  "resnet20",
  "resnet50",
  "resnet56",
]
