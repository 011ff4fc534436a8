"""What studies, their statistics and their pictures refuse.

The calls and their messages are in checks/refusals/studies.txt.
"""

import matplotlib.figure
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.results.history import History
from tests.helpers import linear, refusals, studies
from tests.helpers.histories import of_values, random

NAN, INF = float("nan"), float("inf")
# [seeds, tasks].
OK = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
GRID = {"learning_rate": [0.1, 0.5]}


def sgd(learning_rate):
  return fo.fed_avg(linear.loss_fn, optax.sgd(learning_rate))


A = {"A": fo.Method(sgd, GRID)}
MANY = fo.ClientData.from_partition(linear.DATA.examples, [[0, 1]] * 6)
OF_TEN = fo.ClientData.from_partition(linear.DATA.examples, [range(10)] * 6)
VALIDATION = {name: 2 * values for name, values in linear.TEST.items()}
TRAIN, HELD_OUT = linear.DATA.split(0.5, seed=1)
PARTS = {
  "data": TRAIN,
  "validation": HELD_OUT,
  "test": HELD_OUT,
  "batch_size": 1,
}
OWN = {"own_models": linear.per_example, "metric": "client_test_loss"}
KRUM = {"aggregator": fo.aggregators.multi_krum(1), "weighting": "uniform"}


def no_validation(params, data, test):
  return {"test_accuracy": 0.5}


def other_metric(params, data, test, validation=None):
  return {"foo": 1.0}


def client_metric(params, data, test, validation=None):
  return {"client_test_loss": 1.0}


def fails(learning_rate):
  loss = lambda params, batch, rng: params["no"]
  return fo.fed_avg(loss, optax.sgd(learning_rate))


def of_alpha(seed, alpha):
  if alpha > 0.5:
    raise RuntimeError("no such alpha")
  return linear.DATA


def of_width(seed, width):
  examples = {"x": np.ones((4, width), np.float32), "y": np.zeros(4, np.int32)}
  return fo.ClientData.from_partition(examples, [[0, 1], [2, 3]])


def of_tuning_seeds(seed):
  if seed > 1:
    raise RuntimeError("no such seed")
  return linear.DATA


def compare(**bad):
  """A comparison of which these arguments are other ones."""
  arguments = {
    "methods": {"A": (sgd, GRID), "B": (sgd, {"learning_rate": [0.2, 0.3]})},
    "params": linear.PARAMS,
    "data": linear.DATA,
    "seeds": [0, 1],
    "validation": VALIDATION,
    "test": linear.TEST,
    "rounds": 3,
    "batch_size": 2,
    "eval_every": 3,
    "evaluate": fo.evaluation.federated(linear.per_example),
  }
  fo.compare(**arguments | bad)


def costs():
  """A point that has not spent bytes."""
  return of_values(test_accuracy=[[0.1, 0.6]], rank=[[3.0, 2.0]])


def grid(values, chosen=None):
  """Rates over rates."""
  rates = [[10.0**-i for i in range(size)] for size in (1, 1)]
  return fo.plots.Grid(
    np.array(values), ("server_lr", rates[0]), ("client_lr", rates[1]), chosen
  )


def sensitivity(**options):
  """A picture of the rates 0 and 0.1."""
  curves = {"a": ([0.0, 0.1], [[1.0, 2.0]])}
  options |= {"metric": "train_loss", "x_name": "client_lr"}
  fo.plots.sensitivity(curves, None, **options)


def values(mean, **options):
  """A picture of values against mu = 0 and 1."""
  mean = np.array(mean)
  options |= {"metric": "test_accuracy", "x_name": "mu", "x_values": [0, 1]}
  fo.plots.study_values({"a": (mean, mean, mean)}, None, **options)


def study(*conditions, **more):
  """A study made by hand, of one method."""
  studies.study(*(studies.cell("A", [0.5], c) for c in conditions), **more)


def log_scale(limits):
  axes = matplotlib.figure.Figure().subplots()
  try:
    fo.plots.log_scale(axes.yaxis, limits)
  finally:
    assert axes.get_yscale() == "linear"  # Nothing was changed.


def of_clients(losses, sizes=None):
  metric = "client_test_loss"
  fo.plots.client_distribution({"a": losses}, None, metric=metric, sizes=sizes)


@pytest.fixture(autouse=True)
def nothing_is_written(monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  yield
  assert not list(tmp_path.iterdir())


test_is_refused = refusals.of_table(
  "studies.txt", fo.statistics, fo.plots, History, random, of_values, sgd,
  no_validation, other_metric, client_metric, fails, of_alpha,
  of_width, of_tuning_seeds, compare, costs, grid, study, sensitivity, values,
  log_scale, of_clients, INF=INF, NAN=NAN, OK=OK, GRID=GRID, A=A, MANY=MANY,
  KRUM=KRUM, OF_TEN=OF_TEN, OWN=OWN, SAME=linear.TEST, PARTS=PARTS,
)  # fmt: skip
