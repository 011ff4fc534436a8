"""The runs that test_sharding.py compares: on one device, and on several.

  python -m tests.several_devices RESULTS.npz FOLDER \
    [CLIENT_DEVICES GRID_DEVICES [COORDINATOR NUM_PROCESSES PROCESS_ID]]

runs them in a process of its own. FOLDER has a population.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt import (
  Algorithm,
  Population,
  bvr_l_sgd,
  delta_sgd,
  evaluation,
  fed_avg,
  scaffold,
  simulate,
  sharding,
  sweep,
)
from tests import jax_problems

TASK = jax_problems.softmax(sizes=(13, 7, 20, 4, 9))
SETTINGS = {
  "rounds": 3,
  "cohort_size": 4,
  "batch_size": 4,
  "local_epochs": 1.5,
  "eval_every": 2,
}


def picks() -> Algorithm:
  """Notes what clients send one by one."""

  def round(state, cohort):
    one_client = lambda worker, _: worker.client + 10.0 * worker.num_steps
    sent = cohort.each(one_client, ())
    picked = cohort.pick(one_client, ())
    worked = cohort.pick(one_client, (), others_work=True)
    return 3 * state + sent @ jnp.arange(4.0) + 100 * picked + 1000 * worked

  return Algorithm(
    init=lambda params, _: jnp.zeros(()),
    round=round,
    params=lambda state: state,
  )


def flat(result):
  """What a run has found, {name: array}."""
  leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(result.params)]
  memory = [np.ravel(leaf) for leaf in jax.tree.leaves(result.state)]
  return {
    "params": np.concatenate(leaves),
    "state": np.concatenate(memory),
    "cost": np.array([result.cost["gradient_evaluations"]]),
    **result.history.metrics,
    **result.traces,
  }


def results(folder, client_devices=1, grid_devices=1):
  """{case/name: array} with the clients, and a grid's settings, so divided."""
  loss, params, data = TASK.loss_fn, TASK.params, TASK.data

  def per_example(params, batch):
    logits = TASK.features_fn(params, batch, None)
    right = (logits.argmax(1) == batch["y"]) * 1.0
    return {"loss": loss(params, batch, None), "accuracy": right}

  evaluate = evaluation.federated(per_example, batch_size=7, gradient_of=loss)
  settings = SETTINGS | {"client_devices": client_devices * grid_devices}
  measured = settings | {"evaluate": evaluate}
  run = lambda algorithm, **others: simulate(
    algorithm, params, data, **measured | others
  )
  by_rule = fed_avg(loss, delta_sgd())
  cases = {
    "traced": run(by_rule, trace=["step_size"], client_dropout=0.3),
    "chunks": run(fed_avg(loss, optax.sgd(0.1)), client_chunk=1),
    "memory": run(scaffold(loss, 0.1)),
    "stages": run(bvr_l_sgd(loss, 0.1)),
    "picks": simulate(picks(), params, data, **settings),
  }
  make = lambda rate: fed_avg(loss, optax.sgd(rate))
  grid = {"rate": [0.05, 0.1, 0.2, 1e30]}
  devices = {"client_devices": client_devices, "grid_devices": grid_devices}
  seeds = (0, 1)
  for name, others in {
    "grid": {"data": data, "grid_map": "vmap"},
    "sequential": {"data": data, "grid_map": "scan", "rounds": 5},
    "on_disk": {"data": Population.open(folder)},
  }.items():
    settings = measured | devices | others
    cases[name] = sweep(make, grid, params, seeds=seeds, **settings)
  return {
    f"{case}/{name}": value
    for case, result in cases.items()
    for name, value in flat(result).items()
  }


def main(path, folder, *numbers):
  if len(numbers) > 2:
    coordinator, num_processes, process_id = numbers[2:]
    jax.distributed.initialize(
      coordinator, int(num_processes), int(process_id)
    )
  found = results(folder, *map(int, numbers[:2]))
  if sharding.is_first_process():
    np.savez(path, **found)


if __name__ == "__main__":
  main(*sys.argv[1:])
