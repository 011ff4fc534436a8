"""What a caller's functions take and return: each checker by itself."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_opt import Algorithm, ClientOutput, contract, optimizers
from fedjax_opt import evaluation as measures
from fedjax_opt.base import client_output
from fedjax_opt.checks import functions
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced import rounds
from fedjax_opt.engine.traced.replies import Reply
from tests.helpers import refusals
from tests.helpers.linear import (
  DATA,
  PARAMS,
  TEST,
  X,
  Y,
  logits_of,
  loss_fn,
  per_example,
)

TWO = {"x": X[:2], "y": Y[:2]}
MODEL = {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32)}


class Linear(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(2)(x)


def mean_loss(params, batch, rng):
  return loss_fn(params, batch, rng).mean()


def traced(function, *args):
  """Calls a function with traced arrays, as a run does."""
  jax.eval_shape(function, *args)


def loss(function, batch=TWO):
  traced(functions.checked_loss(function), MODEL, batch, None)


def evaluated(function):
  metrics = functions.checked_metrics
  traced(lambda params: metrics(function, params, DATA, TEST), MODEL)


def each(function, batch=TEST):
  per_example = functions.checked_per_example
  traced(functools.partial(per_example, function), MODEL, batch)


def accuracy(params, batch):
  return {"accuracy": logits_of(params, batch).argmax(1) == batch["y"]}


def federated(arguments):
  evaluate = measures.federated(**{"per_example": per_example} | arguments)
  evaluated(evaluate)


def own(fields):
  """An algorithm of one's own, of which these functions are bad."""
  good = {
    "init": lambda params: params,
    "round": lambda state, cohort: None,
    "params": lambda state: state,
  }
  return Algorithm(**good | fields)


def fields(bad):
  contract.check_algorithm("algorithm", own(bad))


def begins(bad):
  contract.initial_states(own(bad), PARAMS, 4)


def penalty(function):
  config = Config.create(DATA, {"batch_size": 1, "evaluate": lambda *_: {}})
  rounds.evaluate(config, own({"penalty": function}), PARAMS, DATA, None, None)


def after(new, old=PARAMS):
  """The state that a round returns, of one that began as the old one."""
  functions.check_like("Algorithm.round: state", new, old, "Algorithm.init")


def one_client(function):
  traced(lambda params: client_output(function, None, params).message, MODEL)


def output(arguments):
  one_client(lambda worker, params: ClientOutput(params, **arguments))


def step(rule, name="client"):
  step = lambda p: optimizers.step(name, rule, p, rule.init(p), p)
  traced(step, MODEL)


def field(rule, name):
  optimizers.traced_field(jax.eval_shape(rule.init, MODEL), name)


test_is_refused = refusals.of_table(
  "functions.txt", contract, functions, Linear, mean_loss, traced, loss,
  evaluated, each, accuracy, federated, own, fields, begins, penalty, after,
  one_client, output, step, field, Reply, TWO=TWO, MODEL=MODEL,
)  # fmt: skip
