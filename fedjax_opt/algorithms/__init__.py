"""Federated algorithms, one (family) per file.

`ALGORITHMS` names them for the command line. Each factory takes what it needs
by name: `loss_fn`, `client`, `server`, and `features_fn` if it asks for it.
"""

from fedjax_opt.algorithms.fed_avg import FedAvgState, fed_avg
from fedjax_opt.algorithms.fed_prox import fed_prox
from fedjax_opt.algorithms.moon import MoonState, moon
from fedjax_opt.hyperparameters import Choice, Hyperparameter

__all__ = [
  "ALGORITHMS",
  "SERVER_RULES",
  "FedAvgState",
  "MoonState",
  "fed_avg",
  "fed_prox",
  "moon",
]

ALGORITHMS: dict[str, Choice] = {
  "fed_avg": Choice(fed_avg, "local steps, averaged (McMahan et al., 2017)"),
  "fed_prox": Choice(
    fed_prox,
    "local steps held near the server's model (Li et al., 2020)",
    (Hyperparameter("mu", 0.01, "proximal strength", "[0, inf)"),),
  ),
  "moon": Choice(
    moon,
    "model-contrastive local steps (Li et al., 2021)",
    (
      Hyperparameter("mu", 1.0, "contrastive strength", "[0, inf)"),
      Hyperparameter(
        "temperature", 0.5, "divides the cosine similarities", "(0, inf)"
      ),
    ),
  ),
  "fed_avg_m": Choice(fed_avg, "FedAvg with server momentum"),
  "fed_adam": Choice(fed_avg, "FedAvg with Adam at the server (FedOpt)"),
  "fed_yogi": Choice(fed_avg, "FedAvg with Yogi at the server (FedOpt)"),
  "fed_adagrad": Choice(fed_avg, "FedAvg with Adagrad at the server (FedOpt)"),
}

# Names that are nothing but FedAvg with one server rule.
SERVER_RULES: dict[str, str] = {
  "fed_avg_m": "sgdm",
  "fed_adam": "adam",
  "fed_yogi": "yogi",
  "fed_adagrad": "adagrad",
}
