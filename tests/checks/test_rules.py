"""Arguments of algorithms, rules, regularizers and terms of the loss."""

import functools
import types

import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

import fedjax_opt as fo
from fedjax_opt import algorithms, contract, optimizers, prox, rules
from fedjax_opt.checks import fields
from fedjax_opt.checks import rules as checks
from fedjax_opt.optimizers import at_round
from tests.checks import given
from tests.checks.given import ALGORITHM, SGD, Each, loss_fn, refused
from tests.checks.test_fields import FACTORIES

RULE = "must be an optimizer, such as optax.sgd(0.1)"
RATE = "must be a number, or a function from the round to one"
# Numbers of any sign.
UNBOUNDED = {"momentum_fusion rate", "sps f_min", "compare target"}
UNBOUNDED |= {"compare min_effect"}


def test_algorithms_take_a_loss_and_a_rule_or_a_rate():
  """How values of a kind are refused: see test_fields.py."""
  for choice in algorithms.ALGORITHMS.values():
    own = getattr(choice.factory, "func", choice.factory).fields
    assert own["loss_fn"] == fields.LOSS
    if "learning_rate" not in own:
      assert own["client"] == fields.CLIENT_RULE
      assert own.get("server", own["client"]).accepts in (
        checks.optimizer,
        checks.client,
      )
    elif choice.factory not in (fo.centralized, fo.local):
      assert own["learning_rate"].accepts.func is checks.rate


def test_numbers_have_an_interval():
  open_ended = {
    name
    for name, (_, _, field) in FACTORIES.items()
    if isinstance(field, fields.Number) and field.interval == "(-inf, inf)"
  }
  assert open_ended == UNBOUNDED


def client(value):
  fo.fed_avg(loss_fn, value)


def client_of_round(value):
  optimizers.of_round(value, jnp.int32(0))


def server(value):
  fo.fed_avg(loss_fn, SGD, value)


def base(value):
  fo.mime_lite(loss_fn, 0.1, base=value)


def rate(value):
  fo.scaffold(loss_fn, value)


def rate_of_round(value):
  at_round(value, jnp.int32(0))


def constant_rate(value):
  fo.prox_skip(loss_fn, value)


def of(factory, *good):
  """Calls a factory, with these arguments."""
  return lambda arguments: factory(*good, **arguments)


def everyone(name):
  contract.takes_everyone(name, types.SimpleNamespace(is_everyone=False))


ZERO = prox.zero()
OF_ROUND = lambda round: 1
TABLES = {
  (client, TypeError): {
    "client=the function optax.sgd: was not called; ": Each(
      optax.sgd, optax.inject_hyperparams(optax.sgd)
    ),
    "client=the function optax.sam: was not called; ": optax.contrib.sam,
    "client=the function fedjax_opt.sps: was not called; ": fo.sps,
    "client=a partial of optax.sgd: was not called; ": (
      functools.partial(optax.sgd, 0.1)
    ),
    "client=the function <lambda>: takes (": Each(
      lambda learning_rate: SGD, lambda lr: SGD, lambda a, b: SGD
    ),
    "client=the function loss_fn: takes (params, batch, rng); ": loss_fn,
    "client=the function optax.schedule: is a schedule; ": (
      optax.exponential_decay(0.1, 10, 0.9)
    ),
    f"client='sgd': {RULE}, or a function from the round to one; write "
    "optax.sgd(...)": "sgd",
    f"client=0.1: {RULE}, or a function from the round to one; write "
    "optax.sgd(0.1)": 0.1,
    f"client=a MultiSteps: {RULE}, or a function from the round to one; give "
    "its .gradient_transformation()": optax.MultiSteps(SGD, 2),
    "client=": Each("fancy", None, ALGORITHM, dict, [SGD]),
  },
  (client_of_round, TypeError): {
    "client: its function of the round returned ": Each(
      lambda r: 0.1, lambda r: optax.sgd
    )
  },
  (client_of_round, ValueError): {
    "client: failed: KeyError: 0": lambda r: {}[0]
  },
  (server, TypeError): {
    "server=the function optax.sgd: was not called; ": optax.sgd,
    f"server=1.0: {RULE}; write optax.sgd(1.0)": 1.0,
    f"server=the function <lambda>: {RULE}; for a rate that changes": (
      lambda r: SGD
    ),
    "server=": Each("adam", [1]),
  },
  (base, TypeError): {
    f"base='adam': {RULE}; write optax.adam(...)": "adam",
    "base=the function optax.scale_by_adam: was not": optax.scale_by_adam,
  },
  (rate, TypeError): {
    "learning_rate=": Each(
      *("0.1", None, True, [0.1], np.ones(2), optax.sgd, lambda: 0.1)
    )
  },
  (rate, ValueError): {
    "learning_rate=nan: ": float("nan"),
    "learning_rate=inf: ": float("inf"),
    "learning_rate=-0.1: ": -0.1,
    f"learning_rate: {RATE}; this algorithm takes plain steps": SGD,
  },
  (rate_of_round, TypeError): {
    "learning_rate: its function of the round returned ": Each(
      lambda round: "a", lambda round: np.ones(2), lambda round: None
    )
  },
  (rate_of_round, ValueError): {"learning_rate=-0.1: ": lambda round: -0.1},
  (of(fo.mime_lite, loss_fn), ValueError): {
    f"learning_rate: {RATE}; this algorithm takes plain steps, not those of "
    "another rule; give its base optimizer as base": {"learning_rate": SGD}
  },
  (constant_rate, ValueError): {
    "learning_rate: must be a number; this algorithm takes plain": SGD,
    "learning_rate=-1: ": -1,
  },
  (constant_rate, TypeError): {"learning_rate=": OF_ROUND},
  (of(fo.centralized, loss_fn, ZERO), TypeError): {
    "learning_rate=": {"learning_rate": OF_ROUND}
  },
  (of(fo.scaffold, loss_fn, 0.1), TypeError): {
    "server_learning_rate=": {"server_learning_rate": OF_ROUND}
  },
  (of(fo.moon, loss_fn), TypeError): {
    "features_fn=None: ": {"features_fn": None, "client": SGD},
    "client='sgd': ": {"features_fn": loss_fn, "client": "sgd"},
  },
  (of(fo.minibatch_sarah, loss_fn, 0.1), TypeError): {
    "large_batch=": Each({"large_batch": "3"}, {"large_batch": 1.5})
  },
  (of(fo.minibatch_sarah, loss_fn, 0.1), ValueError): {
    "large_batch=0: must be at least 1": {"large_batch": 0}
  },
  (of(fo.fed_mid, loss_fn), ValueError): {
    "psi=0.1: must be a regularizer": {"psi": 0.1, "learning_rate": 1}
  },
  (of(fo.fed_mid, loss_fn, ZERO, 1), TypeError): {
    "mirror_map='entropy': must be one of fedjax_opt.mirror": {
      "mirror_map": "entropy"
    }
  },
  (of(fo.sharpness_aware), TypeError): {"rule=0.1: ": {"rule": 0.1}},
  (of(prox.group_lasso, 0.1), TypeError): {
    "axis=None: ": {"axis": None},
    "axis='b': ": {"axis": (0, "b")},
  },
  (of(prox.total_variation_1d, 0.1), TypeError): {"axis=0.5: ": {"axis": 0.5}},
  (prox.simplex, TypeError): {"scale=": np.ones(2)},
  (prox.l1(0.1).__mul__, TypeError): {"scale=a Regularizer: ": prox.l1(0.1)},
  (of(rules.step_decay, 3), TypeError): {
    "num_rounds='a': ": {"num_rounds": "a"},
    "milestones=0.5: ": {"num_rounds": 5, "milestones": 0.5},
  },
  (of(rules.step_decay, 3), ValueError): {
    "milestones[1]=-1: ": {"num_rounds": 5, "milestones": (0.5, -1)}
  },
  (everyone, ValueError): {"cohort_size: some_name needs all": "some_name"},
}


@pytest.mark.parametrize(("call", "kind", "line"), refused(TABLES))
def test_is_refused(call, kind, line):
  given.check(call, kind, line)


@pytest.mark.parametrize("base", [optax.adam(1.0), optax.sgd(0.1, 0.9)])
def test_the_base_of_mime_lite_has_no_rate(base):
  with pytest.raises(ValueError, match="base: goes down the gradient"):
    fo.mime_lite(loss_fn, 0.1, base=base)
  fo.mime_lite(loss_fn, 0.1, base=optax.scale_by_adam())
