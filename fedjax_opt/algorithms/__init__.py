"""Federated algorithms, one (family) per file.

`ALGORITHMS` names them for the command line. Each factory takes what it needs
by name: `loss_fn`; `client` and `server`, or, where steps are plain ones,
`learning_rate` and `server_learning_rate`; `features_fn` and the regularizer
`psi` if it asks for them.
"""

import functools

from fedjax_opt.algorithms.bvr_l_sgd import (
  BvrState,
  bvr_l_sgd,
  minibatch_sarah,
)
from fedjax_opt.algorithms.centralized import centralized, local, optimum
from fedjax_opt.algorithms.composite import (
  FedDualAvgState,
  FedMidState,
  fed_avg_subgradient,
  fed_dual_avg,
  fed_mid,
)
from fedjax_opt.algorithms.domo import DomoState, domo
from fedjax_opt.algorithms.fed_avg import FedAvgState, fed_avg
from fedjax_opt.algorithms.fed_prox import fed_prox
from fedjax_opt.algorithms.moon import MoonState, moon
from fedjax_opt.algorithms.scaffold import ScaffoldState, scaffold
from fedjax_opt.algorithms.sgd import MinibatchState, local_sgd, minibatch_sgd
from fedjax_opt.hyperparameters import Choice, Hyperparameter

__all__ = [
  "ALGORITHMS",
  "SERVER_RULES",
  "BvrState",
  "DomoState",
  "FedAvgState",
  "FedDualAvgState",
  "FedMidState",
  "MinibatchState",
  "MoonState",
  "ScaffoldState",
  "bvr_l_sgd",
  "centralized",
  "domo",
  "fed_avg",
  "fed_avg_subgradient",
  "fed_dual_avg",
  "fed_mid",
  "fed_prox",
  "local",
  "local_sgd",
  "minibatch_sarah",
  "minibatch_sgd",
  "moon",
  "optimum",
  "scaffold",
]

_LARGE_BATCH = Hyperparameter(
  "large_batch",
  None,
  "examples that each client draws for the large gradient at the start of a "
  "stage; all that it has if left out",
  "[1, inf)",
  is_static=True,
)

_MU_S = Hyperparameter("mu_s", 0.9, "momentum of the server", "[0, 1)")
_MU_L = Hyperparameter("mu_l", 0.6, "momentum of local steps", "[0, 1)")
_BETA = Hyperparameter(
  "beta", 0.9, "how much of the server's momentum clients take", "[0, inf)"
)
_no_fusion = functools.partial(domo, beta=None)

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
  "fed_mid": Choice(
    fed_mid, "mirror descent, primal average (Yuan et al., 2021)"
  ),
  "fed_mid_osp": Choice(
    functools.partial(fed_mid, only_server_prox=True),
    "fed_mid with the regularizer only at the server",
  ),
  "fed_dual_avg": Choice(
    fed_dual_avg, "dual averaging, dual average (Yuan et al., 2021)"
  ),
  "fed_dual_avg_osp": Choice(
    functools.partial(fed_dual_avg, only_server_prox=True),
    "fed_dual_avg with the regularizer only at the server",
  ),
  "fed_avg_subgradient": Choice(
    fed_avg_subgradient, "FedAvg with subgradient steps of the regularizer"
  ),
  "centralized": Choice(
    centralized, "proximal gradient on all data, one step a round"
  ),
  "local": Choice(local, "proximal gradient on one client's data"),
  "scaffold": Choice(
    scaffold,
    "local steps with control variates (Karimireddy et al., 2020)",
    (
      Hyperparameter(
        "exact_control",
        False,
        "control variates are exact gradients (option I)",
      ),
    ),
  ),
  "local_sgd": Choice(local_sgd, "plain local steps, averaged"),
  "minibatch_sgd": Choice(
    minibatch_sgd, "one step a round on all local batches at once"
  ),
  "minibatch_sarah": Choice(
    minibatch_sarah,
    "minibatch_sgd along a recursive estimate (Nguyen et al., 2017)",
    (_LARGE_BATCH,),
  ),
  "bvr_l_sgd": Choice(
    bvr_l_sgd,
    "local steps of one client along a recursive estimate of all (Murata and "
    "Suzuki, 2021)",
    (
      _LARGE_BATCH,
      Hyperparameter(
        "practical",
        True,
        "only the picked client moves and the last point is returned "
        "(Algorithm 4, not 2)",
      ),
    ),
  ),
  "fed_avg_sm": Choice(
    functools.partial(_no_fusion, mu_l=None), "momentum at the server", (_MU_S,)
  ),
  "fed_avg_lm": Choice(
    functools.partial(_no_fusion, mu_s=None, average_local=True),
    "momentum in the local steps, buffers averaged",
    (_MU_L,),
  ),
  "fed_avg_lm_z": Choice(
    functools.partial(_no_fusion, mu_s=None),
    "momentum in the local steps, from zero in each round",
    (_MU_L,),
  ),
  "fed_avg_slm": Choice(
    functools.partial(_no_fusion, average_local=True),
    "fed_avg_sm and fed_avg_lm together",
    (_MU_S, _MU_L),
  ),
  "fed_avg_slm_z": Choice(
    _no_fusion, "fed_avg_sm and fed_avg_lm_z together", (_MU_S, _MU_L)
  ),
  "domo": Choice(
    domo,
    "fed_avg_slm_z whose clients start with a step of the server's momentum "
    "(Xu et al., 2022)",
    (_MU_S, _MU_L, _BETA),
  ),
  "domo_s": Choice(
    functools.partial(domo, intra=True),
    "domo with a share of that step in each local step",
    (_MU_S, _MU_L, _BETA),
  ),
}

# Names that are nothing but FedAvg with one server rule.
SERVER_RULES: dict[str, str] = {
  "fed_avg_m": "sgdm",
  "fed_adam": "adam",
  "fed_yogi": "yogi",
  "fed_adagrad": "adagrad",
}
