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
FAILED = "failed on a batch {x: float32[2, 3], y: int32[2]}:"
FAILED_ON_12 = "failed on a batch {x: float32[12, 3], y: int32[12]}:"
EACH = "must be one number per example, [B] = [2]"
EACH_OF_12 = "must be one number per example, [B] = [12]"
AXES = "take the mean, or the sum, over the other axes"
NO_GRADIENT = "must be floating-point numbers, else there is no gradient"
LOSS = "must be a function (params, batch, rng) -> [B]"
EVALUATE = "must be a function (params, data, test) -> {name: scalar}"
PER_EXAMPLE = "must be a function (params, batch) -> {name: [B]}"
INIT = "must be a function (params, num_clients) -> state"
TRACED = (
  "it needs the value of a traced array; write jnp.where instead of if, and "
  "jax.numpy instead of float(), int() and NumPy"
)
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


def loss_on(batch):
  loss(loss_fn, batch)


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


def model(function):
  contract.params(own({"params": function}), PARAMS)


def round_of(function):
  contract.call("round", own({"round": function}), PARAMS, None)


def returned(value):
  rounds._checked(value, [])


def after(new):
  """The state that a round returns, of one that began as PARAMS."""
  source = "Algorithm.init"
  functions.like("Algorithm.round: state", new, PARAMS, source)


def one_client(function):
  traced(lambda params: client_output(function, None, params).message, MODEL)


def output(arguments):
  one_client(lambda worker, params: ClientOutput(params, **arguments))


def step(rule, name="client"):
  step = lambda p: optimizers.step(name, rule, p, rule.init(p), p)
  traced(step, MODEL)


def field_of(rule):
  state = jax.eval_shape(rule.init, MODEL)
  return lambda name: optimizers.traced_field(state, name)


transformation = optax.GradientTransformation
TABLES = {
  (loss, ValueError): {
    f"loss_fn: returned a scalar; {EACH}; drop the .mean()": Each(
      mean_loss, lambda p, b, r: 1.0
    ),
    f"loss_fn: returned float32[2, 2]; {EACH}; {AXES}": (
      lambda p, b, r: logits_of(p, b)
    ),
    f"loss_fn: returned float32[2, 1]; {EACH}; {AXES}": (
      lambda p, b, r: loss_fn(p, b, r)[:, None]
    ),
    f"loss_fn: returned float32[1]; {EACH}": (
      lambda p, b, r: loss_fn(p, b, r)[:1]
    ),
    f"loss_fn: {FAILED} KeyError: 'image'": lambda p, b, r: b["image"],
    f"loss_fn: {FAILED} KeyError: 'v'": lambda p, b, r: p["v"],
    f"loss_fn: {FAILED} ZeroDivisionError: division by zero": lambda p, b, r: (
      1 / 0
    ),
  },
  (loss, TypeError): {
    f"loss_fn: returned (float32[2], {{}}); {EACH}, and nothing else": (
      lambda p, b, r: (loss_fn(p, b, r), {})
    ),
    f"loss_fn: returned {{loss: float32[2]}}; {EACH}, and nothing else": (
      lambda p, b, r: {"loss": loss_fn(p, b, r)}
    ),
    f"loss_fn: returned None; {EACH}": lambda p, b, r: None,
    f"loss_fn: returned 'a'; {EACH}": lambda p, b, r: "a",
    f"loss_fn: returned int32[2]; {NO_GRADIENT}": lambda p, b, r: b["y"],
    f"loss_fn: returned bool[2]; {NO_GRADIENT}": lambda p, b, r: b["y"] > 0,
    f"loss_fn: {FAILED}...": lambda p, b, r: b["x"] @ p["w"].T,
    f"loss_fn: {FAILED} {TRACED}": Each(
      lambda p, b, r: loss_fn(p, b, r) if b["y"][0] > 0 else 0,
      lambda p, b, r: np.asarray(b["x"]) @ p["w"],
      lambda p, b, r: float(loss_fn(p, b, r).sum()),
    ),
  },
  (functools.partial(functions.check_loss, "loss_fn"), TypeError): {
    f"loss_fn=the function <lambda>: takes (p, b); {LOSS}": lambda p, b: 0,
    f"loss_fn=the function <lambda>: takes (p); {LOSS}": lambda p: 0,
    f"loss_fn=the function <lambda>: takes (params, x, y, rng); {LOSS}": (
      lambda params, x, y, rng: 0
    ),
    f"loss_fn=Linear(): takes (x); {LOSS}": Linear(),
    f"loss_fn=None: {LOSS}": None,
    f"loss_fn='cross_entropy': {LOSS}": "cross_entropy",
    f"loss_fn: is an optimizer; {LOSS}, given first": SGD,
  },
  (loss_on, TypeError): {
    "loss_fn: failed on a batch {x: float32[2, 3], y: float32[2]} (y is "
    "float32[2]: labels of classes must be integers):...": TWO
    | {"y": np.ones(2, np.float32)},
    "loss_fn: failed on a batch {x: float32[2, 3], y: float32[2, 2]} (y is "
    "float32[2, 2]: of one-hot labels give y.argmax(1)):...": TWO
    | {"y": np.eye(2, dtype=np.float32)},
  },
  (loss_on, ValueError): {
    "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2, 1]} (y is "
    "int32[2, 1]: give labels [N], y[:, 0]):...": TWO | {"y": Y[:2, None]}
  },
  (features, ValueError): {
    "features_fn: returned float32[2]; must be the features of each example, "
    "[2, d]": loss_fn
  },
  (evaluated, TypeError): {
    f"evaluate=the function <lambda>: takes (p, d); {EVALUATE}": (
      lambda p, d: {}
    ),
    "evaluate: returned None; must return a dict {name: scalar}": (
      lambda p, d, t: None
    ),
    "evaluate: returned float32[]; must return a dict {name: scalar}": (
      lambda p, d, t: jnp.sum(p["w"])
    ),
    "evaluate: returned (1.0); must return a dict {name: scalar}": (
      lambda p, d, t: [1.0]
    ),
    "evaluate: 'loss' is 'a'; must be a scalar number": (
      lambda p, d, t: {"loss": "a"}
    ),
    "evaluate: 'a' is {b: 1.0}; must be a scalar number": (
      lambda p, d, t: {"a": {"b": 1.0}}
    ),
    "evaluate: 'a' is None; must be a scalar number": lambda p, d, t: {
      "a": None
    },
    "evaluate: 'a' is complex64[]; must be a scalar number": (
      lambda p, d, t: {"a": 1j * jnp.sum(p["w"])}
    ),
    "evaluate: the name 3 must be a string": lambda p, d, t: {3: 1.0},
    f"evaluate: failed: {TRACED}": (
      lambda p, d, t: {"a": float(jnp.sum(p["w"]))}
    ),
  },
  (evaluated, ValueError): {
    "evaluate: 'loss' is float32[3, 2]; must be a scalar, such as its "
    ".mean()": lambda p, d, t: {"loss": p["w"]},
    "evaluate: failed: KeyError: 'z'": lambda p, d, t: {"a": t["z"]},
  },
  (each, TypeError): {
    "per_example: returned float32[12]; must return a dict {name: "
    "[12]}": lambda p, b: loss_fn(p, b, None),
    f"per_example=the function loss_fn: takes (params, batch, rng); "
    f"{PER_EXAMPLE}": loss_fn,
    f"per_example=the function <lambda>: takes (b); {PER_EXAMPLE}": (
      lambda b: {}
    ),
    f"per_example=None: {PER_EXAMPLE}": None,
    f"per_example: 'a': returned None; {EACH_OF_12}": lambda p, b: {"a": None},
    "per_example: the name 1 must be a string": (
      lambda p, b: {1: loss_fn(p, b, None)}
    ),
  },
  (each, ValueError): {
    f"per_example: 'loss': returned a scalar; {EACH_OF_12}; drop the .mean()": (
      lambda p, b: {"loss": mean_loss(p, b, None)}
    ),
    f"per_example: 'a': returned a scalar; {EACH_OF_12}; drop the .mean()": (
      lambda p, b: {"a": 1.0}
    ),
    f"per_example: 'logits': returned float32[12, 2]; {EACH_OF_12}; {AXES}": (
      lambda p, b: {"logits": logits_of(p, b)}
    ),
    f"per_example: {FAILED_ON_12} KeyError: 'z'": lambda p, b: {"a": b["z"]},
  },
  (each_on, TypeError): {
    "per_example: failed on a batch {x: float32[12, 2], y: int32[12]}:...": {
      "x": X[:, :2],
      "y": Y,
    }
  },
  (each_on, ValueError): {
    "per_example: failed on a batch {x: float32[12, 3]}: KeyError: 'y'": {
      "x": X
    },
    f"per_example: 'accuracy': returned bool[12, 12]; {EACH_OF_12} (y is "
    "int32[12, 1]: give labels [N], y[:, 0])": {"x": X, "y": Y[:, None]},
  },
  (federated, TypeError): {
    "of_params: returned float32[3, 2]; must return a dict {name: scalar}": {
      "of_params": lambda p: p["w"]
    },
    f"per_example=None: {PER_EXAMPLE}": {"per_example": None},
  },
  (federated, ValueError): {
    "batch_size=0: must be at least 1": {"batch_size": 0},
    f"loss_fn: returned a scalar; {EACH_OF_12}; drop the .mean()": {
      "gradient_of": mean_loss
    },
    "evaluate: failed: KeyError: 'v'": {"of_params": lambda p: {"a": p["v"]}},
  },
  (fields, TypeError): {
    f"init=None: {INIT}": {"init": None},
    f"init=the function <lambda>: takes (params); {INIT}": {
      "init": lambda params: 0
    },
    "params=the function <lambda>: takes (s, t); must be a "
    "function (state) -> params": {"params": lambda s, t: s},
    "round=None: must be a function (state, cohort) -> (state, reply)": {
      "round": None
    },
    "round=the function <lambda>: takes (s); must be a function "
    "(state, cohort) -> (state, reply)": {"round": lambda s: s},
    "init_client=the function <lambda>: takes (); must be a "
    "function (params) -> tree": {"init_client": lambda: 0},
    "init_client={'w': 0}: must be a function (params) -> tree": {
      "init_client": {"w": 0}
    },
    "penalty=3: must be a function (params) -> scalar": {"penalty": 3},
    "Algorithm.client_params: clients keep nothing that it could be made of; "
    "declare what one client keeps: Algorithm(..., init_client=...)": {
      "client_params": lambda state, kept: kept
    },
  },
  (begins, TypeError): {
    "Algorithm.init: state['name']: is 'a'; must be an array of numbers": {
      "init": lambda p, n: p | {"name": "a"}
    },
    "Algorithm.init_client: is 'a'; must be an array of numbers": {
      "init_client": lambda p: "a"
    },
  },
  (begins, ValueError): {
    "Algorithm.init: failed: KeyError: 'v'": {"init": lambda p, n: p["v"]},
    "Algorithm.init_client: failed: KeyError: 'v'": {
      "init_client": lambda p: p["v"]
    },
  },
  (
    functools.partial(
      traced, lambda key: begins({"init_client": lambda p: key})
    ),
    TypeError,
  ): {
    "Algorithm.init_client: is key<fry>[]; must be an array of numbers": (
      jax.eval_shape(lambda: jax.random.key(0))
    )
  },
  (model, TypeError): {
    "Algorithm.params: is 'w'; must be an array of numbers": lambda s: "w"
  },
  (model, ValueError): {
    "Algorithm.params: failed: KeyError: 'v'": lambda s: s["v"]
  },
  (lambda function: functions.penalty(function, PARAMS), ValueError): {
    "Algorithm.penalty: 'penalty' is float32[3, 2]; must be a scalar, such "
    "as its .mean()": lambda p: p["w"]
  },
  (round_of, ValueError): {
    "Algorithm.round: failed: KeyError: 'v'": lambda s, c: s["v"]
  },
  (returned, ValueError): {
    **{
      "round: must return (state, reply), or (state, (reply, ...)) after "
      "several verbs; a reply is what a verb of the cohort returns, and its "
      f"message is reply.value. Got {kind}": value
      for kind, value in (("a dict", {}), ("(dict)", ({},)))
    }
  },
  (functions.kept, ValueError): {
    "worker.state: the algorithm has no init_client; declare what one client "
    "keeps: Algorithm(..., init_client=...)": None
  },
  (after, TypeError): {
    "Algorithm.round: state['w']: is 'a'; must be an array of numbers": {
      "w": "a"
    }
  },
  (after, ValueError): {
    "Algorithm.round: state: lacks the leaf ['w'] that Algorithm.init has": (
      Each({}, [PARAMS["w"]], None, {"v": PARAMS["w"]})
    ),
    "Algorithm.round: state: has the leaf ['t'] that Algorithm.init does not "
    "have": PARAMS | {"t": 0},
    "Algorithm.round: state['w']: is float32[2]; must be float32[3, 2], as "
    "Algorithm.init has it": {"w": np.zeros(2, np.float32)},
  },
  (
    lambda pair: functions.like(
      "Algorithm.round: state", *pair, "Algorithm.init"
    ),
    ValueError,
  ): {
    "Algorithm.round: state['t']: is float32[]; must be int32[], as "
    "Algorithm.init has it": ({"t": np.float32(0)}, {"t": np.int32(0)}),
    "Algorithm.round: state: is a list of another structure than the tuple "
    "of Algorithm.init": ([np.float32(0)], (np.float32(0),)),
  },
  (one_client, TypeError): {
    "one_client: returned None; must return its message, or a ClientOutput": (
      lambda w, p: None
    ),
    "ClientOutput.message: is 'a'; must be an array of numbers": lambda w, p: (
      "a"
    ),
    "one_client=the function <lambda>: takes (w); must be a function "
    "(worker, broadcast) -> message": lambda w: 0,
    "one_client: failed:...": lambda w, p: p["w"] @ p["w"],
  },
  (one_client, ValueError): {
    "one_client: failed: KeyError: 'v'": lambda w, p: p["v"]
  },
  (output, TypeError): {
    "ClientOutput.weight: is 'a'; must be a scalar number": {"weight": "a"},
    "ClientOutput.weight: is float32[3]; must be a scalar number": {
      "weight": np.ones(3, np.float32)
    },
    "ClientOutput.bytes_up: is 'a'; must be a scalar number": {"bytes_up": "a"},
    "ClientOutput.metrics: returned 3; must return a dict {name: scalar}": {
      "metrics": 3
    },
  },
  (output, ValueError): {
    "ClientOutput.metrics: 'a' is float32[3]; must be a scalar, such as its "
    ".mean()": {"metrics": {"a": np.ones(3, np.float32)}}
  },
  (step, TypeError): {"client: its update failed:...": optax.scale("0.1")},
  (step, ValueError): {
    "client: its update failed:...": Each(
      transformation(lambda p: 0.0, lambda g, s, p=None: ({"v": 1.0}, s)),
      transformation(lambda p: 0.0, lambda g, s, p=None: g),
    ),
    "delta_sgd: update needs grad_fn=, the gradient of the current batch as "
    "a function of params; or create it with reuse_gradients=True": delta_sgd(),
  },
  (lambda rule: step(rule, "server"), TypeError): {
    "server: its update failed:...": sps()
  },
  (
    lambda new: functions.like(
      "client: the rule's state", new, {"a": 0.0}, "init"
    ),
    ValueError,
  ): {
    "client: the rule's state: lacks the leaf ['a'] that init has": {"b": 0.0}
  },
  (field_of(SGD), ValueError): {
    "trace='momentum': the client rule's state has no such field": "momentum"
  },
  (
    field_of(optax.chain(optax.scale_by_adam(), optax.scale_by_adam())),
    ValueError,
  ): {
    "trace='count': the client rule's state has several such fields; must be "
    "the name of one": "count"
  },
  (field_of(optax.adam(0.1)), ValueError): {
    "trace='mu': is a tree of arrays; must be a field with one number": "mu"
  },
}
CASES = refused(TABLES)


@pytest.mark.parametrize(("call", "kind", "line"), CASES)
def test_is_refused(call, kind, line):
  given.check(call, kind, line)
