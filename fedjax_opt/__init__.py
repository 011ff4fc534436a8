"""Federated optimization, compiled: clients, rounds, grids in one program."""

from fedjax_opt import (
  aggregators,
  data,
  evaluation,
  faults,
  metrics,
  mirror,
  models,
  objectives,
  prox,
  samplers,
  trainable,
  transforms,
)
from fedjax_opt.algorithms import (
  bvr_l_sgd,
  centralized,
  diloco,
  domo,
  fed_avg,
  fed_avg_subgradient,
  fed_cm,
  fed_dual_avg,
  fed_dyn,
  fed_exp,
  fed_mid,
  fed_nova,
  fed_prox,
  fed_sam,
  fed_speed,
  local,
  local_sgd,
  mime_lite,
  minibatch_sarah,
  minibatch_sgd,
  mo_fed_sam,
  moon,
  optimum,
  prox_skip,
  scaffold,
)
from fedjax_opt.base import Algorithm, ClientOutput, grad_fn_of
from fedjax_opt.comparison.cells import Cell, Study
from fedjax_opt.comparison.studies import Method, compare
from fedjax_opt.data import partition, synthetic
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine.cohort import Cohort
from fedjax_opt.engine.config import Settings
from fedjax_opt.engine.replies import Reply
from fedjax_opt.engine.worker import Worker
from fedjax_opt.per_client import ClientMetrics, evaluate_clients
from fedjax_opt.results import plots, statistics
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.results.load import Run, load_run
from fedjax_opt.results.result import Report, Result
from fedjax_opt.results.selection import Criterion
from fedjax_opt.rules import (
  delta_sgd,
  dual_averaging,
  mirror_step,
  momentum_fusion,
  sarah,
  sharpness_aware,
  sps,
  step_decay,
  subgradient_step,
)
from fedjax_opt.simulator import (
  SimulationState,
  Simulator,
  grid_points,
  simulate,
  sweep,
)
from fedjax_opt.trainable import train_only

__all__ = [
  "Algorithm",
  "Cell",
  "Checkpoints",
  "ClientData",
  "ClientMetrics",
  "ClientOutput",
  "Cohort",
  "Criterion",
  "Method",
  "Population",
  "Reply",
  "Report",
  "Result",
  "Run",
  "Settings",
  "SimulationState",
  "Simulator",
  "Study",
  "Worker",
  "aggregators",
  "bvr_l_sgd",
  "centralized",
  "compare",
  "data",
  "delta_sgd",
  "diloco",
  "domo",
  "dual_averaging",
  "evaluate_clients",
  "evaluation",
  "faults",
  "fed_avg",
  "fed_avg_subgradient",
  "fed_cm",
  "fed_dual_avg",
  "fed_dyn",
  "fed_exp",
  "fed_mid",
  "fed_nova",
  "fed_prox",
  "fed_sam",
  "fed_speed",
  "grad_fn_of",
  "grid_points",
  "load_run",
  "local",
  "local_sgd",
  "metrics",
  "mime_lite",
  "minibatch_sarah",
  "minibatch_sgd",
  "mirror",
  "mirror_step",
  "mo_fed_sam",
  "models",
  "momentum_fusion",
  "moon",
  "objectives",
  "optimum",
  "partition",
  "plots",
  "prox",
  "prox_skip",
  "samplers",
  "sarah",
  "scaffold",
  "sharpness_aware",
  "simulate",
  "sps",
  "statistics",
  "step_decay",
  "subgradient_step",
  "sweep",
  "synthetic",
  "train_only",
  "trainable",
  "transforms",
]
__version__ = "0.1.0"
