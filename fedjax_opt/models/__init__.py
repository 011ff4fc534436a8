"""Models in flax.linen.

`model.apply({'params': params}, x, train=...)` returns the logits [B, classes];
with `method='features'`, the penultimate features [B, d]. Of sequences x [B, T]
there are logits and features for each token. Models compute in the dtype of
their parameters; logits are float32 or wider.
"""

from fedjax_opt.models import pretrained
from fedjax_opt.models.encoder import Encoder, EncoderConfig
from fedjax_opt.models.llama import Llama
from fedjax_opt.models.networks import CNN, MLP, VGG, LinearModel
from fedjax_opt.models.resnet import (
  ResNet,
  resnet18,
  resnet20,
  resnet50,
  resnet56,
)
from fedjax_opt.models.sequences import LSTM, Decoder

__all__ = [
  "CNN",
  "LSTM",
  "MLP",
  "VGG",
  "Decoder",
  "Encoder",
  "EncoderConfig",
  "LinearModel",
  "Llama",
  "ResNet",
  "pretrained",
  "resnet18",
  "resnet20",
  "resnet50",
  "resnet56",
]
