"""Every registry: what a choice says is what its factory takes."""

import functools

import jax
import jax.numpy as jnp
import pytest

from experiments.specification.choice_flags import CHOICE_FLAGS
from experiments.tasks import TASKS
from fedjax_opt import prox
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.checks import fields
from fedjax_opt.data.partition import SCHEMES
from fedjax_opt.privacy import MECHANISMS
from fedjax_opt.prox import REGULARIZERS
from fedjax_opt.registry import (
  AlgorithmEntry,
  Entry,
  Hyperparameter,
)
from fedjax_opt.rules import RULES
from fedjax_opt.samplers import SAMPLERS
from fedjax_opt.transforms import UPLOADS
from fedjax_opt.transforms.aggregators import AGGREGATORS
from fedjax_opt.transforms.faults import FAULTS

pytestmark = pytest.mark.quick

CHOICES = {
  f"{registry} {name}": entry
  for registry, choices in {
    "rule": RULES,
    "algorithm": ALGORITHMS,
    "regularizer": REGULARIZERS,
    "partition": SCHEMES,
    "task": TASKS,
    "sampler": SAMPLERS,
    "upload": UPLOADS,
    "aggregator": AGGREGATORS,
    "fault": FAULTS,
    "privacy": MECHANISMS,
  }.items()
  for name, entry in choices.items()
}


# What else the factories of a kind are given.
GIVEN = {
  "rule": set(),
  "upload": set(),
  "aggregator": set(),
  "fault": {"fraction"},
  "algorithm": {
    "loss_fn", "client", "learning_rate", "server", "psi", "features_fn",
    "paths",
  },
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_entries_are_whole(name):
  entry, kind = CHOICES[name], name.partition(" ")[0]
  assert isinstance(entry, Entry)
  assert entry.help
  for parameter in entry.hyperparameters:
    assert isinstance(parameter, Hyperparameter)
    assert parameter.help
    assert not parameter.help.endswith(".")
    if parameter.default is not None:
      parameter.check(parameter.name, parameter.default)
  if kind in GIVEN:  # All else has a default.
    names = GIVEN[kind] | {p.name for p in entry.hyperparameters}
    for argument in entry.arguments.values():
      assert argument.name in names or argument.default is not argument.empty


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms_say_what_goes_together(name):
  entry, arguments = ALGORITHMS[name], set(ALGORITHMS[name].arguments)
  assert isinstance(entry, AlgorithmEntry)
  assert "loss_fn" in arguments
  if entry.cohort == "first":  # Its `client` is the number of a client.
    assert entry.is_exact
  else:
    assert len(arguments & {"client", "learning_rate"}) == 1
  assert not {"server", "server_learning_rate"} <= arguments
  assert entry.takes("psi") or not entry.needs_penalty
  assert None in (entry.server_rule, entry.default_server)
  if entry.default_client is not None:
    assert entry.client_takes == "rule"
    assert entry.default_client in RULES
  server = entry.server_rule or entry.default_server
  if server is not None:
    assert entry.server_takes == "rule"
    assert RULES[server].fits_server


@pytest.mark.parametrize("name", RULES)
def test_rules_take_hyperparameters_alone(name):
  entry = RULES[name]
  names = {p.name for p in entry.hyperparameters}
  if entry.server_learning_rate is not None:
    assert entry.fits_server
    assert "learning_rate" in names
  rule = entry.factory(**{p.name: p.default for p in entry.hyperparameters})
  state = rule.init(jnp.zeros(2))
  for field in entry.traced:
    assert hasattr(state, field)
  if entry.fits_server:  # A server has nothing but the pseudo-gradient.
    updates, _ = rule.update(jnp.ones(2), state, jnp.zeros(2))
    if entry.is_plain:
      assert (updates == -entry.hyperparameters[0].default).all()
  assert entry.is_plain == (name == "sgd")


@pytest.mark.parametrize("name", REGULARIZERS)
def test_penalties_are_finite_and_constraints_are_not(name):
  entry = REGULARIZERS[name]
  psi = entry.factory(**{p.name: p.default for p in entry.hyperparameters})
  assert entry.is_finite == psi.is_finite
  far = {"kernel": jnp.full((3, 2), -1e4)}
  assert bool(jnp.isfinite(psi.value(far))) == entry.is_finite


@pytest.mark.parametrize("name", SCHEMES)
def test_partitions_take_labels_or_ids(name):
  entry, arguments = SCHEMES[name], SCHEMES[name].arguments
  assert entry.takes("client_ids") == ("labels" not in arguments)
  assert {p.name for p in entry.hyperparameters} <= set(arguments)


@pytest.mark.parametrize("name", TASKS)
def test_tasks_name_flags_and_regularizers(name):
  entry = TASKS[name]
  if entry.regularizer is not None:
    assert entry.regularizer in REGULARIZERS
  flags = {flag for kind in CHOICE_FLAGS.values() for flag in kind.owners()}
  assert set(entry.defaults) <= flags


def own(
  loss_fn, client, *, mu: jax.typing.ArrayLike = 0.1, eps: float = 1e-3,
  is_fast: bool = False, psi: prox.Regularizer | None = None,
):  # fmt: skip
  """Steps of `fed_avg` that are fast (Nobody, 1999).

  Args:
    loss_fn: the loss.
    mu: how strong it
      is; non-negative.
    is_fast: whether to hurry. Otherwise there is time.
  """


def test_what_an_entry_does_not_say_is_read_from_the_factory():
  factory = fields.checked(mu="[0, 2)")(own)
  entry = AlgorithmEntry(factory)
  assert entry.help == "steps of fed_avg that are fast (Nobody, 1999)"
  assert [
    (p.name, p.default, p.help, p.field.interval, p.field.value_type, p.flag)
    for p in entry.hyperparameters
  ] == [
    ("mu", 0.1, "how strong it is", "[0, 2)", float, None),
    ("eps", 1e-3, "eps", "(-inf, inf)", float, "algorithm_eps"),
    ("is_fast", False, "hurry", "(-inf, inf)", bool, None),
  ]
  assert (entry.client_takes, entry.server_takes) == ("rule", "none")
  assert entry.takes("psi")
  assert entry.rate_may_drop
  fixed = AlgorithmEntry(functools.partial(factory, mu=1.0), "another line")
  assert fixed.help == "another line"
  assert [p.name for p in fixed.hyperparameters] == ["eps", "is_fast"]
  assert ALGORITHMS["prox_skip"].rate_may_drop is False
  assert (
    ALGORITHMS["domo"].rates["server_learning_rate"]["accepts"].interval
    == "(0, inf)"
  )
  assert ALGORITHMS["fed_dyn"].hyperparameters[0].flag == "algorithm_alpha"


# What the papers, or their programs, take where nothing else is said.
DEFAULTS = {
  "domo": {"mu_s": 0.9, "mu_l": 0.6, "beta": 0.9},
  "fed_async": {"alpha": 0.6, "mu": 0.005},
  "fed_prox": {"mu": 0.01},
  "fed_sam": {"rho": 0.05},
  "moon": {"mu": 1.0, "temperature": 0.5},
  "delta_sgd": {"gamma": 2.0, "delta": 0.1, "eta_0": 0.2, "theta_0": 1.0},
  "sps": {"c": 0.5, "f_min": 0.0, "max_step": float("inf")},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_of_the_paper(name):
  entry = (ALGORITHMS | RULES)[name]
  defaults = {p.name: p.default for p in entry.hyperparameters}
  assert defaults == defaults | DEFAULTS[name]
