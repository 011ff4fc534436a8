"""Bad rules, rates and other arguments of algorithms."""

import functools

import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from fedjax_opt import (
  bvr_l_sgd,
  centralized,
  delta_sgd,
  domo,
  fed_avg,
  fed_dual_avg,
  fed_mid,
  fed_prox,
  local,
  local_sgd,
  minibatch_sarah,
  minibatch_sgd,
  moon,
  prox,
  scaffold,
  sps,
  step_decay,
)
from tests.checks import given
from tests.checks.given import (
  ALGORITHM,
  SGD,
  algorithm,
  late,
  loss_fn,
)


def mean_loss(params, batch, rng):
  return loss_fn(params, batch, rng).mean()


# id: (call, type of the error, the whole line). A line that ends in "..." is
# compared up to there: what follows is quoted from a library.
BAD = {
  "client sgd": (
    algorithm(lambda: fed_avg(loss_fn, optax.sgd)),
    TypeError,
    "client=the function optax.sgd: was not called; write optax.sgd(...)",
  ),
  "client adam": (
    algorithm(lambda: fed_avg(loss_fn, optax.adam)),
    TypeError,
    ("client=the function optax.adam: was not called; write optax.adam(...)"),
  ),
  "client contrib": (
    algorithm(lambda: fed_avg(loss_fn, optax.contrib.sam)),
    TypeError,
    (
      "client=the function optax.sam: was not called; write "
      "optax.contrib.sam(...)"
    ),
  ),
  "client prodigy": (
    algorithm(lambda: fed_avg(loss_fn, optax.contrib.prodigy)),
    TypeError,
    (
      "client=the function optax.prodigy: was not called; write "
      "optax.contrib.prodigy(...)"
    ),
  ),
  "client delta_sgd": (
    algorithm(lambda: fed_avg(loss_fn, delta_sgd)),
    TypeError,
    (
      "client=the function fedjax_opt.delta_sgd: was not called; write "
      "fedjax_opt.delta_sgd(...)"
    ),
  ),
  "client sps": (
    algorithm(lambda: fed_avg(loss_fn, sps)),
    TypeError,
    (
      "client=the function fedjax_opt.sps: was not called; write "
      "fedjax_opt.sps(...)"
    ),
  ),
  "client partial": (
    algorithm(
      lambda: fed_avg(loss_fn, functools.partial(optax.sgd, momentum=0.9))
    ),
    TypeError,
    "client=a partial of optax.sgd: was not called; write optax.sgd(...)",
  ),
  "client lr": (
    algorithm(lambda: fed_avg(loss_fn, lambda lr: optax.sgd(lr))),
    TypeError,
    (
      "client=the function <lambda>: takes (lr), and would be given the "
      "round; must be an optimizer, such as optax.sgd(0.1), or a function "
      "from the round to one"
    ),
  ),
  "client learning_rate": (
    algorithm(
      lambda: fed_avg(loss_fn, lambda learning_rate: optax.sgd(learning_rate))
    ),
    TypeError,
    (
      "client=the function <lambda>: takes (learning_rate), and would be "
      "given the round; must be an optimizer, such as optax.sgd(0.1), or a "
      "function from the round to one"
    ),
  ),
  "client str": (
    algorithm(lambda: fed_avg(loss_fn, "sgd")),
    TypeError,
    (
      "client='sgd': must be an optimizer, such as optax.sgd(0.1), or a "
      "function from the round to one; write optax.sgd(...)"
    ),
  ),
  "client str2": (
    algorithm(lambda: fed_avg(loss_fn, "fancy")),
    TypeError,
    (
      "client='fancy': must be an optimizer, such as optax.sgd(0.1), or a "
      "function from the round to one"
    ),
  ),
  "client num": (
    algorithm(lambda: fed_avg(loss_fn, 0.1)),
    TypeError,
    (
      "client=0.1: must be an optimizer, such as optax.sgd(0.1), or a "
      "function from the round to one; write optax.sgd(0.1)"
    ),
  ),
  "client None": (
    algorithm(lambda: fed_avg(loss_fn, None)),
    TypeError,
    (
      "client=None: must be an optimizer, such as optax.sgd(0.1), or a "
      "function from the round to one"
    ),
  ),
  "client Algorithm": (
    algorithm(lambda: fed_avg(loss_fn, ALGORITHM)),
    TypeError,
    (
      "client=an Algorithm: must be an optimizer, such as optax.sgd(0.1), "
      "or a function from the round to one"
    ),
  ),
  "client class": (
    algorithm(lambda: fed_avg(loss_fn, dict)),
    TypeError,
    (
      "client=the class dict: must be an optimizer, such as optax.sgd(0.1),"
      " or a function from the round to one"
    ),
  ),
  "client two": (
    algorithm(lambda: fed_avg(loss_fn, lambda a, b: SGD)),
    TypeError,
    (
      "client=the function <lambda>: takes (a, b); must be a function "
      "(round) -> optimizer, or an optimizer, such as optax.sgd(0.1)"
    ),
  ),
  "client schedule": (
    algorithm(lambda: fed_avg(loss_fn, optax.exponential_decay(0.1, 10, 0.9))),
    TypeError,
    (
      "client=the function optax.schedule: is a schedule; must be an "
      "optimizer, such as optax.sgd(schedule)"
    ),
  ),
  "client returns number": (
    algorithm(lambda: fed_avg(loss_fn, lambda r: 0.1)),
    TypeError,
    (
      "client: its function of the round returned 0.1; must return an "
      "optimizer, such as optax.sgd(0.1)"
    ),
  ),
  "client returns factory": (
    algorithm(lambda: fed_avg(loss_fn, lambda r: optax.sgd)),
    TypeError,
    (
      "client: its function of the round returned the function optax.sgd; "
      "must return an optimizer, such as optax.sgd(0.1)"
    ),
  ),
  "client fails": (
    algorithm(lambda: fed_avg(loss_fn, lambda r: {}[0])),
    ValueError,
    "client: failed: KeyError: 0",
  ),
  "client multisteps": (
    algorithm(lambda: fed_avg(loss_fn, optax.MultiSteps(SGD, 2))),
    TypeError,
    (
      "client=a MultiSteps: must be an optimizer, such as optax.sgd(0.1), "
      "or a function from the round to one; give its "
      ".gradient_transformation()"
    ),
  ),
  "client inject": (
    algorithm(lambda: fed_avg(loss_fn, optax.inject_hyperparams(optax.sgd))),
    TypeError,
    "client=the function optax.sgd: was not called; write optax.sgd(...)",
  ),
  "client list": (
    algorithm(lambda: fed_avg(loss_fn, [SGD])),
    TypeError,
    (
      "client=a list: must be an optimizer, such as optax.sgd(0.1), or a "
      "function from the round to one"
    ),
  ),
  "client bad rate": (
    algorithm(lambda: fed_avg(loss_fn, optax.sgd("0.1"))),
    TypeError,
    "client: its update failed:...",
  ),
  "client step_decay": (
    algorithm(lambda: fed_avg(loss_fn, step_decay)),
    TypeError,
    (
      "client=the function fedjax_opt.step_decay: was not called; write "
      "fedjax_opt.step_decay(...)"
    ),
  ),
  "server sgd": (
    algorithm(lambda: fed_avg(loss_fn, SGD, optax.sgd)),
    TypeError,
    "server=the function optax.sgd: was not called; write optax.sgd(...)",
  ),
  "server str": (
    algorithm(lambda: fed_avg(loss_fn, SGD, "adam")),
    TypeError,
    (
      "server='adam': must be an optimizer, such as optax.sgd(0.1); write "
      "optax.adam(...)"
    ),
  ),
  "server num": (
    algorithm(lambda: fed_avg(loss_fn, SGD, 1.0)),
    TypeError,
    (
      "server=1.0: must be an optimizer, such as optax.sgd(0.1); write "
      "optax.sgd(1.0)"
    ),
  ),
  "server fn": (
    algorithm(lambda: fed_avg(loss_fn, SGD, lambda r: SGD)),
    TypeError,
    (
      "server=the function <lambda>: must be an optimizer, such as "
      "optax.sgd(0.1); for a rate that changes give it a schedule of optax"
    ),
  ),
  "server delta": (
    algorithm(lambda: fed_avg(loss_fn, SGD, delta_sgd())),
    ValueError,
    (
      "delta_sgd: update needs grad_fn=, the gradient of the current batch "
      "as a function of params; or create it with reuse_gradients=True"
    ),
  ),
  "server sps": (
    algorithm(lambda: fed_avg(loss_fn, SGD, sps())),
    TypeError,
    "server: its update failed:...",
  ),
  "server partial": (
    algorithm(
      lambda: fed_avg(loss_fn, SGD, functools.partial(optax.adam, 0.1))
    ),
    TypeError,
    ("server=a partial of optax.adam: was not called; write optax.adam(...)"),
  ),
  "server list": (
    algorithm(lambda: fed_avg(loss_fn, SGD, [1])),
    TypeError,
    "server=[1]: must be an optimizer, such as optax.sgd(0.1)",
  ),
  "prox mu": (
    algorithm(lambda: fed_prox(loss_fn, SGD, mu=-1)),
    ValueError,
    "mu=-1: must be in [0, inf)",
  ),
  "prox mu str": (
    algorithm(lambda: fed_prox(loss_fn, SGD, mu="1")),
    TypeError,
    "mu='1': must be a number",
  ),
  "prox client": (
    algorithm(lambda: fed_prox(loss_fn, optax.sgd)),
    TypeError,
    "client=the function optax.sgd: was not called; write optax.sgd(...)",
  ),
  "moon client": (
    algorithm(lambda: moon(loss_fn, loss_fn, "sgd")),
    TypeError,
    (
      "client='sgd': must be an optimizer, such as optax.sgd(0.1), or a "
      "function from the round to one; write optax.sgd(...)"
    ),
  ),
  "moon features": (
    algorithm(lambda: moon(loss_fn, None, SGD)),
    TypeError,
    "features_fn=None: must be a function (params, batch, rng) -> [B, d]",
  ),
  "moon temperature": (
    algorithm(lambda: moon(loss_fn, loss_fn, SGD, temperature=0)),
    ValueError,
    "temperature=0: must be in (0, inf)",
  ),
  "scaffold server": (
    algorithm(lambda: scaffold(loss_fn, 0.1, -1)),
    ValueError,
    "server_learning_rate=-1: must be in [0, inf)",
  ),
  "scaffold server fn": (
    algorithm(lambda: scaffold(loss_fn, 0.1, lambda r: 1)),
    TypeError,
    "server_learning_rate=the function <lambda>: must be a number",
  ),
  "scaffold switch": (
    algorithm(lambda: scaffold(loss_fn, 0.1, exact_control="yes")),
    TypeError,
    "exact_control='yes': must be True or False",
  ),
  "domo mu": (
    algorithm(lambda: domo(loss_fn, 0.1, mu_s=1.0)),
    ValueError,
    "mu_s=1: must be in [0, 1)",
  ),
  "domo mu str": (
    algorithm(lambda: domo(loss_fn, 0.1, mu_l="0.9")),
    TypeError,
    "mu_l='0.9': must be a number, or None",
  ),
  "bvr large": (
    algorithm(lambda: bvr_l_sgd(loss_fn, 0.1, large_batch="3")),
    TypeError,
    "large_batch='3': must be a whole number",
  ),
  "bvr practical": (
    algorithm(lambda: bvr_l_sgd(loss_fn, 0.1, practical=1)),
    TypeError,
    "practical=1: must be True or False",
  ),
  "fed_mid psi": (
    algorithm(lambda: fed_mid(loss_fn, 0.1, 0.1)),
    ValueError,
    (
      "psi=0.1: must be a regularizer of fedjax_opt.prox, such as "
      "prox.kernels(prox.l1(0.1)), or prox.zero() for none"
    ),
  ),
  "fed_mid map": (
    algorithm(lambda: fed_mid(loss_fn, prox.zero(), 0.1, mirror_map="entropy")),
    TypeError,
    (
      "mirror_map='entropy': must be one of fedjax_opt.mirror, such as "
      "mirror.entropy(), or None"
    ),
  ),
  "fed_mid rate": (
    algorithm(lambda: fed_mid(loss_fn, prox.zero(), SGD)),
    ValueError,
    (
      "learning_rate: must be a number, or a function from the round to "
      "one; this algorithm takes plain steps, not those of another rule"
    ),
  ),
  "central rate": (
    algorithm(lambda: centralized(loss_fn, prox.zero(), lambda r: 0.1)),
    TypeError,
    "learning_rate=the function <lambda>: must be a number",
  ),
  "local client": (
    algorithm(lambda: local(loss_fn, prox.zero(), 0.1, client=9)),
    ValueError,
    "client=9: must be in [0, 4)",
  ),
  "local client type": (
    algorithm(lambda: local(loss_fn, prox.zero(), 0.1, client="a")),
    TypeError,
    "client='a': must be a whole number",
  ),
  "central cohort": (
    late(
      algorithm=lambda: centralized(loss_fn, prox.zero(), 0.1),
      cohort_size=lambda: 2,
    ),
    ValueError,
    "cohort_size: centralized needs all clients in each round; leave "
    "cohort_size, client_dropout and a sampler that draws some out",
  ),
  "trace several": (
    late(
      algorithm=lambda: fed_avg(
        loss_fn, optax.chain(optax.scale_by_adam(), optax.scale_by_adam())
      ),
      trace=lambda: ["count"],
    ),
    ValueError,
    (
      "trace='count': the client rule's state has several such fields; must"
      " be the name of one"
    ),
  ),
  "trace tree": (
    late(
      algorithm=lambda: fed_avg(loss_fn, optax.adam(0.1)), trace=lambda: ["mu"]
    ),
    ValueError,
    "trace='mu': is a tree of arrays; must be a field with one number",
  ),
  "rule state": (
    algorithm(
      lambda: fed_avg(
        loss_fn,
        optax.GradientTransformation(
          lambda p: {"a": 0.0}, lambda g, s, p=None: (g, {"b": 0.0})
        ),
      )
    ),
    ValueError,
    "client: the rule's state: lacks the leaf ['a'] that init has",
  ),
  "rule updates": (
    algorithm(
      lambda: fed_avg(
        loss_fn,
        optax.GradientTransformation(
          lambda p: 0.0, lambda g, s, p=None: ({"v": 1.0}, s)
        ),
      )
    ),
    ValueError,
    "client: its update failed:...",
  ),
  "rule returns": (
    algorithm(
      lambda: fed_avg(
        loss_fn,
        optax.GradientTransformation(lambda p: 0.0, lambda g, s, p=None: g),
      )
    ),
    ValueError,
    "client: its update failed:...",
  ),
  "scaffold -0.1": (
    algorithm(lambda: scaffold(loss_fn, -0.1)),
    ValueError,
    "learning_rate=-0.1: must be in [0, inf)",
  ),
  "scaffold float('nan')": (
    algorithm(lambda: scaffold(loss_fn, float("nan"))),
    ValueError,
    "learning_rate=nan: must be in [0, inf)",
  ),
  "scaffold float('inf')": (
    algorithm(lambda: scaffold(loss_fn, float("inf"))),
    ValueError,
    "learning_rate=inf: must be in [0, inf)",
  ),
  "scaffold '0.1'": (
    algorithm(lambda: scaffold(loss_fn, "0.1")),
    TypeError,
    (
      "learning_rate='0.1': must be a number, or a function from the round "
      "to one"
    ),
  ),
  "scaffold None": (
    algorithm(lambda: scaffold(loss_fn, None)),
    TypeError,
    (
      "learning_rate=None: must be a number, or a function from the round "
      "to one"
    ),
  ),
  "scaffold SGD": (
    algorithm(lambda: scaffold(loss_fn, SGD)),
    ValueError,
    (
      "learning_rate: must be a number, or a function from the round to "
      "one; scaffold corrects plain steps, not those of another rule"
    ),
  ),
  "scaffold optax.sgd": (
    algorithm(lambda: scaffold(loss_fn, optax.sgd)),
    TypeError,
    (
      "learning_rate=the function optax.sgd: must be a number, or a "
      "function from the round to one"
    ),
  ),
  "scaffold True": (
    algorithm(lambda: scaffold(loss_fn, True)),
    TypeError,
    (
      "learning_rate=True: must be a number, or a function from the round "
      "to one"
    ),
  ),
  "scaffold [0.1]": (
    algorithm(lambda: scaffold(loss_fn, [0.1])),
    TypeError,
    (
      "learning_rate=[0.1]: must be a number, or a function from the round "
      "to one"
    ),
  ),
  "scaffold np.ones(2)": (
    algorithm(lambda: scaffold(loss_fn, np.ones(2))),
    TypeError,
    (
      "learning_rate=an array float64[2]: must be a number, or a function "
      "from the round to one"
    ),
  ),
  "scaffold lambda: 0.1": (
    algorithm(lambda: scaffold(loss_fn, lambda: 0.1)),
    TypeError,
    (
      "learning_rate=the function <lambda>: takes (); must be a function "
      "(round) -> number"
    ),
  ),
  "scaffold lambda round: 'a'": (
    algorithm(lambda: scaffold(loss_fn, lambda round: "a")),
    TypeError,
    (
      "learning_rate: its function of the round returned 'a'; must return a"
      " number"
    ),
  ),
  "scaffold lambda round: jnp.ones(2)": (
    algorithm(lambda: scaffold(loss_fn, lambda round: jnp.ones(2))),
    TypeError,
    (
      "learning_rate: its function of the round returned an array "
      "float32[2]; must return a number"
    ),
  ),
  "scaffold lambda round: None": (
    algorithm(lambda: scaffold(loss_fn, lambda round: None)),
    TypeError,
    (
      "learning_rate: its function of the round returned None; must return "
      "a number"
    ),
  ),
  "scaffold lambda round: -0.1": (
    algorithm(lambda: scaffold(loss_fn, lambda round: -0.1)),
    ValueError,
    "learning_rate=-0.1: must be in [0, inf)",
  ),
  "fed_dual_avg averaged": (
    algorithm(lambda: fed_dual_avg(loss_fn, prox.zero(), 0.1, averaged="no")),
    TypeError,
    "averaged='no': must be True or False",
  ),
  "local_sgd -0.1": (
    algorithm(lambda: local_sgd(loss_fn, -0.1)),
    ValueError,
    "learning_rate=-0.1: must be in [0, inf)",
  ),
  "local_sgd SGD": (
    algorithm(lambda: local_sgd(loss_fn, SGD)),
    ValueError,
    (
      "learning_rate: must be a number, or a function from the round to "
      "one; this algorithm takes plain steps, not those of another rule"
    ),
  ),
  "minibatch_sgd '0.1'": (
    algorithm(lambda: minibatch_sgd(loss_fn, "0.1")),
    TypeError,
    (
      "learning_rate='0.1': must be a number, or a function from the round "
      "to one"
    ),
  ),
  "minibatch_sgd -1": (
    algorithm(lambda: minibatch_sgd(loss_fn, -1)),
    ValueError,
    "learning_rate=-1: must be in [0, inf)",
  ),
  "minibatch_sarah float('nan')": (
    algorithm(lambda: minibatch_sarah(loss_fn, float("nan"))),
    ValueError,
    "learning_rate=nan: must be in [0, inf)",
  ),
  "bvr_l_sgd -0.1": (
    algorithm(lambda: bvr_l_sgd(loss_fn, -0.1)),
    ValueError,
    "learning_rate=-0.1: must be in [0, inf)",
  ),
  "bvr_l_sgd None": (
    algorithm(lambda: bvr_l_sgd(loss_fn, None)),
    TypeError,
    (
      "learning_rate=None: must be a number, or a function from the round "
      "to one"
    ),
  ),
  "domo -0.1": (
    algorithm(lambda: domo(loss_fn, -0.1)),
    ValueError,
    "learning_rate=-0.1: must be in [0, inf)",
  ),
  "domo optax.adam": (
    algorithm(lambda: domo(loss_fn, optax.adam)),
    TypeError,
    (
      "learning_rate=the function optax.adam: must be a number, or a "
      "function from the round to one"
    ),
  ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(case):
  given.check(*BAD[case])
