"""Settings of a run, rounds and seeds: each checker by itself."""

from fedjax_opt import samplers, simulate
from fedjax_opt.engine import client_state, inputs
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.run_options import check_option_names
from tests.helpers import refusals
from tests.helpers.linear import ALGORITHM, DATA, PARAMS


def settings(bad):
  return Config.create(DATA, {"batch_size": 2} | bad, PARAMS)


def of_grid(bad):
  return Config.create(DATA, {"batch_size": 2} | bad, num_settings=2)


def run(bad):
  simulate(ALGORITHM, PARAMS, DATA, **{"rounds": 1} | bad)


test_is_refused = refusals.of_table(
  "settings.txt", samplers, client_state, inputs, check_option_names, settings,
  of_grid, run, Config,
)  # fmt: skip
