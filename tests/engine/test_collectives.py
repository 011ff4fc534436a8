"""What several devices exchange in a round, and what they cannot compute."""

import json
import os

import pytest

from tests.helpers.commands import REPOSITORY, new_python

PROGRAM = """
import json
import jax.numpy as jnp
import optax
from jax import lax
import fedjax_opt as fo
import compiled
from tests.helpers import jax_problems

task = jax_problems.softmax(sizes=(8,) * 16)
loss_fn, sgd = task.loss_fn, optax.sgd(0.1)
algorithms = {
  "fed_avg": fo.fed_avg(loss_fn, sgd),
  "fed_nova": fo.fed_nova(loss_fn, 0.1),
  "scaffold": fo.scaffold(loss_fn, 0.1),
  "bvr_l_sgd": fo.bvr_l_sgd(loss_fn, 0.1),
}
found = {}
for name, algorithm in algorithms.items():
  simulator = fo.Simulator(
    algorithm, task.data, cohort_size=8, batch_size=4, local_steps=2,
    client_devices=4,
  )
  rounds = simulator.compile(task.params)["rounds"]
  found[name] = compiled.exchanges(rounds.as_text())

def of_images(params, batch, rng):
  form = ("NHWC", "HWIO", "NHWC")
  x = lax.conv_general_dilated(
    batch["x"], params, (1, 1), "SAME", dimension_numbers=form
  )
  return (x**2).sum((1, 2, 3))

images = fo.ClientData.from_client_ids(
  {"x": jnp.ones((8, 4, 4, 1))}, jnp.arange(8) % 4
)
def trace(**settings):
  simulator = fo.Simulator(
    lambda rate: fo.fed_avg(of_images, optax.sgd(rate)), images,
    grid={"rate": [0.1, 0.2]}, seeds=[0, 1], batch_size=2, local_steps=1,
    **{"grid_map": "vmap"} | settings,
  )
  simulator.trace(jnp.ones((2, 2, 1, 3)))
one = {"grid_devices": 1}
try:
  trace(**one)
except ValueError as error:
  found["refused"] = str(error)
trace(**one | {"grid_map": "scan"})
trace(grid_devices=2)  # One setting for each device.
print(json.dumps(found))
"""
ONE = {"all-reduce": 1, "all-gather": 1}


# `.ci/run` also counts exchanges, in programs for TPUs.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found():
  flag = "--xla_force_host_platform_device_count=4"
  process = new_python(
    "-c", PROGRAM, JAX_PLATFORMS="cpu",
    XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} {flag}",
    PYTHONPATH=f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'benchmarks'}",
  )  # fmt: skip
  return json.loads(process.stdout)


@pytest.mark.parametrize("name", ["fed_avg", "fed_nova", "scaffold"])
def test_a_phase_has_one_sum_and_one_exchange_of_records(found, name):
  assert found[name] == ONE


def test_two_phases_and_a_picked_client(found):
  """The large gradient and the round's, and the state of the client."""
  assert found["bvr_l_sgd"] == {"all-reduce": 2, "all-gather": 3}


def test_what_jax_cannot_vmap_on_several_devices_is_one_line(found):
  assert found["refused"] == (
    "grid_map='vmap': on several devices JAX cannot vmap an operation of this "
    "model over settings and seeds, such as a convolution of flax; give "
    "grid_map='scan'"
  )
