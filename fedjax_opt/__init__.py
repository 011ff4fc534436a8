"""Federated optimization, compiled: clients, rounds, grids in one program."""

from fedjax_opt import (
  algorithms,
  data,
  datasets,
  evaluation,
  lora,
  metrics,
  models,
  objectives,
  privacy,
  prox,
  rules,
  samplers,
  schedules,
  scores,
  systems,
  target,
  trainable,
  transforms,
)
from fedjax_opt.algorithms import *  # noqa: F403
from fedjax_opt.base import VERSION as __version__  # noqa: F401
from fedjax_opt.base import Algorithm, ClientOutput, grad_fn_of
from fedjax_opt.data import partition, synthetic
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine.cohort import Cohort
from fedjax_opt.engine.config import GridSettings, Settings
from fedjax_opt.engine.replies import Reply
from fedjax_opt.engine.worker import Worker
from fedjax_opt.prox import mirror
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.results.client_metrics import ClientMetrics
from fedjax_opt.results.load import Run, load_run
from fedjax_opt.results.result import Report, Result
from fedjax_opt.results.selection import Criterion
from fedjax_opt.rules import *  # noqa: F403
from fedjax_opt.simulator import (
  SimulationState,
  Simulator,
  grid_points,
  simulate,
  sweep,
)
from fedjax_opt.study import plots, statistics
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.compare import Method, compare
from fedjax_opt.study.per_client import evaluate_clients
from fedjax_opt.study.study import Study
from fedjax_opt.trainable import train_only
from fedjax_opt.transforms import aggregators, faults

__all__ = [
  "Algorithm",
  "Cell",
  "Checkpoints",
  "ClientData",
  "ClientMetrics",
  "ClientOutput",
  "Cohort",
  "Criterion",
  "GridSettings",
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
  "compare",
  "data",
  "datasets",
  "evaluate_clients",
  "evaluation",
  "faults",
  "grad_fn_of",
  "grid_points",
  "load_run",
  "lora",
  "metrics",
  "mirror",
  "models",
  "objectives",
  "partition",
  "plots",
  "privacy",
  "prox",
  "samplers",
  "schedules",
  "scores",
  "simulate",
  "statistics",
  "sweep",
  "synthetic",
  "systems",
  "target",
  "train_only",
  "trainable",
  "transforms",
]
__all__ += algorithms.__all__
__all__ += rules.__all__
