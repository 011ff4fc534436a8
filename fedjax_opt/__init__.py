"""Federated optimization, compiled: clients, rounds, grids in one program."""

from fedjax_opt import (
  data,
  evaluation,
  metrics,
  mirror,
  models,
  objectives,
  prox,
)
from fedjax_opt.algorithms import (
  bvr_l_sgd,
  centralized,
  domo,
  fed_avg,
  fed_avg_subgradient,
  fed_dual_avg,
  fed_mid,
  fed_prox,
  local,
  local_sgd,
  minibatch_sarah,
  minibatch_sgd,
  moon,
  optimum,
  scaffold,
)
from fedjax_opt.base import Algorithm, grad_fn_of
from fedjax_opt.data import partition, synthetic
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.results import plots
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.rules import (
  delta_sgd,
  dual_averaging,
  mirror_step,
  momentum_fusion,
  sarah,
  sps,
  step_decay,
  subgradient_step,
)
from fedjax_opt.simulator import Result, simulate
from fedjax_opt.sweep import grid_points, sweep

__all__ = [
  "Algorithm",
  "Checkpoints",
  "ClientData",
  "Population",
  "Result",
  "bvr_l_sgd",
  "centralized",
  "data",
  "delta_sgd",
  "domo",
  "dual_averaging",
  "evaluation",
  "fed_avg",
  "fed_avg_subgradient",
  "fed_dual_avg",
  "fed_mid",
  "fed_prox",
  "grad_fn_of",
  "grid_points",
  "local",
  "local_sgd",
  "metrics",
  "minibatch_sarah",
  "minibatch_sgd",
  "mirror",
  "mirror_step",
  "models",
  "momentum_fusion",
  "moon",
  "objectives",
  "optimum",
  "partition",
  "plots",
  "prox",
  "sarah",
  "scaffold",
  "simulate",
  "sps",
  "step_decay",
  "subgradient_step",
  "sweep",
  "synthetic",
]
__version__ = "0.1.0"
