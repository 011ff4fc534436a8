"""Federated optimization, compiled: clients, rounds, grids in one program."""

from fedjax_opt import data as data
from fedjax_opt import datasets as datasets
from fedjax_opt import evaluation as evaluation
from fedjax_opt import lora as lora
from fedjax_opt import metrics as metrics
from fedjax_opt import models as models
from fedjax_opt import objectives as objectives
from fedjax_opt import privacy as privacy
from fedjax_opt import prox as prox
from fedjax_opt import samplers as samplers
from fedjax_opt import schedules as schedules
from fedjax_opt import scores as scores
from fedjax_opt import systems as systems
from fedjax_opt import trainable as trainable
from fedjax_opt import transforms as transforms
from fedjax_opt.algorithms import *  # noqa: F403
from fedjax_opt.arrays import target as target
from fedjax_opt.base import VERSION as __version__  # noqa: F401
from fedjax_opt.base import Algorithm as Algorithm
from fedjax_opt.base import ClientOutput as ClientOutput
from fedjax_opt.base import grad_fn_of as grad_fn_of
from fedjax_opt.data import partition as partition
from fedjax_opt.data import synthetic as synthetic
from fedjax_opt.data.clients import ClientData as ClientData
from fedjax_opt.data.population import Population as Population
from fedjax_opt.engine.client_evaluation import (
  evaluate_clients as evaluate_clients,
)
from fedjax_opt.engine.run_options import GridOptions as GridOptions
from fedjax_opt.engine.run_options import RunOptions as RunOptions
from fedjax_opt.engine.traced.cohort import Cohort as Cohort
from fedjax_opt.engine.traced.replies import Reply as Reply
from fedjax_opt.engine.traced.worker import Worker as Worker
from fedjax_opt.prox import mirror as mirror
from fedjax_opt.results.checkpoint import Checkpoints as Checkpoints
from fedjax_opt.results.client_metrics import ClientMetrics as ClientMetrics
from fedjax_opt.results.load import Run as Run
from fedjax_opt.results.load import load_run as load_run
from fedjax_opt.results.result import Report as Report
from fedjax_opt.results.result import Result as Result
from fedjax_opt.results.selection import Criterion as Criterion
from fedjax_opt.rules import *  # noqa: F403
from fedjax_opt.simulation import SimulationState as SimulationState
from fedjax_opt.simulation import Simulator as Simulator
from fedjax_opt.simulation import grid_points as grid_points
from fedjax_opt.simulation import simulate as simulate
from fedjax_opt.simulation import sweep as sweep
from fedjax_opt.study import plots as plots
from fedjax_opt.study import statistics as statistics
from fedjax_opt.study.cells import Cell as Cell
from fedjax_opt.study.compare import Method as Method
from fedjax_opt.study.compare import compare as compare
from fedjax_opt.study.study import Study as Study
from fedjax_opt.trainable import train_only as train_only
from fedjax_opt.transforms import aggregators as aggregators
from fedjax_opt.transforms import faults as faults
