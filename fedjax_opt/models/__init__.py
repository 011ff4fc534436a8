"""Models in flax.linen.

Every model gives `model.apply({'params': params}, x, train=...)`, logits
[B, classes], and the method `features`, its penultimate features [B, d].
"""

from fedjax_opt.models.cnn import CNN
from fedjax_opt.models.linear import LinearModel
from fedjax_opt.models.mlp import MLP

__all__ = ["CNN", "MLP", "LinearModel"]
