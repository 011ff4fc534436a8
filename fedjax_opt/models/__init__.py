"""Models in flax.linen.

`model.apply({'params': params}, x, train=...)` returns the logits [B, classes];
with `method='features'`, the penultimate features [B, d]. Of sequences x [B, T]
there are logits and features for each token. Models compute in the dtype of
their parameters; logits are float32 or wider.
"""

from fedjax_opt.models import pretrained as pretrained
from fedjax_opt.models.encoder import Encoder as Encoder
from fedjax_opt.models.encoder import EncoderConfig as EncoderConfig
from fedjax_opt.models.llama import Llama as Llama
from fedjax_opt.models.networks import CNN as CNN
from fedjax_opt.models.networks import MLP as MLP
from fedjax_opt.models.networks import VGG as VGG
from fedjax_opt.models.networks import LinearModel as LinearModel
from fedjax_opt.models.resnet import ResNet as ResNet
from fedjax_opt.models.resnet import resnet18 as resnet18
from fedjax_opt.models.resnet import resnet20 as resnet20
from fedjax_opt.models.resnet import resnet50 as resnet50
from fedjax_opt.models.resnet import resnet56 as resnet56
from fedjax_opt.models.sequences import LSTM as LSTM
from fedjax_opt.models.sequences import Decoder as Decoder
