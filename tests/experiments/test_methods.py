"""From flags to grid and algorithm."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import optax
import pytest

from experiments import tasks
from experiments.flags import methods
from experiments.flags.registries import numbers
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.base import Algorithm
from fedjax_opt.prox.registry import REGULARIZERS
from fedjax_opt.rules import RULES


def test_defaults_are_the_paper_s_delta_sgd(flags_of):
  setup = methods.resolve(flags_of())
  assert setup.resolved() == {
    "client": "delta_sgd",
    "server": "sgd",
    "gamma": 2.0,
    "delta": 0.1,
    "eta_0": 0.2,
    "theta_0": 1.0,
    "client_eps": 0.0,
    "reuse_gradients": False,
    "independent_dropout": False,
    "server_lr": 1.0,
  }
  assert setup.schedule.is_constant


@pytest.mark.parametrize(
  ("client", "expected"),
  [
    ("sgd", {"client_lr": 0.1}),
    ("sgdm", {"client_lr": 0.1, "client_momentum": 0.9}),
    (
      "adam",
      {
        "client_lr": 0.001,
        "client_b1": 0.9,
        "client_b2": 0.999,
        "client_eps": 1e-8,
      },
    ),
    (
      "adagrad",
      {
        "client_lr": 0.01,
        "client_initial_accumulator": 0.0,
        "client_eps": 1e-10,
      },
    ),
    ("sps", {"client_c": 0.5, "client_f_min": 0.0, "client_max_step": 1e400}),
  ],
)
def test_defaults_of_the_paper_s_baselines(flags_of, client, expected):
  resolved = methods.resolve(flags_of(f"--client={client}")).resolved()
  names = {"client": client, "server": "sgd", "server_lr": 1.0}
  assert resolved == names | expected


def test_milestones_are_resolved(flags_of):
  arguments = ("--client=sgd", "--client_schedule=step_decay")
  resolved = methods.resolve(flags_of(*arguments)).resolved()
  assert resolved["client_milestones"] == "0.5,0.75"
  given = flags_of(*arguments, "--client_milestones=0.6,0.8")
  setup = methods.resolve(given)
  assert setup.resolved()["client_milestones"] == "0.6,0.8"
  assert setup.schedule.milestones == (0.6, 0.8)


def test_the_decay_is_resolved(flags_of):
  arguments = ("--client=sgd", "--client_schedule=exponential")
  assert methods.resolve(flags_of(*arguments)).resolved()["client_decay"] == (
    0.998
  )
  given = flags_of(*arguments, "--client_decay=0.9")
  assert methods.resolve(given).resolved()["client_decay"] == 0.9


@pytest.mark.parametrize(
  "algorithm", [n for n, each in ALGORITHMS.items() if each.server_rule]
)
def test_an_algorithm_named_after_its_server(flags_of, algorithm):
  setup = methods.resolve(flags_of(f"--algorithm={algorithm}"))
  assert setup.server.name == ALGORITHMS[algorithm].server_rule


def test_composite_algorithms_take_plain_steps_and_the_task_s_regularizer(
  flags_of,
):
  setup = methods.resolve(flags_of("--algorithm=fed_dual_avg"), "l1")
  assert setup.resolved() == {
    "client": "sgd",
    "client_lr": 0.1,
    "server": "sgd",
    "server_lr": 1.0,
    "regularizer": "l1",
    "strength": 0.01,
  }
  own = flags_of("--algorithm=fed_dual_avg", "--regularizer=l2_ball")
  assert methods.resolve(own, "l1").grid == {
    "client_lr": [0.1],
    "server_lr": [1.0],
    "radius": [10.0],
  }


@pytest.mark.parametrize(
  "algorithm", [n for n, each in ALGORITHMS.items() if each.is_exact]
)
def test_without_clients_and_server_there_is_one_rate(flags_of, algorithm):
  setup = methods.resolve(flags_of(f"--algorithm={algorithm}"), "nuclear")
  assert setup.resolved() == {
    "client": "sgd",
    "client_lr": 0.1,
    "regularizer": "nuclear",
    "strength": 0.01,
  }


def test_rules_and_flags_of_an_algorithm_s_own(flags_of):
  setup = methods.resolve(flags_of("--algorithm=diloco"))
  assert setup.resolved() == {
    "client": "adamw",
    "server": "nesterov",
    "client_lr": 4e-4,
    "client_b1": 0.9,
    "client_b2": 0.999,
    "client_eps": 1e-8,
    "client_weight_decay": 0.1,
    "server_lr": 0.7,
    "server_momentum": 0.9,
  }
  others = flags_of("--algorithm=diloco", "--client=sgd", "--server=sgd")
  assert methods.resolve(others).resolved()["server_lr"] == 1.0
  # --alpha is a flag of the partition.
  lists = flags_of("--algorithm=fed_dyn", "--algorithm_alpha=0.1,0.01")
  setup = methods.resolve(lists)
  assert setup.client.name == "sgd"
  assert setup.server is None
  assert setup.grid == {"client_lr": [0.1], "algorithm_alpha": [0.1, 0.01]}


@pytest.mark.parametrize(
  ("given", "message"),
  [
    (
      ("--algorithm=fed_cm", "--algorithm_alpha=2"),
      "algorithm_alpha=2: must be in [0, 1]",
    ),
    (
      ("--algorithm=fed_avg", "--algorithm_momentum=0.5"),
      "algorithm_momentum=0.5: belongs to algorithm fed_nova, not to algorithm "
      "fed_avg; give --algorithm=fed_nova, or leave algorithm_momentum out",
    ),
    (
      ("--algorithm=fed_nova", "--client=adam"),
      "client='adam': algorithm fed_nova normalizes plain steps; for other "
      "rules that is not defined; must be sgd",
    ),
    (
      ("--algorithm=fed_exp", "--server=sgd"),
      "server='sgd': algorithm fed_exp has no server; leave server out",
    ),
    (
      ("--algorithm=prox_skip", "--client_schedule=step_decay"),
      "client_schedule='step_decay': algorithm prox_skip has one rate for all "
      "rounds; must be constant",
    ),
  ],
)
def test_what_does_not_fit_the_newer_methods(flags_of, given, message):
  with pytest.raises(ValueError) as error:  # noqa: PT011
    methods.resolve(flags_of(*given))
  assert str(error.value) == message


def test_algorithms_of_plain_steps(flags_of):
  setup = methods.resolve(flags_of("--algorithm=scaffold", "--exact_control"))
  assert setup.resolved() == {
    "client": "sgd",
    "client_lr": 0.1,
    "server": "sgd",
    "server_lr": 1.0,
    "exact_control": True,
  }
  setup = methods.resolve(
    flags_of("--algorithm=bvr_l_sgd", "--large_batch=7", "--client_lr=.1,1")
  )
  assert setup.resolved() == {
    "client": "sgd",
    "client_lr": [0.1, 1.0],
    "large_batch": 7,
    "practical": True,
  }
  # Only numbers are tuned.
  assert setup.grid == {"client_lr": [0.1, 1.0]}
  assert setup.algorithm.static == {"large_batch": 7, "practical": True}


def with_factory(setup, factory):
  """The setup, with another factory, without hyperparameters, of algorithms."""
  choice = dataclasses.replace(setup.algorithm.choice, factory=factory)
  algorithm = setup.algorithm._replace(choice=choice, arguments={})
  return setup._replace(algorithm=algorithm)


@pytest.mark.parametrize("algorithm", ["scaffold", "bvr_l_sgd", "local_sgd"])
def test_rates_of_plain_steps_may_decay(flags_of, algorithm):
  setup = methods.resolve(
    flags_of(f"--algorithm={algorithm}", "--client_schedule=step_decay")
  )
  seen = {}
  setup = with_factory(
    setup, lambda loss_fn, learning_rate, **others: seen.update(locals())
  )
  make = setup.make("loss", None, rounds=100)
  make(client_lr=0.5, server_lr=3.0)
  rate = seen["learning_rate"]
  for round, expected in [(0, 0.5), (49, 0.5), (50, 0.05), (75, 0.005)]:
    assert rate(jnp.int32(round)) == pytest.approx(expected)


def test_flags_become_grid_axes(flags_of):
  setup = methods.resolve(
    flags_of(
      "--algorithm=fed_prox", "--mu=0,1e-2", "--client=sgd", "--client_lr=.1,1"
    )
  )
  assert setup.grid == {
    "mu": [0, 0.01],
    "client_lr": [0.1, 1],
    "server_lr": [1],
  }
  assert setup.resolved()["mu"] == [0, 0.01]


def test_same_flag_means_what_the_chosen_algorithm_says(flags_of):
  for algorithm, mu in {"fed_prox": 0.01, "moon": 1.0}.items():
    setup = methods.resolve(flags_of(f"--algorithm={algorithm}"))
    assert setup.grid["mu"] == [mu]


@pytest.mark.parametrize(
  "arguments",
  [
    *(f"--algorithm={algorithm} --client=sgd" for algorithm in ALGORITHMS),
    "--algorithm=fed_per --personal=norm/scale,norm/running_var",
    *(f"--client={client}" for client in RULES),
    *(f"--server={server}" for server in methods.SERVER.registry),
    *(f"--algorithm=fed_mid --regularizer={name}" for name in REGULARIZERS),
  ],
)
def test_makes_every_algorithm_from_traced_numbers(flags_of, arguments):
  setup = methods.resolve(flags_of(*arguments.split()), regularizer="l1")
  function = lambda params, batch, rng: None
  make = setup.make(loss_fn=function, features_fn=function, rounds=10)
  params = {
    "output": {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)},
    "norm": {"scale": jnp.ones(2), "running_var": jnp.ones(2)},
  }

  def init(values):
    algorithm = make(**values)
    assert isinstance(algorithm, Algorithm)
    penalty = algorithm.penalty(params) if algorithm.penalty else None
    assert (penalty is None) == (setup.regularizer is None)
    return algorithm.params(algorithm.init(params, 7))

  values = {name: jnp.float32(of[0]) for name, of in setup.grid.items()}
  shapes = jax.eval_shape(init, values)
  assert shapes["output"]["kernel"].shape == (3, 2)


@pytest.mark.parametrize(
  ("schedule", "rates"),
  [
    ("step_decay", {0: 0.5, 49: 0.5, 50: 0.05, 75: 0.005}),
    ("exponential", {0: 0.5, 1: 0.499, 100: 0.5 * 0.998**100}),
  ],
)
def test_the_schedule_scales_the_clients_learning_rate(
  flags_of, schedule, rates
):
  setup = methods.resolve(
    flags_of("--client=sgd", f"--client_schedule={schedule}", "--client_lr=0.5")
  )
  # What reaches the algorithm is a function of the round.
  rules = []
  setup = with_factory(
    setup, lambda loss_fn, client, server: rules.append(client)
  )
  make = setup.make(None, None, rounds=100)
  make(client_lr=0.5, server_lr=1.0)
  (rule,) = rules
  for round, rate in rates.items():
    transformation = rule(jnp.int32(round))
    assert isinstance(transformation, optax.GradientTransformation)
    state = transformation.init(jnp.float32(0))
    step, _ = transformation.update(jnp.float32(1), state)
    assert step == pytest.approx(-rate)


def test_composite_algorithms_get_rates_and_regularizer(flags_of):
  setup = methods.resolve(
    flags_of(
      "--algorithm=fed_mid", "--client_schedule=step_decay", "--client_lr=0.5"
    ),
    regularizer="l1",
  )
  seen = {}
  setup = with_factory(
    setup,
    lambda loss_fn, psi, learning_rate, server_learning_rate: seen.update(
      locals()
    ),
  )
  make = setup.make("loss", None, rounds=100)
  make(client_lr=0.5, server_lr=3.0, strength=2.0)
  assert seen["loss_fn"] == "loss"
  assert seen["server_learning_rate"] == 3.0
  params = {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)}
  assert seen["psi"].value(params) == 12  # 2 ||kernel||_1, without the bias.
  rate = seen["learning_rate"]
  for round, expected in [(0, 0.5), (49, 0.5), (50, 0.05), (75, 0.005)]:
    assert rate(jnp.int32(round)) == pytest.approx(expected)


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
  assert numbers("flag", text, kind) == values


def test_no_flag_is_shared_by_two_kinds_of_part():
  """Else it would be unclear whom a value is for."""
  flags = {kind.flag: set(kind.owners()) for kind in methods.KINDS}
  for one, other in itertools.combinations(flags.values(), 2):
    assert not one & other


def test_a_task_s_strength_is_for_its_own_regularizer(flags_of):
  flags = flags_of("--task=lasso", "--algorithm=fed_mid")
  task = tasks.TASKS["lasso"]
  setup = methods.resolve(flags, task.regularizer, task.defaults)
  assert setup.grid == {
    "client_lr": [3e-4],
    "server_lr": [1.0],
    "strength": [0.1],
  }
  other = flags | {"regularizer": "nuclear"}
  setup = methods.resolve(other, task.regularizer, task.defaults)
  assert setup.grid["strength"] == [0.01]
  given = flags | {"strength": "0.3", "client_lr": "1"}
  setup = methods.resolve(given, task.regularizer, task.defaults)
  assert (setup.grid["strength"], setup.grid["client_lr"]) == ([0.3], [1])
  low_rank = tasks.TASKS["low_rank"]
  setup = methods.resolve(flags, low_rank.regularizer, low_rank.defaults)
  assert setup.grid["strength"] == [0.5]
