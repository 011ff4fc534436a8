"""The problem of these tests in JAX, and the rounds that the engine draws."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import ClientData
from fedjax_opt.engine.cohort import Cohort
from fedjax_opt.engine.config import Config
from tests import jax_problems

# Clients of unequal sizes; the last one owns nothing.
SIZES = (13, 7, 20, 4, 9, 16, 0)
_TASK = jax_problems.softmax(sizes=SIZES)
PROBLEM, PARAMS, loss_fn = _TASK.problem, _TASK.params, _TASK.loss_fn
flat = jax_problems.flat


def client_data() -> ClientData:
  return _TASK.data


class Rounds(NamedTuple):
  """What is drawn, [rounds][clients], as the loops of reference_user.py take.

  Attributes:
    cohorts: those whose message counts.
    batches: the rows of each of their local steps.
    weights: theirs, not normalized.
  """

  cohorts: list[list[int]]
  batches: list[list[list[np.ndarray]]]
  weights: list[list[float]]


def cohort(round: int, **settings: Any) -> Cohort:
  """The cohort of a round of a run with these settings."""
  config = Config.create(client_data(), settings, PARAMS)
  data, key = jax.device_put(client_data()), jax.random.key(0)
  return jax_problems.cohort_of(config, data, key, jnp.int32(round))


def draw(num_rounds: int, **settings: Any) -> Rounds:
  """The rounds that `simulate` draws with these settings."""
  config = Config.create(client_data(), settings, PARAMS)
  return Rounds(
    *jax_problems.drawn_rounds(
      config, client_data(), 0, num_rounds, counted=True
    )
  )
