"""Federated optimization, compiled: clients, rounds, grids in one program."""

from fedjax_opt import data, evaluation, metrics, models, objectives
from fedjax_opt.algorithms import fed_avg, fed_prox, moon
from fedjax_opt.base import Algorithm, grad_fn_of
from fedjax_opt.data import partition
from fedjax_opt.data.clients import ClientData
from fedjax_opt.rules import delta_sgd, sps, step_decay
from fedjax_opt.simulator import Result, simulate
from fedjax_opt.sweep import grid_points, sweep

__all__ = [
  "Algorithm",
  "ClientData",
  "Result",
  "data",
  "delta_sgd",
  "evaluation",
  "fed_avg",
  "fed_prox",
  "grad_fn_of",
  "grid_points",
  "metrics",
  "models",
  "moon",
  "objectives",
  "partition",
  "simulate",
  "sps",
  "step_decay",
  "sweep",
]
__version__ = "0.1.0"
