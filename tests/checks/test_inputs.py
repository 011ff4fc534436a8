"""Data, test examples, initial models and grids: each checker by itself."""

import numpy as np
import optax
import pytest
from flax import nnx

from fedjax_opt import ClientData, fed_avg
from fedjax_opt.checks import functions
from fedjax_opt.engine import inputs
from tests.helpers import refusals
from tests.helpers.linear import DATA, OWNERS, TEST, X, Y, evaluate, loss_fn

pytestmark = pytest.mark.quick

ROWS, ONES = np.zeros((4, 3), int), np.ones(4, int)


class Module(nnx.Module):
  def __init__(self):
    self.w = nnx.Param(np.zeros((3, 2)))


class CallableModule(Module):
  def __call__(self, x):
    return x @ self.w


def make(lr):
  return fed_avg(loss_fn, optax.sgd(lr))


def held_out(pools, evaluate=evaluate):
  ((name, value),) = pools.items()
  inputs.checked_held_out(value, evaluate, name, DATA)


def model(value):
  inputs.checked_params(value, may_be_function=False)


def models(value):
  inputs.checked_params(value, may_be_function=True)


def grid(values, make=make):
  inputs.checked_grid(make, values)


def share_nothing(seed):
  return ClientData.from_client_ids({"x": X + seed, "y": Y}, OWNERS)


def fewer(seed):
  return ClientData(TEST, np.zeros((4 - seed, 3), int), np.ones(4 - seed, int))


test_is_refused = refusals.of_table(
  "inputs.txt", functions, inputs, Module, CallableModule, make, held_out,
  model, models, grid, share_nothing, fewer, ROWS=ROWS, ONES=ONES,
)  # fmt: skip
