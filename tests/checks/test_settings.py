"""Settings of a run, rounds and seeds: each checker by itself."""

from fedjax_opt import samplers, simulate
from fedjax_opt.engine import client_state, inputs
from fedjax_opt.engine.config import Config, check_names
from tests.helpers import refusals
from tests.helpers.linear import ALGORITHM, DATA, PARAMS


def settings(bad):
  return Config.create(DATA, {"batch_size": 2} | bad, PARAMS)


def of_grid(bad):
  return Config.create(DATA, {"batch_size": 2} | bad, num_settings=2)


def run(bad):
  simulate(ALGORITHM, PARAMS, DATA, **{"rounds": 1} | bad)


def evaluate(value):
  settings({"evaluate": value})


def seed(value):
  inputs.SEED.check("seed", value)


def seeds(value):
  inputs.check_seeds({}, value)


def seeds_of_a_run(value):
  inputs.check_seeds(None, value)


def name(value):
  check_names([value])


def sampler(value):
  samplers.resolve(value, 4, 4)


def on_host(algorithm):
  config = settings({"client_memory": "host"})
  client_state.resolve(config, algorithm, None)


test_is_refused = refusals.of_table(
  "settings.txt", samplers, settings, of_grid, run, evaluate, seed, seeds,
  seeds_of_a_run, name, sampler, on_host,
)  # fmt: skip
