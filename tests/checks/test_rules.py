"""Arguments of algorithms, rules, regularizers and terms of the loss."""

import functools
import types

import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

import fedjax_opt as fo
from fedjax_opt import contract, objectives, optimizers, prox, rules
from fedjax_opt.base import at_round
from fedjax_opt.checks import fields
from fedjax_opt.checks import rules as checks
from tests.checks import given
from tests.checks.given import (
  ALGORITHM,
  SGD,
  Each,
  loss_fn,
  refused,
)

NUMBER, WHOLE = "must be a number", "must be a whole number"
SWITCH = "must be True or False"
NON_NEGATIVE = "must be in [0, inf)"
RATE = "must be a number, or a function from the round to one"
OPTIMIZER = "an optimizer, such as optax.sgd(0.1)"
RULE = f"must be {OPTIMIZER}"
CLIENT = f"{RULE}, or a function from the round to one"
LOSS = "must be a function (params, batch, rng) -> [B]"
PSI = (
  "must be a regularizer of fedjax_opt.prox, such as "
  "prox.kernels(prox.l1(0.1)), or prox.zero() for none"
)
MIRROR = "must be one of fedjax_opt.mirror, such as mirror.entropy(), or None"
# Algorithms that take a client rule after the loss, and those that take a rate.
WITH_RULE = (
  fo.fed_avg,
  fo.fed_prox,
  fo.fed_dyn,
  fo.fed_exp,
  fo.fed_sam,
  fo.fed_acg,
  fo.fed_lesam,
  fo.diloco,
  fo.ditto,
)
WITH_RATE = (
  fo.scaffold,
  fo.fed_nova,
  fo.fed_cm,
  fo.mo_fed_sam,
  fo.mime_lite,
  fo.fed_speed,
  fo.fed_gamma,
  fo.fed_dc,
  fo.fed_smoo,
  fo.local_sgd,
  fo.minibatch_sgd,
  fo.minibatch_sarah,
  fo.bvr_l_sgd,
  fo.domo,
  fo.fed_mid,
  fo.p_fed_me,
  fo.per_fed_avg,
)
PLAIN = "this algorithm takes plain steps, not those of another rule"
# Factory -> {argument: its interval}.
INTERVALS = {
  fo.fed_prox: {"mu": "[0, inf)"},
  fo.fed_dyn: {"alpha": "[0, inf)"},
  fo.fed_nova: {"momentum": "[0, 1)", "mu": "[0, inf)"},
  fo.fed_cm: {"alpha": "[0, 1]", "server_learning_rate": "[0, inf)"},
  fo.fed_exp: {"eps": "[0, inf)"},
  fo.mime_lite: {"beta": "[0, 1)"},
  fo.prox_skip: {"p": "(0, 1]", "learning_rate": "[0, inf)"},
  fo.fed_sam: {"rho": "[0, inf)"},
  fo.mo_fed_sam: {"rho": "[0, inf)", "beta": "[0, 1]"},
  fo.fed_speed: {"lam": "(0, inf)", "alpha": "[0, 1]", "rho": "[0, inf)"},
  fo.fed_acg: {"lam": "[0, 1)", "beta": "[0, inf)"},
  fo.fed_gamma: {"server_learning_rate": "[0, inf)", "rho": "[0, inf)"},
  fo.fed_lesam: {"rho": "[0, inf)"},
  fo.fed_dc: {"alpha": "[0, inf)"},
  fo.fed_smoo: {"lam": "[0, inf)", "rho": "[0, inf)"},
  fo.domo: {"mu_s": "[0, 1)", "mu_l": "[0, 1)", "beta": "[0, inf)"},
  fo.scaffold: {"server_learning_rate": "[0, inf)"},
  fo.ditto: {"lam": "[0, inf)"},
  fo.p_fed_me: {"lam": "(0, inf)", "inner_learning_rate": "[0, inf)"},
  fo.per_fed_avg: {
    "inner_learning_rate": "[0, inf)",
    "hessian_difference": "(0, inf)",
  },
  fo.fed_rep: {"shared_steps": "(0, 1]"},
  fo.optimum: {"tolerance": "(0, inf)"},
  fo.moon: {"temperature": "(0, inf)"},
  fo.sharpness_aware: {"rho": "[0, inf)", "mix": "[0, 1]"},
  rules.sps: {"c": "(0, inf)", "max_step": "(0, inf]"},
  rules.sarah: {"learning_rate": "[0, inf)"},
  rules.mirror_step: {"learning_rate": "[0, inf)"},
  rules.subgradient_step: {"learning_rate": "[0, inf)"},
  rules.step_decay: {"round": "[0, inf)", "factor": "[0, inf)"},
  prox.l1: {"strength": "[0, inf)"},
  prox.nuclear: {"strength": "[0, inf)"},
  prox.l1_ball: {"radius": "(0, inf)"},
  prox.simplex: {"scale": "(0, inf)"},
  prox.box: {"low": "[-inf, inf]", "high": "[-inf, inf]"},
  fo.transforms.top_k: {"fraction": "(0, 1]"},
  fo.transforms.random_k: {"fraction": "(0, 1]"},
  fo.transforms.clip_by_norm: {"max_norm": "(0, inf)"},
  objectives.l2: {"strength": "[0, inf)"},
  objectives.proximal: {"mu": "[0, inf)"},
  objectives.contrastive: {"temperature": "(0, inf)"},
}
SWITCHES = {
  fo.scaffold: ["exact_control"],
  fo.bvr_l_sgd: ["practical"],
  fo.fed_speed: ["normalized", "all_duals"],
  fo.fed_lesam: ["last_step"],
  fo.domo: ["intra"],
  fo.fed_dual_avg: ["averaged"],
  fo.sharpness_aware: ["normalized"],
  rules.delta_sgd: ["measure_movement", "independent_dropout"],
}


def uncalled(name, kind="optimizer"):
  root = "optax" if kind == "optimizer" else "fedjax_opt"
  return f"the function {root}.{name}: was not called; write {root}.{name}(...)"


def client(value):
  fo.fed_avg(loss_fn, value)


def client_of_round(value):
  optimizers.of_round(value, jnp.int32(0))


def server(value):
  fo.fed_avg(loss_fn, SGD, value)


def rate(value):
  fo.scaffold(loss_fn, value)


def rate_of_round(value):
  at_round(value, jnp.int32(0))


def made(factory):
  """Makes an algorithm, with these arguments."""
  first = "client" if factory in WITH_RULE else "learning_rate"
  good = {first: SGD if factory in WITH_RULE else 0.1}
  if factory in (fo.fed_mid, fo.fed_dual_avg, fo.centralized, fo.local):
    good["psi"] = prox.zero()
  return lambda arguments: factory(loss_fn, **good | arguments)


def of(factory, **good):
  """Calls a factory, with these arguments."""
  return lambda arguments: factory(**good | arguments)


def bad(make, name, value, words):
  """The case of one argument."""
  line = {f"{name}={value!r}: {words}": {name: value}}
  is_type = words.removesuffix(", or None") in (NUMBER, WHOLE, SWITCH) or (
    words.startswith((RULE, MIRROR, "must be a function", "must be a list"))
  )
  return refused({(make, TypeError if is_type else ValueError): line})


ZERO = prox.zero()
WRONG = lambda round: 1
moon = of(fo.moon, loss_fn=loss_fn, features_fn=loss_fn, client=SGD)
step_decay = of(rules.step_decay, round=3, num_rounds=5)
TABLES = {
  (client, TypeError): {
    f"client={uncalled('sgd')}": Each(
      optax.sgd, optax.inject_hyperparams(optax.sgd)
    ),
    f"client={uncalled('adam')}": optax.adam,
    "client=the function optax.sam: was not called; write "
    "optax.contrib.sam(...)": optax.contrib.sam,
    f"client={uncalled('delta_sgd', 'own')}": fo.delta_sgd,
    f"client={uncalled('step_decay', 'own')}": fo.step_decay,
    f"client={uncalled('sps', 'own')}": fo.sps,
    "client=the function optax.prodigy: was not called; write "
    "optax.contrib.prodigy(...)": optax.contrib.prodigy,
    "client=a partial of optax.sgd: was not called; write optax.sgd(...)": (
      functools.partial(optax.sgd, 0.1)
    ),
    "client=the function <lambda>: takes (learning_rate), and would be given "
    f"the round; {CLIENT}": lambda learning_rate: SGD,
    "client=the function <lambda>: takes (lr), and would be given the round; "
    f"{CLIENT}": lambda lr: SGD,
    f"client='sgd': {CLIENT}; write optax.sgd(...)": "sgd",
    f"client='fancy': {CLIENT}": "fancy",
    f"client=0.1: {CLIENT}; write optax.sgd(0.1)": 0.1,
    f"client=None: {CLIENT}": None,
    f"client=an Algorithm: {CLIENT}": ALGORITHM,
    f"client=the class dict: {CLIENT}": dict,
    f"client=a list: {CLIENT}": [SGD],
    f"client=a MultiSteps: {CLIENT}; give its .gradient_transformation()": (
      optax.MultiSteps(SGD, 2)
    ),
    "client=the function <lambda>: takes (a, b); must be a function (round) "
    f"-> optimizer, or {OPTIMIZER}": lambda a, b: SGD,
    "client=the function loss_fn: takes (params, batch, rng); must be a "
    f"function (round) -> optimizer, or {OPTIMIZER}": loss_fn,
    "client=the function optax.schedule: is a schedule; must be an "
    "optimizer, such as optax.sgd(schedule)": optax.exponential_decay(
      0.1, 10, 0.9
    ),
  },
  (client_of_round, TypeError): {
    "client: its function of the round returned 0.1; must return an "
    "optimizer, such as optax.sgd(0.1)": lambda r: 0.1,
    "client: its function of the round returned the function optax.sgd; must "
    "return an optimizer, such as optax.sgd(0.1)": lambda r: optax.sgd,
  },
  (client_of_round, ValueError): {
    "client: failed: KeyError: 0": lambda r: {}[0]
  },
  (server, TypeError): {
    f"server={uncalled('sgd')}": optax.sgd,
    "server=a partial of optax.adam: was not called; write optax.adam(...)": (
      functools.partial(optax.adam, 0.1)
    ),
    f"server='adam': {RULE}; write optax.adam(...)": "adam",
    f"server=1.0: {RULE}; write optax.sgd(1.0)": 1.0,
    f"server=0.5: {RULE}; write optax.sgd(0.5)": 0.5,
    f"server=[1]: {RULE}": [1],
    f"server=the function <lambda>: {RULE}; for a rate that changes give it "
    "a schedule of optax": lambda r: SGD,
  },
  (made(fo.mime_lite), TypeError): {
    f"base='adam': {RULE}; write optax.adam(...)": {"base": "adam"},
    f"base={uncalled('scale_by_adam')}": {"base": optax.scale_by_adam},
  },
  (made(fo.diloco), TypeError): {
    f"server={uncalled('sgd')}": {"server": optax.sgd}
  },
  (made(fo.fed_nova), TypeError): {
    f"server=0.5: {RULE}; write optax.sgd(0.5)": {"server": 0.5}
  },
  (rate, TypeError): {
    f"learning_rate='0.1': {RATE}": "0.1",
    f"learning_rate=None: {RATE}": None,
    f"learning_rate=True: {RATE}": True,
    f"learning_rate=[0.1]: {RATE}": [0.1],
    f"learning_rate=an array float64[2]: {RATE}": np.ones(2),
    f"learning_rate=the function optax.sgd: {RATE}": optax.sgd,
    f"learning_rate=the function optax.adam: {RATE}": optax.adam,
    "learning_rate=the function <lambda>: takes (); must be a function "
    "(round) -> number": lambda: 0.1,
  },
  (rate, ValueError): {
    f"learning_rate=nan: {NON_NEGATIVE}": float("nan"),
    f"learning_rate=inf: {NON_NEGATIVE}": float("inf"),
    f"learning_rate=-0.1: {NON_NEGATIVE}": -0.1,
    f"learning_rate: {RATE}; {PLAIN}": SGD,
  },
  (rate_of_round, TypeError): {
    **{
      f"learning_rate: its function of the round returned {text}; must return "
      "a number": (lambda round, value=value: value)
      for text, value in (
        ("'a'", "a"),
        ("an array float32[2]", np.ones(2, np.float32)),
        ("None", None),
      )
    }
  },
  (rate_of_round, ValueError): {
    f"learning_rate=-0.1: {NON_NEGATIVE}": lambda round: -0.1
  },
  (functools.partial(fo.mime_lite, loss_fn), ValueError): {
    f"learning_rate: must be a number, or a function from the round to one; "
    f"{PLAIN}; give its base optimizer as base": SGD,
  },
  (functools.partial(fo.prox_skip, loss_fn), ValueError): {
    "learning_rate: must be a number; this algorithm takes plain steps, "
    "not those of another rule": SGD,
    f"learning_rate=-1: {NON_NEGATIVE}": -1,
  },
  (lambda bad: bad(), TypeError): {
    "axis='b': must be a whole number": (
      lambda: prox.group_lasso(0.1, axis=(0, "b"))
    ),
    "scale=an array float64[2]: must be a number": lambda: prox.simplex(
      np.ones(2)
    ),
    "scale=a Regularizer: must be a number": lambda: (
      prox.l1(0.1) * prox.l1(0.1)
    ),
  },
  (lambda bad: bad(), ValueError): {
    "milestones[1]=-1: must be in [0, inf)": (
      lambda: rules.step_decay(3, 5, (0.5, -1))
    ),
  },
  (
    lambda name: contract.takes_everyone(
      name, types.SimpleNamespace(is_everyone=False)
    ),
    ValueError,
  ): {
    **{
      f"cohort_size: {name} needs all clients in each round; leave "
      "cohort_size, client_dropout and a sampler that draws some out": name
      for name in ("centralized", "prox_skip")
    }
  },
}
CASES = refused(TABLES)
CASES += (
  case
  for factory, name in (
    (fo.prox_skip, "learning_rate"),
    (fo.centralized, "learning_rate"),
    (fo.scaffold, "server_learning_rate"),
    (fo.mo_fed_sam, "server_learning_rate"),
  )
  for case in refused(
    {
      (made(factory), TypeError): {
        f"{name}=the function <lambda>: {NUMBER}": {name: WRONG}
      }
    }
  )
)
CASES += (
  case
  for make, name, value, words in (
    (
      moon,
      "features_fn",
      None,
      "must be a function (params, batch, rng) -> [B, d]",
    ),
    (moon, "client", "sgd", f"{CLIENT}; write optax.sgd(...)"),
    (made(fo.bvr_l_sgd), "large_batch", "3", WHOLE),
    (made(fo.minibatch_sarah), "large_batch", 1.5, WHOLE),
    (made(fo.minibatch_sarah), "large_batch", 0, "must be at least 1"),
    (made(fo.fed_mid), "psi", 0.1, PSI),
    (made(fo.fed_mid), "mirror_map", "entropy", MIRROR),
    (made(fo.local), "client", "a", WHOLE),
    (of(fo.sharpness_aware), "rule", 0.1, f"{RULE}; write optax.sgd(0.1)"),
    (of(rules.subgradient_step, learning_rate=1), "psi", None, PSI),
    (of(rules.dual_averaging, learning_rate=1), "psi", 0.1, PSI),
    (of(rules.mirror_step, learning_rate=1, psi=ZERO), "mirror_map", 2, MIRROR),
    (of(prox.group_lasso, strength=0.1), "axis", None, WHOLE),
    (of(prox.total_variation_1d, strength=0.1), "axis", 0.5, WHOLE),
    (step_decay, "num_rounds", "a", WHOLE),
    (
      step_decay,
      "milestones",
      0.5,
      "must be a list or tuple of fractions of the rounds",
    ),
  )
  for case in bad(make, name, value, words)
)


def test_arguments_are_what_they_must_be():
  """How values of a kind are refused: see test_fields.py."""
  for factory, intervals in INTERVALS.items():
    own = factory.fields
    assert {name: own[name].interval for name in intervals} == intervals
  for factory, names in SWITCHES.items():
    assert {factory.fields[name] for name in names} == {fields.SWITCH}
  for factory in WITH_RULE:
    assert factory.fields["client"] == fields.CLIENT_RULE
  for factory in WITH_RATE:
    assert factory.fields["learning_rate"].accepts.func is checks.rate
  for factory in (*WITH_RULE, *WITH_RATE, fo.prox_skip):
    assert factory.fields["loss_fn"] == fields.LOSS
  for factory, name in ((fo.fed_nova, "mu"), (fo.domo, "mu_s")):
    assert factory.fields[name].optional


@pytest.mark.parametrize(("call", "kind", "line"), CASES)
def test_is_refused(call, kind, line):
  given.check(call, kind, line)


@pytest.mark.parametrize(
  "base", [optax.adam(1.0), SGD, optax.sgd(0.1, momentum=0.9)]
)
def test_the_base_of_mime_lite_has_no_rate(base):
  with pytest.raises(ValueError, match="base: goes down the gradient") as error:
    fo.mime_lite(loss_fn, 0.1, base=base)
  assert "optax.scale_by_adam() for optax.adam(rate)" in str(error.value)
  fo.mime_lite(loss_fn, 0.1, base=optax.scale_by_adam())
