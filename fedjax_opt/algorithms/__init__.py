"""Federated algorithms, one (family) per file.

`ALGORITHMS` names them for the command line. Each factory takes what it needs
by name: `loss_fn`; `client` and `server`, or, where steps are plain ones,
`learning_rate` and `server_learning_rate`; the regularizer `psi`;
`features_fn`. Its entry says which of these; see `registry.AlgorithmChoice`.
"""

import functools

from fedjax_opt.algorithms.bvr_l_sgd import (
  bvr_l_sgd,
  minibatch_sarah,
)
from fedjax_opt.algorithms.centralized import centralized, local, optimum
from fedjax_opt.algorithms.composite import (
  fed_avg_subgradient,
  fed_dual_avg,
  fed_mid,
)
from fedjax_opt.algorithms.diloco import diloco
from fedjax_opt.algorithms.ditto import ditto
from fedjax_opt.algorithms.domo import domo
from fedjax_opt.algorithms.fed_avg import fed_avg
from fedjax_opt.algorithms.fed_cm import fed_cm
from fedjax_opt.algorithms.fed_dyn import fed_dyn
from fedjax_opt.algorithms.fed_exp import fed_exp
from fedjax_opt.algorithms.fed_nova import fed_nova
from fedjax_opt.algorithms.fed_prox import fed_prox
from fedjax_opt.algorithms.fed_sam import fed_sam, mo_fed_sam
from fedjax_opt.algorithms.fed_speed import fed_speed
from fedjax_opt.algorithms.mime_lite import mime_lite
from fedjax_opt.algorithms.moon import moon
from fedjax_opt.algorithms.personal import (
  fed_bn,
  fed_per,
  fed_rep,
)
from fedjax_opt.algorithms.prox_skip import prox_skip
from fedjax_opt.algorithms.scaffold import scaffold
from fedjax_opt.algorithms.sgd import local_sgd, minibatch_sgd
from fedjax_opt.registry import AlgorithmChoice, Paths, arguments, register

__all__ = [
  "bvr_l_sgd",
  "centralized",
  "diloco",
  "ditto",
  "domo",
  "fed_avg",
  "fed_avg_subgradient",
  "fed_bn",
  "fed_cm",
  "fed_dual_avg",
  "fed_dyn",
  "fed_exp",
  "fed_mid",
  "fed_nova",
  "fed_per",
  "fed_prox",
  "fed_rep",
  "fed_sam",
  "fed_speed",
  "local",
  "local_sgd",
  "mime_lite",
  "minibatch_sarah",
  "minibatch_sgd",
  "mo_fed_sam",
  "moon",
  "optimum",
  "prox_skip",
  "scaffold",
]

_LARGE_BATCH = (
  "examples that each client draws for the large gradient at the start of a "
  "stage; all that it has if left out"
)
_MU_S, _MU_L, _BETA = arguments(
  domo,
  mu_s="momentum of the server",
  mu_l="momentum of local steps",
  beta="how much of the server's momentum clients take",
)
_PERSONAL = Paths(
  "personal",
  "output",
  "leaves of the model that stay with their client, such as output or "
  "layers_1,output/kernel: the starts of their paths, between commas",
  label="personal leaves",
)
_no_fusion = functools.partial(domo, beta=None)

# What several entries have in common.
_plain = functools.partial(AlgorithmChoice, client="plain", server="none")
_composite = functools.partial(
  AlgorithmChoice,
  client="plain",
  why_plain="weighs the regularizer with the sizes of plain steps",
  server="rate",
  takes_regularizer=True,
)
_proximal_gradient = functools.partial(
  _composite, rate_may_drop=False, server="none", is_exact=True
)
_momenta = functools.partial(
  AlgorithmChoice,
  client="plain",
  server="rate",
  # What clients infer of the server's momentum is divided by the rate.
  server_interval="(0, inf)",
)

ALGORITHMS: dict[str, AlgorithmChoice] = {
  "fed_avg": AlgorithmChoice(
    fed_avg,
    "local steps, averaged (McMahan et al., 2017)",
    label="FedAvg",
  ),
  "fed_prox": AlgorithmChoice(
    fed_prox,
    "local steps held near the server's model (Li et al., 2020)",
    arguments(fed_prox, mu="proximal strength"),
    label="FedProx",
  ),
  "moon": AlgorithmChoice(
    moon,
    "model-contrastive local steps (Li et al., 2021)",
    arguments(
      moon,
      mu="contrastive strength",
      temperature="divides the cosine similarities",
    ),
    takes_features=True,
    label="MOON",
  ),
  "fed_avg_m": AlgorithmChoice(
    fed_avg,
    "FedAvg with server momentum",
    server_rule="sgdm",
    label="FedAvgM",
  ),
  "fed_adam": AlgorithmChoice(
    fed_avg,
    "FedAvg with optax's Adam at the server, bias-corrected; FedOpt's own form "
    "is fed_avg with server fedopt_adam",
    server_rule="adam",
    label="FedAdam",
  ),
  "fed_yogi": AlgorithmChoice(
    fed_avg,
    "FedAvg with optax's Yogi at the server, bias-corrected; FedOpt's own form "
    "is fed_avg with server fedopt_yogi",
    server_rule="yogi",
    label="FedYogi",
  ),
  "fed_adagrad": AlgorithmChoice(
    fed_avg,
    "FedAvg with optax's Adagrad at the server; FedOpt's own form is "
    "fed_avg with server fedopt_adagrad",
    server_rule="adagrad",
    label="FedAdagrad",
  ),
  "fed_mid": _composite(
    fed_mid,
    "mirror descent, primal average (Yuan et al., 2021)",
    label="FedMiD",
  ),
  "fed_mid_osp": _composite(
    functools.partial(fed_mid, only_server_prox=True),
    "fed_mid with the regularizer only at the server",
    label="FedMiD-OSP",
  ),
  "fed_dual_avg": _composite(
    fed_dual_avg,
    "dual averaging, dual average (Yuan et al., 2021)",
    label="FedDualAvg",
  ),
  "fed_dual_avg_osp": _composite(
    functools.partial(fed_dual_avg, only_server_prox=True),
    "fed_dual_avg with the regularizer only at the server",
    label="FedDualAvg-OSP",
  ),
  "fed_avg_subgradient": _composite(
    fed_avg_subgradient,
    "FedAvg with subgradient steps of the regularizer",
    # A constraint has no subgradient where it is violated.
    needs_penalty=True,
    label="FedAvg (subgradient)",
  ),
  "centralized": _proximal_gradient(
    centralized,
    "proximal gradient on all data, one step a round",
    cohort="all",
    label="Centralized",
  ),
  "local": _proximal_gradient(
    local,
    "proximal gradient on one client's data",
    cohort="first",
    label="Local",
  ),
  "scaffold": AlgorithmChoice(
    scaffold,
    "local steps with control variates (Karimireddy et al., 2020)",
    arguments(
      scaffold, exact_control="control variates are exact gradients (option I)"
    ),
    client="plain",
    why_plain="corrects plain steps, not those of another rule",
    server="rate",
    label="SCAFFOLD",
  ),
  "local_sgd": _plain(
    local_sgd, "plain local steps, averaged", label="Local SGD"
  ),
  "minibatch_sgd": _plain(
    minibatch_sgd,
    "one step a round on all local batches at once",
    label="Minibatch SGD",
  ),
  "minibatch_sarah": _plain(
    minibatch_sarah,
    "minibatch_sgd along a recursive estimate (Nguyen et al., 2017)",
    arguments(minibatch_sarah, large_batch=_LARGE_BATCH),
    label="Minibatch SARAH",
  ),
  "bvr_l_sgd": _plain(
    bvr_l_sgd,
    "local steps of one client along a recursive estimate of all (Murata and "
    "Suzuki, 2021)",
    arguments(
      bvr_l_sgd,
      large_batch=_LARGE_BATCH,
      practical="only the picked client moves and the last point is returned "
      "(Algorithm 4, not 2)",
    ),
    label="BVR-L-SGD",
  ),
  "fed_avg_sm": _momenta(
    functools.partial(_no_fusion, mu_l=None),
    "momentum at the server",
    (_MU_S,),
    label="FedAvgSM",
  ),
  "fed_avg_lm": _momenta(
    functools.partial(_no_fusion, mu_s=None, average_local=True),
    "momentum in the local steps, buffers averaged",
    (_MU_L,),
    label="FedAvgLM",
  ),
  "fed_avg_lm_z": _momenta(
    functools.partial(_no_fusion, mu_s=None),
    "momentum in the local steps, from zero in each round",
    (_MU_L,),
    label="FedAvgLM-Z",
  ),
  "fed_avg_slm": _momenta(
    functools.partial(_no_fusion, average_local=True),
    "fed_avg_sm and fed_avg_lm together",
    (_MU_S, _MU_L),
    label="FedAvgSLM",
  ),
  "fed_avg_slm_z": _momenta(
    _no_fusion,
    "fed_avg_sm and fed_avg_lm_z together",
    (_MU_S, _MU_L),
    label="FedAvgSLM-Z",
  ),
  "domo": _momenta(
    domo,
    "fed_avg_slm_z whose clients start with a step of the server's momentum "
    "(Xu et al., 2022)",
    arguments(
      domo,
      mu_s="momentum of the server",
      mu_l="momentum of local steps",
      beta="how much of the server's momentum clients take",
    ),
    label="DOMO",
  ),
  "domo_s": _momenta(
    functools.partial(domo, intra=True),
    "domo with a share of that step in each local step",
    (_MU_S, _MU_L, _BETA),
    label="DOMO-S",
  ),
  "fed_dyn": AlgorithmChoice(
    fed_dyn,
    "local steps on a dynamically regularized loss (Acar et al., 2021)",
    arguments(
      fed_dyn,
      {"alpha": "algorithm_alpha"},
      alpha="strength of the dynamic regularization",
    ),
    default_client="sgd",
    server="none",
    label="FedDyn",
  ),
  "fed_nova": AlgorithmChoice(
    fed_nova,
    "differences divided by how far their steps reach (Wang et al., 2020)",
    arguments(
      fed_nova,
      {"momentum": "algorithm_momentum"},
      momentum="heavy-ball momentum of the local steps",
      mu="proximal strength",
    ),
    client="plain",
    why_plain="normalizes plain steps; for other rules that is not defined",
    label="FedNova",
  ),
  "fed_cm": AlgorithmChoice(
    fed_cm,
    "local steps along the last mean step of all clients (Xu et al., 2021)",
    arguments(
      fed_cm,
      {"alpha": "algorithm_alpha"},
      alpha="weight of the client's own gradient",
    ),
    client="plain",
    why_plain="adds a momentum to plain steps, not to those of another rule",
    server="rate",
    label="FedCM",
  ),
  "fed_exp": AlgorithmChoice(
    fed_exp,
    "FedAvg with an extrapolated server step (Jhunjhunwala et al., 2023)",
    arguments(
      fed_exp,
      {"eps": "algorithm_eps"},
      eps="damps the extrapolation, a squared distance",
    ),
    default_client="sgd",
    server="none",
    label="FedExP",
  ),
  "mime_lite": AlgorithmChoice(
    mime_lite,
    "local steps with the server's momentum held fixed (Karimireddy et al., "
    "2021)",
    arguments(mime_lite, beta="momentum of the server"),
    client="plain",
    why_plain="takes SGD with momentum apart, with a momentum of its own",
    server="none",
    label="MimeLite",
  ),
  "prox_skip": AlgorithmChoice(
    prox_skip,
    "Scaffnew: corrected local steps until a coin makes all clients meet "
    "(Mishchenko et al., 2022)",
    arguments(prox_skip, p="probability of a meeting after a local step"),
    client="plain",
    why_plain="corrects plain steps, not those of another rule",
    rate_may_drop=False,
    server="none",
    cohort="all",
    label="ProxSkip",
  ),
  "fed_sam": AlgorithmChoice(
    fed_sam,
    "FedAvg along gradients taken uphill, sharpness-aware (Qu et al., 2022)",
    arguments(fed_sam, rho="how far uphill a gradient is taken"),
    default_client="sgd",
    label="FedSAM",
  ),
  "mo_fed_sam": AlgorithmChoice(
    mo_fed_sam,
    "fed_cm along gradients taken uphill (Qu et al., 2022)",
    arguments(
      mo_fed_sam,
      rho="how far uphill a gradient is taken",
      beta="weight of the client's own gradient",
    ),
    client="plain",
    why_plain="adds a momentum to plain steps, not to those of another rule",
    server="rate",
    label="MoFedSAM",
  ),
  "fed_speed": AlgorithmChoice(
    fed_speed,
    "prox-corrected local steps, gradients taken uphill (Sun et al., 2023)",
    arguments(
      fed_speed,
      {"alpha": "algorithm_alpha"},
      lam="inverse strength of the proximal term",
      alpha="weight of the gradient uphill",
      rho="how far uphill a gradient is taken",
      normalized=(
        "rho is a length (the authors' program), not a multiple of the "
        "gradient (the paper)"
      ),
      all_duals=(
        "subtract the mean of all clients' dual variables (the authors' "
        "program), not the cohort's"
      ),
    ),
    client="plain",
    why_plain="corrects plain steps, not those of another rule",
    server="none",
    label="FedSpeed",
  ),
  "diloco": AlgorithmChoice(
    diloco,
    "FedAvg whose clients keep their optimizer's state (Douillard et al., "
    "2023)",
    default_client="adamw",
    default_server="nesterov",
    label="DiLoCo",
  ),
  "ditto": AlgorithmChoice(
    ditto,
    "FedAvg, and for each client a model of its own near the server's (Li et "
    "al., 2021)",
    arguments(ditto, lam="pull of the server's model on clients' own"),
    is_personal=True,
    label="Ditto",
  ),
  "fed_per": AlgorithmChoice(
    fed_per,
    "FedAvg of some leaves; the others stay with their client (Arivazhagan et "
    "al., 2019)",
    (_PERSONAL,),
    is_personal=True,
    label="FedPer",
  ),
  "fed_rep": AlgorithmChoice(
    fed_rep,
    "fed_per whose local steps move the personal leaves first, then the "
    "others (Collins et al., 2021)",
    (
      _PERSONAL,
      *arguments(
        fed_rep,
        shared_steps="share of the local steps, the last, that move the "
        "shared leaves",
      ),
    ),
    is_personal=True,
    label="FedRep",
  ),
  "fed_bn": AlgorithmChoice(
    fed_bn,
    "FedAvg of all but batch normalization, which stays with its client (Li "
    "et al., 2021)",
    is_personal=True,
    label="FedBN",
  ),
}
register(ALGORITHMS)
