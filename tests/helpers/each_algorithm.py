"""Algorithms of the registry by name, each ready for a small problem."""

import optax

import fedjax_opt as fo
from fedjax_opt import prox
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.algorithms.fed_async import STALENESS
from fedjax_opt.registry import entries_with
from tests.helpers import jax_problems

# `domo` without one of its parts, which others have.
PARTS = ("fed_avg_sm", "fed_avg_lm", "fed_avg_lm_z", "fed_avg_slm_z")
# Names that imply a server rule are FedAvg.
NAMES = [
  name
  for name, entry in ALGORITHMS.items()
  if entry.server_rule is None
  and name not in PARTS
  and name not in jax_problems.OF_OTHER_MODELS
]
# A rule at clients; what clients keep (moon, scaffold); several phases; a
# regularizer; momenta; and all clients in each round.
KINDS = ("fed_avg", "moon", "scaffold", "bvr_l_sgd", "fed_dual_avg", "domo",
         "prox_skip")  # fmt: skip
MOMENTA = entries_with(ALGORITHMS, "mu_s") + entries_with(ALGORITHMS, "mu_l")
TASK = jax_problems.softmax()


def constants_of(name):
  """{constant that a grid may have: its default, or one where it has none}."""
  return {
    p.name: 0.5 if p.default is None else p.default
    for p in ALGORITHMS[name].hyperparameters
    if p.is_tunable and p.name not in STALENESS["hinge"]
  }


def make(name, learning_rate=0.3, **constants):
  has_momenta = name in MOMENTA  # A gradient moves the model ten times.
  server = {"server": optax.adam(0.1)} if name == "fed_avg" else {}
  return TASK.algorithm(
    name,
    client=fo.delta_sgd(eta_0=0.1),
    rate=learning_rate / 10 if has_momenta else learning_rate,
    psi=prox.kernels(prox.l1(1e-3)),
    **server | constants_of(name) | constants,
  )
