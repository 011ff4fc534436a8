"""What a caller's functions take and return: each checker by itself."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_opt import Algorithm, ClientOutput, contract, optimizers
from fedjax_opt import evaluation as measures
from fedjax_opt.base import client_output
from fedjax_opt.checks import functions
from fedjax_opt.engine import rounds
from fedjax_opt.engine.config import Config
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


def loss_on(labels):
  loss(loss_fn, TWO | {"y": labels})


def no_loss(value):
  functions.check_loss("loss_fn", value)


def features(function):
  traced(functions.checked_features(function), MODEL, TWO, None)


def evaluated(function):
  metrics = functions.checked_metrics
  traced(lambda params: metrics(function, params, DATA, TEST), MODEL)


def each(function, batch=TEST):
  per_example = functions.checked_per_example
  traced(functools.partial(per_example, function), MODEL, batch)


def accuracy(params, batch):
  return {"accuracy": logits_of(params, batch).argmax(1) == batch["y"]}


def each_on(batch):
  each(accuracy, batch)


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


def keeps(key):
  traced(lambda key: begins({"init_client": lambda p: key}), key)


def model(function):
  contract.evaluated_params(own({"params": function}), PARAMS)


def penalty(function):
  config = Config.create(DATA, {"batch_size": 1, "evaluate": lambda *_: {}})
  rounds.evaluate(config, own({"penalty": function}), PARAMS, DATA, None, None)


def round_of(function):
  contract.call_function("round", own({"round": function}), PARAMS, None)


def after(new, old=PARAMS):
  """The state that a round returns, of one that began as the old one."""
  functions.check_like("Algorithm.round: state", new, old, "Algorithm.init")


def after_other(pair):
  after(*pair)


def one_client(function):
  traced(lambda params: client_output(function, None, params).message, MODEL)


def output(arguments):
  one_client(lambda worker, params: ClientOutput(params, **arguments))


def step(rule, name="client"):
  step = lambda p: optimizers.step(name, rule, p, rule.init(p), p)
  traced(step, MODEL)


def server_step(rule):
  step(rule, "server")


def field(rule_and_name):
  rule, name = rule_and_name
  optimizers.traced_field(jax.eval_shape(rule.init, MODEL), name)


test_is_refused = refusals.of_table(
  "functions.txt", functions, Linear, mean_loss, loss, loss_on, no_loss,
  features, evaluated, each, each_on, federated, fields, begins, keeps, model,
  penalty, round_of, after, after_other, one_client, output, step,
  field, server_step,
)  # fmt: skip
