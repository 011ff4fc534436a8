"""Federated algorithms, one (family) per file.

`ALGORITHMS` names them for the command line. What its entry does not say of an
algorithm is read from its factory; see `registry.AlgorithmChoice`.
"""

import functools

from fedjax_opt.algorithms.bvr_l_sgd import bvr_l_sgd, minibatch_sarah
from fedjax_opt.algorithms.ca2fl import ca2fl
from fedjax_opt.algorithms.centralized import centralized, local, optimum
from fedjax_opt.algorithms.composite import (
  fed_avg_subgradient,
  fed_dual_avg,
  fed_mid,
)
from fedjax_opt.algorithms.diloco import diloco
from fedjax_opt.algorithms.ditto import ditto
from fedjax_opt.algorithms.domo import domo
from fedjax_opt.algorithms.fadas import fadas
from fedjax_opt.algorithms.fed_acg import fed_acg
from fedjax_opt.algorithms.fed_adamw import fed_adamw
from fedjax_opt.algorithms.fed_async import STALENESS, fed_async
from fedjax_opt.algorithms.fed_avg import fed_avg
from fedjax_opt.algorithms.fed_buff import fed_buff
from fedjax_opt.algorithms.fed_cm import fed_cm
from fedjax_opt.algorithms.fed_dc import fed_dc
from fedjax_opt.algorithms.fed_dyn import fed_dyn
from fedjax_opt.algorithms.fed_ex_lora import fed_ex_lora
from fedjax_opt.algorithms.fed_exp import fed_exp
from fedjax_opt.algorithms.fed_gamma import fed_gamma
from fedjax_opt.algorithms.fed_lada import fed_lada
from fedjax_opt.algorithms.fed_lesam import fed_lesam
from fedjax_opt.algorithms.fed_nova import fed_nova
from fedjax_opt.algorithms.fed_prox import fed_prox
from fedjax_opt.algorithms.fed_sam import fed_sam, mo_fed_sam
from fedjax_opt.algorithms.fed_smoo import fed_smoo
from fedjax_opt.algorithms.fed_speed import fed_speed
from fedjax_opt.algorithms.mime_lite import mime_lite
from fedjax_opt.algorithms.moon import moon
from fedjax_opt.algorithms.p_fed_me import p_fed_me
from fedjax_opt.algorithms.per_fed_avg import per_fed_avg
from fedjax_opt.algorithms.personal import fed_bn, fed_per, fed_rep
from fedjax_opt.algorithms.prox_skip import prox_skip
from fedjax_opt.algorithms.scaffold import scaffold
from fedjax_opt.algorithms.sgd import local_sgd, minibatch_sgd
from fedjax_opt.checks import fields
from fedjax_opt.registry import (
  AlgorithmEntry,
  Hyperparameter,
  from_factory,
  read_leaf_paths,
  register,
)

__all__ = [
  "bvr_l_sgd",
  "ca2fl",
  "centralized",
  "diloco",
  "ditto",
  "domo",
  "fadas",
  "fed_acg",
  "fed_adamw",
  "fed_async",
  "fed_avg",
  "fed_avg_subgradient",
  "fed_bn",
  "fed_buff",
  "fed_cm",
  "fed_dc",
  "fed_dual_avg",
  "fed_dyn",
  "fed_ex_lora",
  "fed_exp",
  "fed_gamma",
  "fed_lada",
  "fed_lesam",
  "fed_mid",
  "fed_nova",
  "fed_per",
  "fed_prox",
  "fed_rep",
  "fed_sam",
  "fed_smoo",
  "fed_speed",
  "local",
  "local_sgd",
  "mime_lite",
  "minibatch_sarah",
  "minibatch_sgd",
  "mo_fed_sam",
  "moon",
  "optimum",
  "p_fed_me",
  "per_fed_avg",
  "prox_skip",
  "scaffold",
]

_PERSONAL = Hyperparameter(
  "personal",
  "output",
  "leaves of the model that stay with their client, such as output or "
  "layers_1,output/kernel: the starts of their paths, between commas",
  fields.NAMES,
  read_leaf_paths,
  label="personal leaves",
)
_STALENESS = Hyperparameter(
  "staleness",
  "polynomial",
  "how much an update counts whose client started tau server steps ago\n"
  "constant    as much as a fresh one\n"
  "polynomial  (tau + 1) ** -staleness_power of it\n"
  "hinge       less only from hinge_start on",
  fields.one_of(*STALENESS),
)
# Switches that are no flags.
_last_iterate = functools.partial(fed_dual_avg, averaged=False)
_momenta = functools.partial(domo, intra=False, average_local=False)

ALGORITHMS: dict[str, AlgorithmEntry] = {
  "fed_avg": AlgorithmEntry(fed_avg, label="FedAvg"),
  "fed_prox": AlgorithmEntry(fed_prox, label="FedProx"),
  "moon": AlgorithmEntry(moon, label="MOON"),
  "fed_avg_m": AlgorithmEntry(
    fed_avg, "FedAvg with server momentum", server_rule="sgdm", label="FedAvgM"
  ),
  "fed_adam": AlgorithmEntry(
    fed_avg,
    "FedAvg with optax's Adam at the server, bias-corrected; FedOpt's own form "
    "is fed_avg with the server rule fedopt_adam",
    server_rule="adam",
    label="FedAdam",
  ),
  "fed_yogi": AlgorithmEntry(
    fed_avg,
    "FedAvg with optax's Yogi at the server, bias-corrected; FedOpt's own form "
    "is fed_avg with the server rule fedopt_yogi",
    server_rule="yogi",
    label="FedYogi",
  ),
  "fed_adagrad": AlgorithmEntry(
    fed_avg,
    "FedAvg with optax's Adagrad at the server; FedOpt's own form is "
    "fed_avg with the server rule fedopt_adagrad",
    server_rule="adagrad",
    label="FedAdagrad",
  ),
  "fed_mid": AlgorithmEntry(
    functools.partial(fed_mid, only_server_prox=False), label="FedMiD"
  ),
  "fed_mid_osp": AlgorithmEntry(
    functools.partial(fed_mid, only_server_prox=True),
    "fed_mid with the regularizer only at the server",
    label="FedMiD-OSP",
  ),
  "fed_dual_avg": AlgorithmEntry(
    functools.partial(_last_iterate, only_server_prox=False),
    label="FedDualAvg",
  ),
  "fed_dual_avg_osp": AlgorithmEntry(
    functools.partial(_last_iterate, only_server_prox=True),
    "fed_dual_avg with the regularizer only at the server",
    label="FedDualAvg-OSP",
  ),
  "fed_avg_subgradient": AlgorithmEntry(
    fed_avg_subgradient,
    # A constraint has no subgradient where it is violated.
    needs_penalty=True,
    label="FedAvg (subgradient)",
  ),
  "centralized": AlgorithmEntry(
    centralized, cohort="all", is_exact=True, label="Centralized"
  ),
  "local": AlgorithmEntry(local, cohort="first", is_exact=True, label="Local"),
  "scaffold": AlgorithmEntry(scaffold, label="SCAFFOLD"),
  "local_sgd": AlgorithmEntry(local_sgd, label="Local SGD"),
  "minibatch_sgd": AlgorithmEntry(minibatch_sgd, label="Minibatch SGD"),
  "minibatch_sarah": AlgorithmEntry(minibatch_sarah, label="Minibatch SARAH"),
  "bvr_l_sgd": AlgorithmEntry(
    bvr_l_sgd,
    "one client's local steps along a gradient estimate that all clients share",
    label="BVR-L-SGD",
  ),
  "fed_avg_sm": AlgorithmEntry(
    functools.partial(_momenta, mu_l=None, beta=None),
    "momentum at the server",
    label="FedAvgSM",
  ),
  "fed_avg_lm": AlgorithmEntry(
    functools.partial(_momenta, mu_s=None, beta=None, average_local=True),
    "momentum in the local steps, buffers averaged",
    label="FedAvgLM",
  ),
  "fed_avg_lm_z": AlgorithmEntry(
    functools.partial(_momenta, mu_s=None, beta=None),
    "momentum in the local steps, from zero in each round",
    label="FedAvgLM-Z",
  ),
  "fed_avg_slm": AlgorithmEntry(
    functools.partial(_momenta, beta=None, average_local=True),
    "fed_avg_sm and fed_avg_lm together",
    label="FedAvgSLM",
  ),
  "fed_avg_slm_z": AlgorithmEntry(
    functools.partial(_momenta, beta=None),
    "fed_avg_sm and fed_avg_lm_z together",
    label="FedAvgSLM-Z",
  ),
  "domo": AlgorithmEntry(
    _momenta,
    "fed_avg_slm_z whose clients start with a step of the server's momentum "
    "(Xu and Huang, 2022)",
    label="DOMO",
  ),
  "domo_s": AlgorithmEntry(
    functools.partial(_momenta, intra=True),
    "domo with that step divided among the local steps",
    label="DOMO-S",
  ),
  "fed_dyn": AlgorithmEntry(fed_dyn, default_client="sgd", label="FedDyn"),
  "fed_nova": AlgorithmEntry(fed_nova, label="FedNova"),
  "fed_cm": AlgorithmEntry(fed_cm, label="FedCM"),
  "fed_exp": AlgorithmEntry(fed_exp, default_client="sgd", label="FedExP"),
  "mime_lite": AlgorithmEntry(mime_lite, label="MimeLite"),
  "prox_skip": AlgorithmEntry(
    prox_skip,
    "Scaffnew: corrected local steps; clients average when a random draw "
    "says so (Mishchenko et al., 2022)",
    cohort="all",
    label="ProxSkip",
  ),
  "fed_sam": AlgorithmEntry(fed_sam, default_client="sgd", label="FedSAM"),
  "mo_fed_sam": AlgorithmEntry(mo_fed_sam, label="MoFedSAM"),
  "fed_speed": AlgorithmEntry(fed_speed, label="FedSpeed"),
  "fed_acg": AlgorithmEntry(fed_acg, default_client="sgd", label="FedACG"),
  "fed_gamma": AlgorithmEntry(fed_gamma, label="FedGamma"),
  "fed_lesam": AlgorithmEntry(
    fed_lesam, default_client="sgd", label="FedLESAM"
  ),
  "fed_dc": AlgorithmEntry(fed_dc, label="FedDC"),
  "fed_smoo": AlgorithmEntry(fed_smoo, label="FedSMOO"),
  "fed_adamw": AlgorithmEntry(fed_adamw, label="FedAdamW"),
  "fed_ex_lora": AlgorithmEntry(fed_ex_lora, label="FedEx-LoRA"),
  "fed_lada": AlgorithmEntry(fed_lada, label="FedLADA"),
  "diloco": AlgorithmEntry(
    diloco,
    default_client="adamw",
    default_server="nesterov",
    label="DiLoCo",
  ),
  "ditto": AlgorithmEntry(ditto, is_personal=True, label="Ditto"),
  "fed_per": AlgorithmEntry(
    fed_per, hyperparameters=(_PERSONAL,), is_personal=True, label="FedPer"
  ),
  "fed_rep": AlgorithmEntry(
    fed_rep,
    hyperparameters=(_PERSONAL, *from_factory(fed_rep, "shared_steps")),
    is_personal=True,
    label="FedRep",
  ),
  "fed_bn": AlgorithmEntry(fed_bn, is_personal=True, label="FedBN"),
  "p_fed_me": AlgorithmEntry(p_fed_me, is_personal=True, label="pFedMe"),
  "per_fed_avg": AlgorithmEntry(
    per_fed_avg, is_personal=True, label="Per-FedAvg"
  ),
  "fed_buff": AlgorithmEntry(fed_buff, label="FedBuff"),
  "fed_async": AlgorithmEntry(
    fed_async,
    hyperparameters=(
      *from_factory(fed_async, "mu", alpha={"flag": "algorithm_alpha"}),
      _STALENESS,
      *from_factory(fed_async, "staleness_power", "hinge_slope", "hinge_start"),
    ),
    label="FedAsync",
  ),
  "ca2fl": AlgorithmEntry(ca2fl, label="CA2FL"),
  "fadas": AlgorithmEntry(fadas, label="FADAS"),
}
register(ALGORITHMS)
