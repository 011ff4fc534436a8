"""From flags to grid, algorithm, and what messages go through."""

import dataclasses
import functools
import itertools
import operator
import pathlib
import tomllib

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.single_run import building
from experiments.specification.choice_flags import (
  AGGREGATOR,
  CHOICE_FLAGS,
  FAULT,
  SAMPLER,
  SERVER,
  UPLOAD,
  ChosenEntry,
  parse_numbers,
)
from fedjax_opt import algorithms, lora, transforms
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.base import Algorithm
from fedjax_opt.checks import fields
from fedjax_opt.prox import REGULARIZERS
from fedjax_opt.rules import RULES
from fedjax_opt.transforms import aggregators, faults
from tests.helpers.commands import prepare, spec_of, task_of

DIGITS = "--task=digits_logistic"
TASK = task_of(DIGITS)


def method_of(*arguments):
  """{flag: value} of all that a method is made of, but for its algorithm."""
  spec = spec_of(*arguments)
  values = {}
  for entry in spec.tunable:
    if entry is not spec.algorithm:
      values[entry.flag] = entry.name
    flags = [*entry.grid, *entry.static]
    values |= {f: v for f, v in spec.values().items() if f in flags}
  return values


METHODS = tomllib.loads(
  pathlib.Path(__file__).with_name("methods.toml").read_text()
)


@pytest.mark.parametrize(
  "expected", METHODS["method"], ids=lambda case: case["arguments"]
)
def test_methods_and_their_defaults(expected):
  expected = dict(expected)
  arguments = expected.pop("arguments").split()
  common = [METHODS["like"][name] for name in expected.pop("like", ())]
  method = functools.reduce(operator.or_, [*common, expected], {})
  assert method_of(*arguments) == method


@pytest.mark.parametrize(
  "expected", METHODS["part"], ids=lambda case: case["arguments"]
)
def test_flags_of_other_parts(expected):
  expected = dict(expected)
  values = spec_of(*expected.pop("arguments").split()).values()
  assert {name: values[name] for name in expected} == expected


@pytest.mark.parametrize("kind", [UPLOAD, AGGREGATOR, FAULT, SAMPLER])
def test_factories_are_given_what_their_flags_say(kind, monkeypatch):
  """Each by the name of the argument, also where there is no default."""
  options = {"fraction": 0.25} if kind is FAULT else {}
  for name, entry in list(kind.registry.items()):
    parameters = kind.parameters(name)
    given = functools.wraps(entry.factory)(lambda **arguments: arguments)
    told = dataclasses.replace(entry, factory=given)
    monkeypatch.setitem(kind.entries, name, told)
    values = {flag: getattr(p, "default", None) or 3 for flag, p in
              parameters.items()}  # fmt: skip
    part = ChosenEntry(kind.flag, name, {}, values).make({}, **options)
    arguments = {p.name: values[flag] for flag, p in parameters.items()}
    assert part == arguments | options


@pytest.mark.parametrize(
  "algorithm", [n for n, entry in ALGORITHMS.items() if entry.server_rule]
)
def test_an_algorithm_named_after_its_server(algorithm):
  spec = spec_of(f"--algorithm={algorithm}")
  assert spec.server.name == ALGORITHMS[algorithm].server_rule


def test_only_numbers_are_tuned():
  spec = spec_of("--algorithm=bvr_l_sgd", "--large_batch=7", "--client_lr=.1,1")
  assert spec.grid == {"client_lr": [0.1, 1.0]}
  assert spec.algorithm.static == {"large_batch": 7, "practical": True}
  chosen_spec = spec.at({"client_lr": 0.1}, [5, 6])
  assert (chosen_spec.grid, chosen_spec.seed) == ({"client_lr": [0.1]}, [5, 6])
  assert chosen_spec.user_flags["client_lr"] == "0.1"


@pytest.mark.parametrize(
  "algorithm", [n for n, entry in ALGORITHMS.items() if entry.is_exact]
)
def test_without_clients_and_server_there_is_one_rate(algorithm):
  method = method_of(f"--algorithm={algorithm}", "--regularizer=nuclear")
  assert method == {
    "client": "sgd",
    "client_lr": 0.1,
    "regularizer": "nuclear",
    "strength": 0.01,
  }


@pytest.fixture
def arguments_of(monkeypatch):
  """`(name) -> {argument: value}`, what an algorithm's factory is given."""

  def arguments_of(name):
    factory_arguments, entry = {}, ALGORITHMS[name]

    @functools.wraps(entry.factory)  # Its signature says what it takes.
    def factory(**arguments):
      factory_arguments.update(arguments)

    entry = dataclasses.replace(entry, factory=factory, hyperparameters=())
    monkeypatch.setitem(algorithms.ALGORITHMS, name, entry)
    return factory_arguments

  return arguments_of


RATES = {
  "step_decay": {0: 0.5, 49: 0.5, 50: 0.05, 75: 0.005},
  "exponential": {0: 0.5, 1: 0.499, 100: 0.5 * 0.998**100},
}


@pytest.mark.parametrize("schedule", RATES)
@pytest.mark.parametrize("algorithm", ["scaffold", "bvr_l_sgd", "local_sgd"])
def test_rates_of_plain_steps_may_decay(arguments_of, algorithm, schedule):
  arguments = arguments_of(algorithm)
  spec = spec_of(f"--algorithm={algorithm}", f"--client_schedule={schedule}")
  building.algorithm_of(spec, TASK)(client_lr=0.5, server_lr=3.0)
  for round, expected in RATES[schedule].items():
    rate = arguments["learning_rate"](jnp.int32(round))
    assert rate == pytest.approx(expected)


@pytest.mark.parametrize("schedule", RATES)
def test_the_schedule_scales_the_clients_learning_rate(arguments_of, schedule):
  arguments = arguments_of("fed_avg")
  spec = spec_of("--client=sgd", f"--client_schedule={schedule}")
  building.algorithm_of(spec, TASK)(client_lr=0.5, server_lr=1.0)
  for round, rate in RATES[schedule].items():
    transformation = arguments["client"](jnp.int32(round))
    assert isinstance(transformation, optax.GradientTransformation)
    state = transformation.init(jnp.float32(0))
    step, _ = transformation.update(jnp.float32(1), state)
    assert step == pytest.approx(-rate)


def test_composite_algorithms_get_rates_and_regularizer(arguments_of):
  arguments = arguments_of("fed_mid")
  spec = spec_of(
    "--algorithm=fed_mid", "--regularizer=l1", "--client_schedule=step_decay"
  )
  make = building.algorithm_of(spec, TASK)
  make(client_lr=0.5, server_lr=3.0, strength=2.0)
  assert arguments["loss_fn"] is TASK.loss_fn
  assert arguments["server_learning_rate"] == 3.0
  params = {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)}
  assert arguments["psi"].value(params) == 12  # 2 ||kernel||_1, no bias.
  for round, rate in RATES["step_decay"].items():
    assert arguments["learning_rate"](jnp.int32(round)) == pytest.approx(rate)


@pytest.mark.parametrize(
  "arguments",
  [
    *(
      f"--algorithm={name} --client=sgd"
      + " --regularizer=l1" * entry.takes("psi")
      + " --task=agnews_distilbert --lora_rank=4" * entry.takes("paths")
      for name, entry in ALGORITHMS.items()
    ),
    "--algorithm=fed_per --personal=norm/scale,norm/running_var",
    *(f"--client={client}" for client in RULES),
    *(f"--server={server}" for server in SERVER.registry),
    *(f"--algorithm=fed_mid --regularizer={name}" for name in REGULARIZERS),
  ],
)
def test_makes_every_algorithm_from_traced_numbers(arguments):
  spec = spec_of(*arguments.split())
  function = lambda params, batch, rng: None
  task = TASK._replace(loss_fn=function, features_fn=function)
  make = building.algorithm_of(spec, task)
  params = {
    "output": {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)},
    "norm": {"scale": jnp.ones(2), "running_var": jnp.ones(2)},
    **dict.fromkeys(lora.ADAPTERS, jnp.ones(2)),
  }

  def init(values):
    algorithm = make(**values)
    assert isinstance(algorithm, Algorithm)
    penalty = algorithm.penalty(params) if algorithm.penalty else None
    assert (penalty is None) == (spec.regularizer is None)
    return algorithm.params(algorithm.init(params))

  values = {name: jnp.float32(grid[0]) for name, grid in spec.grid.items()}
  shapes = jax.eval_shape(init, values)
  assert shapes["output"]["kernel"].shape == (3, 2)


@pytest.mark.parametrize(
  ("text", "kind", "values"),
  [
    ("0.1", float, [0.1]),
    ("1e-3,1,10", float, [0.001, 1, 10]),
    ("3,1,2", int, [3, 1, 2]),
    (0.5, float, [0.5]),
    ("inf", float, [float("inf")]),
  ],
)
def test_numbers(text, kind, values):
  any_number = fields.plain_number("(-inf, inf]", value_type=kind)
  assert parse_numbers(any_number, text, "flag") == values


def test_no_flag_is_shared_by_two_kinds_of_part():
  """Else it would be unclear whom a value is for."""
  parts = ("algorithm", "client", "server", "regularizer", "privacy")
  flags = [set(CHOICE_FLAGS[part].owners()) for part in parts]
  for first, second in itertools.combinations(flags, 2):
    assert not first & second


# Who takes part, what they send, and how that is combined.


def wrapped(*arguments):
  """What the algorithm is wrapped in: (name, value)."""
  options = building.options_of(spec_of(DIGITS, *arguments), TASK)
  names = ("upload", "fault", "aggregator")
  return [(n, options[n]) for n in names if options[n] is not None]


# A message.
U = {"w": jnp.linspace(-1, 2, 40)}
KEY = jax.random.key(0)


def test_flags_reach_the_upload():
  arguments = ("--upload=quantize", "--upload_levels=3", "--error_feedback")
  ((name, upload),) = wrapped(*arguments)
  assert name == "upload"
  expected = transforms.error_feedback(transforms.quantize(3))
  assert upload.num_bytes(U) == expected.num_bytes(U)
  sent = lambda part: part.rule.update(U, part.rule.init(U), None, key=KEY)
  chex.assert_trees_all_equal(sent(upload), sent(expected))


def test_flags_reach_the_aggregator():
  rows = jnp.asarray(np.random.default_rng(0).normal(size=(9, 4)) ** 3)
  arguments = ("--aggregator=multi_krum", "--krum_faulty=3")
  ((name, aggregator),) = wrapped("--weighting=uniform", *arguments)
  assert name == "aggregator"
  counted = np.arange(9) != 2
  of_flags, expected = (
    jax.jit(part.combine)(rows, counted)
    for part in (aggregator, aggregators.multi_krum(3))
  )
  np.testing.assert_array_equal(of_flags, expected)
  assert np.any(expected != rows[counted].mean(0))


def test_all_wrap_from_the_client_to_the_server():
  parts = wrapped(
    "--upload=sign",
    "--aggregator=median",
    "--weighting=uniform",
    "--fault=noise",
    "--fault_strength=2",
    "--faulty_fraction=0.25",
  )
  assert [name for name, _ in parts] == ["upload", "fault", "aggregator"]
  fault = parts[1][1]
  assert fault.fraction == 0.25
  expected = faults.noise(0.25, 2.0).corrupt(U, KEY)
  np.testing.assert_allclose(fault.corrupt(U, KEY)["w"], expected["w"])


def test_nothing_is_the_default():
  assert wrapped() == []
  values = prepare(DIGITS).spec.values()
  assert values["aggregator"] == "mean"
  assert "upload" not in values
