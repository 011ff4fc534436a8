"""Client and server rules: plain optax transformations, a family per file.

`RULES` has those that the command line takes, optax's own among them; others
belong to an algorithm. Defaults are those of the Δ-SGD paper's baselines,
mostly PyTorch's own. At the server the default learning rate of sgd and sgdm is
1, which is plain averaging. The rate of adagrad is 0.1, because its steps only
get shorter. The rate of nesterov is DiLoCo's. The others have the default of
the clients, as the paper ran Adam.
"""

import functools

import optax
import optax.contrib

from fedjax_opt.registry import (
  Hyperparameter,
  RuleEntry,
  from_factory,
  register,
)
from fedjax_opt.rules.decay import step_decay
from fedjax_opt.rules.delta_sgd import delta_sgd
from fedjax_opt.rules.fedopt import fedopt_adagrad, fedopt_adam, fedopt_yogi
from fedjax_opt.rules.momentum_fusion import momentum_fusion
from fedjax_opt.rules.polyak import sps
from fedjax_opt.rules.proximal import (
  dual_averaging,
  mirror_step,
  subgradient_step,
)
from fedjax_opt.rules.sarah import sarah
from fedjax_opt.rules.sharpness import sharpness_aware

__all__ = [
  "delta_sgd",
  "dual_averaging",
  "fedopt_adagrad",
  "fedopt_adam",
  "fedopt_yogi",
  "mirror_step",
  "momentum_fusion",
  "sarah",
  "sharpness_aware",
  "sps",
  "step_decay",
  "subgradient_step",
]


def _adagrad(learning_rate, initial_accumulator, eps):
  # PyTorch adds eps outside the root and optax inside it: hence the square.
  return optax.adagrad(learning_rate, initial_accumulator, eps**2)


def _muon(learning_rate, beta, weight_decay):
  return optax.contrib.muon(
    learning_rate,
    beta=beta,
    weight_decay=weight_decay,
    adam_weight_decay=weight_decay,
  )


# argument -> its meaning and what it may be, in rules of optax.
_MEANINGS = {
  "learning_rate": ("step size", "[0, inf)"),
  "momentum": ("decay of the momentum", "[0, 1)"),
  "b1": ("decay of the first moment", "[0, 1)"),
  "b2": ("decay of the second moment", "[0, 1)"),
  "initial_accumulator": ("initial sum of squares", "[0, inf)"),
  "eps": ("added to a denominator", "[0, inf)"),
  "beta": ("decay of the momentum of matrices", "[0, 1)"),
  "weight_decay": ("decay of the weights, times the rate", "[0, inf)"),
}


def _defaults(**defaults: float) -> tuple[Hyperparameter, ...]:
  """Hyperparameters of a rule of optax, with these defaults."""
  return tuple(
    Hyperparameter(name, default, *_MEANINGS[name])
    for name, default in defaults.items()
  )


# These keep the paper's own names on the command line.
_DELTA_SGD = {
  name: {"flag": name}
  for name in (
    "gamma",
    "delta",
    "eta_0",
    "theta_0",
    "reuse_gradients",
    "independent_dropout",
  )
}

RULES: dict[str, RuleEntry] = {
  "sgd": RuleEntry(
    optax.sgd,
    "gradient descent",
    _defaults(learning_rate=0.1),
    is_plain=True,
    server_learning_rate=1.0,
    label="SGD",
  ),
  "sgdm": RuleEntry(
    optax.sgd,
    "heavy-ball momentum",
    _defaults(learning_rate=0.1, momentum=0.9),
    server_learning_rate=1.0,
    label="SGDM",
  ),
  "nesterov": RuleEntry(
    functools.partial(optax.sgd, nesterov=True),
    "Nesterov's momentum (as DiLoCo's server has it)",
    _defaults(learning_rate=0.1, momentum=0.9),
    server_learning_rate=0.7,
    label="Nesterov",
  ),
  "adam": RuleEntry(
    optax.adam,
    "Adam, bias-corrected (Kingma and Ba, 2015)",
    _defaults(learning_rate=0.001, b1=0.9, b2=0.999, eps=1e-8),
    label="Adam",
  ),
  "adamw": RuleEntry(
    optax.adamw,
    "Adam with decoupled weight decay (defaults of DiLoCo's clients); fed_avg "
    "with it is Local AdamW",
    _defaults(learning_rate=4e-4, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.1),
    label="AdamW",
  ),
  "muon": RuleEntry(
    _muon,
    "Muon: orthogonalized momentum for matrices, AdamW for all else (Jordan, "
    "2024; optax's form)",
    _defaults(learning_rate=0.02, beta=0.95, weight_decay=0.0),
    label="Muon",
  ),
  "adagrad": RuleEntry(
    _adagrad,
    "Adagrad, without momentum (Duchi et al., 2011)",
    _defaults(learning_rate=0.01, initial_accumulator=0.0, eps=1e-10),
    server_learning_rate=0.1,
    label="Adagrad",
  ),
  "yogi": RuleEntry(
    optax.yogi,
    "Yogi, bias-corrected, moments from 1e-6 (optax's form)",
    _defaults(learning_rate=0.01, b1=0.9, b2=0.999, eps=1e-3),
    label="Yogi",
  ),
  "sps": RuleEntry(
    sps,
    hyperparameters=from_factory(sps, "c", "f_min", "max_step"),
    fits_server=False,
    label="SPS",
  ),
  "delta_sgd": RuleEntry(
    delta_sgd,
    hyperparameters=from_factory(delta_sgd, "eps", **_DELTA_SGD),
    fits_server=False,
    traced=("step_size", "smoothness_step", "growth_step"),
    label="Δ-SGD",
  ),
  "fedopt_adam": RuleEntry(
    fedopt_adam,
    hyperparameters=from_factory(
      fedopt_adam, "learning_rate", "b1", "b2", "eps"
    ),
    label="Adam (FedOpt)",
  ),
  "fedopt_yogi": RuleEntry(
    fedopt_yogi,
    hyperparameters=from_factory(
      fedopt_yogi, "learning_rate", "b1", "b2", "eps"
    ),
    label="Yogi (FedOpt)",
  ),
  "fedopt_adagrad": RuleEntry(
    fedopt_adagrad,
    hyperparameters=from_factory(fedopt_adagrad, "learning_rate", "b1", "eps"),
    label="Adagrad (FedOpt)",
  ),
}
register(RULES)
