"""The loop over rounds, and what a round returns to it."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import ClientData, scaffold
from fedjax_opt.checks import inputs
from fedjax_opt.engine import rounds
from fedjax_opt.engine.config import Config


def test_what_a_large_population_keeps_is_held_once():
  """SCAFFOLD's, of 100,000 clients: XLA plans no copy of it."""
  population, size = 100_000, 50
  data = ClientData(
    {"x": np.ones((10, size), np.float32)},
    np.zeros((population, 1), np.int32),
    np.ones(population, np.int32),
  )
  loss = lambda params, batch, rng: batch["x"] @ params["w"]
  algorithm = scaffold(loss, 0.1)
  settings = {"cohort_size": 4, "batch_size": 1, "client_chunk": 2}
  config = Config.create(data, settings)

  def start():
    params = {"w": jnp.zeros(size)}
    rows = inputs.rows_of_all(algorithm, params, population)
    return algorithm.init(params, population), rows

  def run(state, key, data):
    args = (key, data, {}, jnp.int32(0), jnp.int32(9))
    return rounds.run_rounds(config, algorithm, state, *args)

  state, key = jax.eval_shape(start), jax.random.key(0)
  lowered = jax.jit(run, donate_argnums=0).lower(state, key, data)
  plan = lowered.compile().memory_analysis()
  memory = 4 * size * population
  assert plan.alias_size_in_bytes >= memory  # The same buffer, in and out.
  assert plan.temp_size_in_bytes < memory / 2
