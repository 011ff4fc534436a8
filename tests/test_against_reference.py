"""Algorithms of any client rule against the NumPy loops of reference.py.

Clients differ in size and one owns nothing, three of five take part in a round,
last batches are partial, and two clients are computed side by side, so that the
second pair is filled up with a place for no client.
"""

import functools

import jax
import numpy as np
import optax
import pytest

from fedjax_opt import step_decay
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.engine.config import Config
from fedjax_opt.rules import RULES
from tests import jax_problems, reference
from tests.jax_problems import assert_close

ROUNDS = 4
SEED = 0
SETTINGS = {
  "cohort_size": 3,
  "client_chunk": 2,
  "batch_size": 4,
  "local_epochs": 1.5,
}
DELTA = {"gamma": 1.5, "delta": 0.7, "eta_0": 0.4, "theta_0": 0.8, "eps": 0.01}
FEDOPT = {"learning_rate": 0.05, "b1": 0.8, "b2": 0.95, "eps": 0.02}
MU, TEMPERATURE = 0.7, 0.4

ADAM = {"learning_rate": 0.05, "b1": 0.8, "b2": 0.95, "eps": 1e-3}
MOMENTUM = {"learning_rate": 0.05, "momentum": 0.8}
# name -> (its referee, its arguments in RULES, which are also the referee's).
_GIVEN = {
  "sgd": (reference.Sgd, {"learning_rate": 0.1}),
  "sgdm": (reference.Momentum, MOMENTUM),
  "nesterov": (reference.Nesterov, MOMENTUM),
  "adam": (reference.Adam, ADAM),
  "adamw": (reference.AdamW, ADAM | {"weight_decay": 0.2}),
  "adagrad": (
    reference.Adagrad,
    {"learning_rate": 0.1, "eps": 1e-10, "initial_accumulator": 0.2},
  ),
  "yogi": (reference.Yogi, ADAM | {"eps": 1e-2}),
  "fedopt_adam": (functools.partial(reference.FedOpt, "adam"), FEDOPT),
  "fedopt_yogi": (functools.partial(reference.FedOpt, "yogi"), FEDOPT),
  "fedopt_adagrad": (
    lambda lr, b1, tau: reference.FedOpt("adagrad", lr, b1, None, tau),
    {"learning_rate": 0.05, "b1": 0.5, "eps": 0.02},
  ),
  "sps": (reference.Sps, {"c": 0.8, "f_min": 0.1, "max_step": 0.3}),
  "delta_sgd": (reference.DeltaSgd, DELTA),
  "delta_sgd_reused": (reference.DeltaSgd, DELTA | {"reuse_gradients": True}),
}
# name -> (its arguments in RULES, what makes its referee).
CLIENT_RULES = {
  name: (given, functools.partial(loop, *given.values()))
  for name, (loop, given) in _GIVEN.items()
}
SERVERS = {n: CLIENT_RULES[n] for n in ("sgdm", "adam", "yogi", "adagrad")}
# A field of the rule's state -> what the referee calls it.
TRACES = {
  "step_size": "step_sizes",
  "smoothness_step": "smoothness_branches",
  "growth_step": "growth_branches",
}

# The algorithms that are FedAvg with one server rule, and that rule.
SERVER_RULES = {
  name: choice.server_rule
  for name, choice in ALGORITHMS.items()
  if choice.server_rule
}

# Rules that look at the loss, or at a second gradient; the others by themselves
# are in rules/test_registry.py.
CASES = [
  ("fed_avg", "sps"),
  ("fed_avg", "delta_sgd"),
  ("fed_avg", "delta_sgd_reused"),
  ("fed_prox", "sps"),
  ("fed_prox", "delta_sgd"),
  ("moon", "delta_sgd"),
  *[(algorithm, "sgd") for algorithm in SERVER_RULES],
]


def client_rule(name):
  arguments, _ = CLIENT_RULES[name]
  return RULES[name.removesuffix("_reused")].factory(**arguments)


@functools.cache
def task_of(algorithm):
  moon = algorithm == "moon"
  return jax_problems.mlp() if moon else jax_problems.softmax()


@functools.cache
def rounds_of(x64):
  # They depend on the sizes alone, which all tasks share.
  data = task_of("fed_avg").data
  config = Config.create(data, SETTINGS)
  return jax_problems.drawn_rounds(config, data, SEED, ROUNDS)


def compiled(algorithm, rule, **settings):
  """The package's run."""
  task = task_of(algorithm)
  arguments = {"loss_fn": task.loss_fn, "client": rule}
  if algorithm in SERVER_RULES:
    server = SERVER_RULES[algorithm]
    arguments["server"] = RULES[server].factory(**SERVERS[server][0])
  elif algorithm == "fed_prox":
    arguments |= {"server": optax.sgd(0.7), "mu": MU}
  elif algorithm == "moon":
    arguments |= {
      "features_fn": task.features_fn,
      "mu": MU,
      "temperature": TEMPERATURE,
    }
  return task.simulate(
    ALGORITHMS[algorithm].factory(**arguments),
    rounds=ROUNDS,
    seed=SEED,
    eval_every=3,
    **SETTINGS | settings,
  )


def looped(algorithm, make_rule, rounds):
  """The referee's run."""
  problem = task_of(algorithm).problem
  arguments = {
    "gradient": problem.gradient,
    "make_rule": make_rule,
    "server": reference.Sgd(1.0),
  }
  loop = reference.fed_avg
  if algorithm in SERVER_RULES:
    arguments["server"] = SERVERS[SERVER_RULES[algorithm]][1]()
  elif algorithm == "fed_prox":
    loop = reference.fed_prox
    arguments |= {"server": reference.Sgd(0.7), "mu": MU}
  elif algorithm == "moon":
    loop = reference.moon
    arguments["gradient"] = functools.partial(
      problem.moon_gradient, mu=MU, temperature=TEMPERATURE
    )
  cohorts, batches, weights = rounds
  return loop(
    problem.x0, cohorts=cohorts, batches=batches, weights=weights, **arguments
  )


def test_the_cases_reach_every_algorithm_and_awkward_client():
  # Those of plain steps have their own loops, in test_composite.py,
  # test_variance_reduction.py, test_methods_loops.py and test_personal.py.
  plain = {
    name for name, choice in ALGORITHMS.items() if choice.client == "plain"
  }
  reached = {algorithm for algorithm, _ in CASES}
  elsewhere = {"fed_dyn", "fed_exp", "fed_sam", "diloco", "ditto", "fed_per",
               "fed_rep", "fed_bn"}  # fmt: skip
  assert reached == set(ALGORITHMS) - plain - elsewhere
  cohorts, batches, _ = rounds_of(False)
  steps = {len(steps) for of_round in batches for steps in of_round}
  sizes = {len(b) for r in batches for steps in r for b in steps}
  assert 0 in steps
  assert len(steps) > 2
  assert {4, 1} <= sizes
  assert len({client for cohort in cohorts for client in cohort}) == 5


@pytest.mark.parametrize(("algorithm", "rule"), CASES)
def test_parameters_equal_the_loop(algorithm, rule):
  make_rule = CLIENT_RULES[rule][1]
  with jax.enable_x64(True):
    xs, traces = looped(algorithm, lambda r: make_rule(), rounds_of(True))
    trace = TRACES if algorithm == "fed_avg" and "delta" in rule else ()
    result = compiled(algorithm, client_rule(rule), trace=tuple(trace))
  assert_close(result.params, xs[-1], rtol=1e-10)
  assert np.linalg.norm(xs[-1] - task_of(algorithm).problem.x0) > 0.1
  if trace:
    check_traces(result.traces, traces)


def check_traces(traced, of_loops):
  """Delta-SGD's step sizes and both branches, client by client."""
  for field, of_loop in TRACES.items():
    assert traced[field].shape == (ROUNDS, 3, 8)  # [R, C, K]
    for r, i in np.ndindex(ROUNDS, 3):
      expected = np.array(getattr(of_loops[r][i].rule, of_loop))
      if field != "step_size":  # No branch decides the first step.
        expected[:1] = np.inf
      own, after = np.split(traced[field][r, i], [len(expected)])
      np.testing.assert_allclose(own, expected, rtol=1e-9)
      assert np.isnan(after).all()
  # Each branch decides some of the steps.
  below = traced["smoothness_step"] < traced["growth_step"]
  above = traced["smoothness_step"] > traced["growth_step"]
  assert below.any()
  assert above.any()


def test_single_precision_is_near_the_loop():
  make_rule = CLIENT_RULES["delta_sgd"][1]
  xs, _ = looped("moon", lambda r: make_rule(), rounds_of(False))
  result = compiled("moon", client_rule("delta_sgd"))
  assert_close(result.params, xs[-1], rtol=1e-5)


def test_step_decay_equals_the_loop():
  def rule(round):
    return optax.sgd(0.5 * step_decay(round, ROUNDS))

  def make_rule(r):
    return reference.Sgd(reference.step_decay(0.5, r, ROUNDS))

  with jax.enable_x64(True):
    xs, _ = looped("fed_avg", make_rule, rounds_of(True))
    result = compiled("fed_avg", rule)
  assert_close(result.params, xs[-1], rtol=1e-10)
