"""What a caller's functions take and return: each checker by itself."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import (
  Algorithm,
  ClientOutput,
  contract,
  delta_sgd,
  optimizers,
  sps,
)
from fedjax_opt import evaluation as measures
from fedjax_opt.base import client_output
from fedjax_opt.checks import functions
from fedjax_opt.engine import rounds
from fedjax_opt.engine.config import Config
from tests.checks import given
from tests.checks.given import (
  DATA,
  PARAMS,
  SGD,
  TEST,
  Each,
  X,
  Y,
  logits_of,
  loss_fn,
  per_example,
  refused,
)

TWO = {"x": X[:2], "y": Y[:2]}
# What a message says of them.
FAILED = "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}: "
FAILED_ON_12 = "failed on a batch {x: float32[12, 3], y: int32[12]}: "
ON_LABELS = "loss_fn: failed on a batch {x: float32[2, 3], y: "
TRACED = "it needs the value of a traced array; write jnp.where instead of if"
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
  traced(functions.loss(function), MODEL, batch, None)


def loss_on(labels):
  loss(loss_fn, TWO | {"y": labels})


def no_loss(value):
  functions.check_loss("loss_fn", value)


def features(function):
  traced(functions.features(function), MODEL, TWO, None)


def evaluated(function):
  traced(lambda params: functions.metrics(function, params, DATA, TEST), MODEL)


def each(function, batch=TEST):
  traced(functools.partial(functions.per_example, function), MODEL, batch)


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
    "init": lambda params, num_clients: params,
    "round": lambda state, cohort: None,
    "params": lambda state: state,
  }
  return Algorithm(**good | fields)


def fields(bad):
  contract.check("algorithm", own(bad))


def begins(bad):
  contract.start(own(bad), PARAMS, 4)


def keeps(key):
  traced(lambda key: begins({"init_client": lambda p: key}), key)


def model(function):
  contract.params(own({"params": function}), PARAMS)


def penalty(function):
  config = Config.create(DATA, {"batch_size": 1, "evaluate": lambda *_: {}})
  rounds.evaluate(config, own({"penalty": function}), PARAMS, DATA, None, None)


def round_of(function):
  contract.call("round", own({"round": function}), PARAMS, None)


def after(new, old=PARAMS):
  """The state that a round returns, of one that began as the old one."""
  functions.like("Algorithm.round: state", new, old, "Algorithm.init")


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


transformation = optax.GradientTransformation
TABLES = {
  (loss, ValueError): {
    "loss_fn: returned a scalar; must be one number per example, [B] = [2]; "
    "drop the .mean()": Each(mean_loss, lambda p, b, r: 1.0),
    "loss_fn: returned float32[2, 2]; ": lambda p, b, r: logits_of(p, b),
    "loss_fn: returned float32[2, 1]; ": (
      lambda p, b, r: loss_fn(p, b, r)[:, None]
    ),
    "loss_fn: returned float32[1]; ": lambda p, b, r: loss_fn(p, b, r)[:1],
    f"{FAILED}KeyError: 'image'": lambda p, b, r: b["image"],
    f"{FAILED}ZeroDivisionError: division by zero": lambda p, b, r: 1 / 0,
  },
  (loss, TypeError): {
    "loss_fn: returned (float32[2], {}); ": (
      lambda p, b, r: (loss_fn(p, b, r), {})
    ),
    "loss_fn: returned {loss: float32[2]}; ": (
      lambda p, b, r: {"loss": loss_fn(p, b, r)}
    ),
    "loss_fn: returned None; ": lambda p, b, r: None,
    "loss_fn: returned 'a'; ": lambda p, b, r: "a",
    "loss_fn: returned int32[2]; must be floating": lambda p, b, r: b["y"],
    "loss_fn: returned bool[2]; must be floating": lambda p, b, r: b["y"] > 0,
    FAILED: lambda p, b, r: b["x"] @ p["w"].T,
    f"{FAILED}{TRACED}": Each(
      lambda p, b, r: loss_fn(p, b, r) if b["y"][0] > 0 else 0,
      lambda p, b, r: np.asarray(b["x"]) @ p["w"],
      lambda p, b, r: float(loss_fn(p, b, r).sum()),
    ),
  },
  (no_loss, TypeError): {
    "loss_fn=": Each(
      lambda p, b: 0,
      lambda params, x, y, rng: 0,
      Linear(),
      None,
      "cross_entropy",
    ),
    "loss_fn: is an optimizer; ": SGD,
  },
  (loss_on, TypeError): {
    f"{ON_LABELS}float32[2]}} (y is float32[2]: labels of classes must be "
    "integers): ": np.ones(2, np.float32),
    f"{ON_LABELS}float32[2, 2]}} (y is float32[2, 2]: of one-hot labels give "
    "y.argmax(1)): ": np.eye(2, dtype=np.float32),
  },
  (loss_on, ValueError): {
    f"{ON_LABELS}int32[2, 1]}} (y is int32[2, 1]: give labels ": (Y[:2, None])
  },
  (features, ValueError): {"features_fn: returned float32[2]; ": loss_fn},
  (evaluated, TypeError): {
    "evaluate=": lambda p, d: {},
    "evaluate: returned ": Each(
      lambda p, d, t: None, lambda p, d, t: jnp.sum(p["w"]), lambda p, d, t: [1]
    ),
    "evaluate: 'a' is ": Each(
      lambda p, d, t: {"a": "a"},
      lambda p, d, t: {"a": {"b": 1.0}},
      lambda p, d, t: {"a": None},
      lambda p, d, t: {"a": 1j * jnp.sum(p["w"])},
    ),
    "evaluate: the name 3 must be a string": lambda p, d, t: {3: 1.0},
    f"evaluate: failed: {TRACED}": lambda p, d, t: {"a": float(p["w"][0, 0])},
  },
  (evaluated, ValueError): {
    "evaluate: 'loss' is float32[3, 2]; ": lambda p, d, t: {"loss": p["w"]},
    "evaluate: failed: KeyError: 'z'": lambda p, d, t: {"a": t["z"]},
  },
  (each, TypeError): {
    "per_example: returned float32[12]; ": lambda p, b: loss_fn(p, b, None),
    "per_example=": Each(loss_fn, lambda b: {}, None),
    "per_example: 'a': returned None; ": lambda p, b: {"a": None},
    "per_example: the name 1 must be a string": (
      lambda p, b: {1: loss_fn(p, b, None)}
    ),
  },
  (each, ValueError): {
    "per_example: 'a': returned a scalar; ": Each(
      lambda p, b: {"a": mean_loss(p, b, None)}, lambda p, b: {"a": 1.0}
    ),
    "per_example: 'a': returned float32[12, 2]; ": (
      lambda p, b: {"a": logits_of(p, b)}
    ),
    f"per_example: {FAILED_ON_12}KeyError: 'z'": lambda p, b: {"a": b["z"]},
  },
  (each_on, TypeError): {
    "per_example: failed on a batch {x: float32[12, 2], y: int32[12]}: ": {
      "x": X[:, :2],
      "y": Y,
    }
  },
  (each_on, ValueError): {
    "per_example: failed on a batch {x: float32[12, 3]}: KeyError: 'y'": {
      "x": X
    },
    "per_example: 'accuracy': returned bool[12, 12]; must be one number per "
    "example, [B] = [12] (y is int32[12, 1]: ": {"x": X, "y": Y[:, None]},
  },
  (federated, TypeError): {
    "of_params: returned float32[3, 2]; ": {"of_params": lambda p: p["w"]},
    "per_example=None: ": {"per_example": None},
  },
  (federated, ValueError): {
    "batch_size=0: ": {"batch_size": 0},
    "loss_fn: returned a scalar; ": {"gradient_of": mean_loss},
    "evaluate: failed: KeyError: 'v'": {"of_params": lambda p: {"a": p["v"]}},
  },
  (fields, TypeError): {
    "init=": Each({"init": None}, {"init": lambda params: 0}),
    "params=": {"params": lambda s, t: s},
    "round=": Each({"round": None}, {"round": lambda s: s}),
    "init_client=": Each({"init_client": lambda: 0}, {"init_client": {"w": 0}}),
    "penalty=3: ": {"penalty": 3},
    "Algorithm.client_params: is made of what a client keeps": {
      "client_params": lambda state, kept: kept
    },
  },
  (begins, TypeError): {
    "Algorithm.init: state['name']: is 'a'; ": {
      "init": lambda p, n: p | {"name": "a"}
    },
    "Algorithm.init_client: is 'a'; ": {"init_client": lambda p: "a"},
  },
  (begins, ValueError): {
    "Algorithm.init: failed: KeyError: 'v'": {"init": lambda p, n: p["v"]},
    "Algorithm.init_client: failed: KeyError: 'v'": {
      "init_client": lambda p: p["v"]
    },
  },
  (keeps, TypeError): {
    "Algorithm.init_client: is key<fry>[]; ": (
      jax.eval_shape(lambda: jax.random.key(0))
    )
  },
  (model, TypeError): {"Algorithm.params: is 'w'; ": lambda s: "w"},
  (model, ValueError): {
    "Algorithm.params: failed: KeyError: 'v'": lambda s: s["v"]
  },
  (penalty, ValueError): {"Algorithm.penalty: 'penalty' is ": lambda p: p["w"]},
  (round_of, ValueError): {
    "Algorithm.round: failed: KeyError: 'v'": lambda s, c: s["v"]
  },
  (functions.kept, ValueError): {"worker.state: the algorithm has no ": None},
  (after, TypeError): {
    "Algorithm.round: state['w']: is 'a'; ": {"w": "a"},
  },
  (after, ValueError): {
    "Algorithm.round: state: lacks the leaf ['w'] that Algorithm.init has": (
      Each({}, [PARAMS["w"]], None, {"v": PARAMS["w"]})
    ),
    "Algorithm.round: state: has the leaf ['t'] that ": PARAMS | {"t": 0},
    "Algorithm.round: state['w']: is float32[2]; must be float32[3, 2], as "
    "Algorithm.init has it": {"w": np.zeros(2, np.float32)},
  },
  (after_other, ValueError): {
    "Algorithm.round: state['t']: is float32[]; must be int32[]": (
      {"t": np.float32(0)},
      {"t": np.int32(0)},
    ),
    "Algorithm.round: state: is a list of another structure than the tuple": (
      [np.float32(0)],
      (np.float32(0),),
    ),
  },
  (one_client, TypeError): {
    "one_client: returned None; ": lambda w, p: None,
    "ClientOutput.message: is 'a'; ": lambda w, p: "a",
    "one_client=the function <lambda>: takes (w); ": lambda w: 0,
    "one_client: failed: TypeError: ": lambda w, p: p["w"] @ p["w"],
  },
  (one_client, ValueError): {
    "one_client: failed: KeyError: 'v'": lambda w, p: p["v"]
  },
  (output, TypeError): {
    "ClientOutput.weight: is ": Each({"weight": "a"}, {"weight": np.ones(3)}),
    "ClientOutput.bytes_up: is ": Each({"bytes_up": "a"}, {"bytes_up": 1.5}),
    "ClientOutput.metrics: returned 3; ": {"metrics": 3},
  },
  (output, ValueError): {
    "ClientOutput.metrics: 'a' is float32[3]; ": {
      "metrics": {"a": np.ones(3, np.float32)}
    }
  },
  (step, TypeError): {"client: its update failed: ": optax.scale("0.1")},
  (step, ValueError): {
    "client: its update failed: ": Each(
      transformation(lambda p: 0.0, lambda g, s, p=None: ({"v": 1.0}, s)),
      transformation(lambda p: 0.0, lambda g, s, p=None: g),
    ),
    "delta_sgd: update needs grad_fn=": delta_sgd(),
  },
  (server_step, TypeError): {"server: its update failed: ": sps()},
  (field, ValueError): {
    "trace='momentum': the client rule's state has no such field": (
      SGD,
      "momentum",
    ),
    "trace='count': the client rule's state has several such fields": (
      optax.chain(optax.scale_by_adam(), optax.scale_by_adam()),
      "count",
    ),
    "trace='mu': is a tree of arrays; ": (optax.adam(0.1), "mu"),
  },
}


@pytest.mark.parametrize(("call", "kind", "line"), refused(TABLES))
def test_is_refused(call, kind, line):
  given.check(call, kind, line)
