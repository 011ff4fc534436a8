"""Client and server rules: plain optax transformations, one per file.

`RULES` names them for the command line, optax's own among them. Defaults are
those of the Delta-SGD paper's baselines, mostly PyTorch's own. At the server
the default learning rate of sgd and sgdm is 1, which is plain averaging. That
of adagrad is 0.1, because its steps only get shorter, and that of nesterov is
DiLoCo's. The others have the default of the clients, as the paper ran Adam.
"""

import optax

from fedjax_opt.registry import Hyperparameter, RuleChoice, arguments, register
from fedjax_opt.rules.delta_sgd import delta_sgd
from fedjax_opt.rules.fedopt import (
  fedopt_adagrad,
  fedopt_adam,
  fedopt_yogi,
)
from fedjax_opt.rules.mirror import (
  dual_averaging,
  mirror_step,
  subgradient_step,
)
from fedjax_opt.rules.momentum_fusion import momentum_fusion
from fedjax_opt.rules.polyak import sps
from fedjax_opt.rules.sarah import sarah
from fedjax_opt.rules.schedules import step_decay
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


def _adamw(learning_rate, b1, b2, eps, weight_decay):
  return optax.adamw(learning_rate, b1, b2, eps, weight_decay=weight_decay)


def _yogi(learning_rate, b1, b2, eps):
  return optax.yogi(learning_rate, b1, b2, eps)


def _sgdm(learning_rate, momentum):
  return optax.sgd(learning_rate, momentum)


def _nesterov(learning_rate, momentum):
  return optax.sgd(learning_rate, momentum, nesterov=True)


def _rate(default: float) -> Hyperparameter:
  return Hyperparameter("learning_rate", default, "step size", "[0, inf)")


_TAU = Hyperparameter("eps", 1e-3, "tau of FedOpt", "(0, inf)")
_FEDOPT_B2 = Hyperparameter("b2", 0.99, "decay of the second moment", "[0, 1)")
_B1 = Hyperparameter("b1", 0.9, "decay of the first moment", "[0, 1)")
_B2 = Hyperparameter("b2", 0.999, "decay of the second moment", "[0, 1)")


def _eps(default: float) -> Hyperparameter:
  return Hyperparameter("eps", default, "added to a denominator", "[0, inf)")


RULES: dict[str, RuleChoice] = {
  "sgd": RuleChoice(
    optax.sgd,
    "gradient descent",
    (_rate(0.1),),
    is_plain=True,
    server_learning_rate=1.0,
    label="SGD",
  ),
  "sgdm": RuleChoice(
    _sgdm,
    "heavy-ball momentum",
    (
      _rate(0.1),
      Hyperparameter("momentum", 0.9, "decay of the momentum", "[0, 1)"),
    ),
    server_learning_rate=1.0,
    label="SGDM",
  ),
  "nesterov": RuleChoice(
    _nesterov,
    "Nesterov's momentum (as DiLoCo's server has it)",
    (
      _rate(0.1),
      Hyperparameter("momentum", 0.9, "decay of the momentum", "[0, 1)"),
    ),
    server_learning_rate=0.7,
    label="Nesterov",
  ),
  "adam": RuleChoice(
    optax.adam,
    "Adam, bias-corrected (Kingma and Ba, 2015)",
    (_rate(0.001), _B1, _B2, _eps(1e-8)),
    label="Adam",
  ),
  "adamw": RuleChoice(
    _adamw,
    "Adam with decoupled weight decay (defaults of DiLoCo's clients)",
    (
      _rate(4e-4),
      _B1,
      _B2,
      _eps(1e-8),
      Hyperparameter(
        "weight_decay", 0.1, "decay of the weights, times the rate", "[0, inf)"
      ),
    ),
    label="AdamW",
  ),
  "adagrad": RuleChoice(
    _adagrad,
    "Adagrad, without momentum (Duchi et al., 2011)",
    (
      _rate(0.01),
      Hyperparameter(
        "initial_accumulator", 0.0, "initial sum of squares", "[0, inf)"
      ),
      _eps(1e-10),
    ),
    server_learning_rate=0.1,
    label="Adagrad",
  ),
  "yogi": RuleChoice(
    _yogi,
    "Yogi, bias-corrected, moments from 1e-6 (optax's form)",
    (_rate(0.01), _B1, _B2, _eps(1e-3)),
    label="Yogi",
  ),
  "sps": RuleChoice(
    sps,
    "stochastic Polyak step sizes (Loizou et al., 2021)",
    arguments(
      sps,
      c="divides the step size",
      f_min="lower bound of the batch loss",
      max_step="largest step size",
    ),
    fits_server=False,
    label="SPS",
  ),
  "delta_sgd": RuleChoice(
    delta_sgd,
    "Delta-SGD, auto-tuned step sizes (Kim et al., 2024)",
    arguments(
      delta_sgd,
      gamma="scales the smoothness branch",
      delta="damps step size growth",
      eta_0="first step size",
      theta_0="step size ratio before it",
      eps="added to a denominator",
      reuse_gradients=(
        "keep the previous batch's gradient (one gradient a step) instead of "
        "taking it again on the current batch (two)"
      ),
      independent_dropout=(
        "draw other dropout masks for the gradient at the previous point, as "
        "the authors' program does"
      ),
    ),
    fits_server=False,
    own_names=(
      "gamma",
      "delta",
      "eta_0",
      "theta_0",
      "reuse_gradients",
      "independent_dropout",
    ),
    traced=("step_size", "smoothness_step", "growth_step"),
    label="Δ-SGD",
  ),
  "fedopt_adam": RuleChoice(
    fedopt_adam,
    "FedAdam's own step, no bias correction (Reddi et al., 2021)",
    (_rate(0.01), _B1, _FEDOPT_B2, _TAU),
    label="Adam (FedOpt)",
  ),
  "fedopt_yogi": RuleChoice(
    fedopt_yogi,
    "FedYogi's own step, no bias correction (Reddi et al., 2021)",
    (_rate(0.01), _B1, _FEDOPT_B2, _TAU),
    label="Yogi (FedOpt)",
  ),
  "fedopt_adagrad": RuleChoice(
    fedopt_adagrad,
    "FedAdagrad's own step (Reddi et al., 2021)",
    (_rate(0.01), _B1._replace(default=0.0), _TAU),
    label="Adagrad (FedOpt)",
  ),
}
register(RULES)
