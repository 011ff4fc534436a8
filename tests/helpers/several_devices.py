"""The runs of test_sharding.py: on one device, and on several.

  python -m tests.helpers.several_devices RESULTS.npz FOLDER CASES \
    CLIENT_DEVICES GRID_DEVICES MODEL_DEVICES \
    [COORDINATOR NUM_PROCESSES PROCESS_ID]

runs them in a process of its own, which may be one of several. CASES are names
with commas between them. FOLDER has a population; which of its clients were
read goes to RESULTS.npz.read.npy.
"""

import contextlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec

import fedjax_opt as fo
from fedjax_opt import evaluation, schedules, systems, trainable
from tests.helpers import jax_problems

TASK = jax_problems.softmax(sizes=(13, 7, 20, 4, 9))
OPTIONS = {
  "rounds": 3,
  "cohort_size": 4,
  "batch_size": 4,
  "local_epochs": 1.5,
  "eval_every": 2,
}


def picks() -> fo.Algorithm:
  """Notes what clients send one by one."""

  def round(state, cohort):
    one_client = lambda worker, _: worker.client + 10.0 * worker.num_steps
    sent = cohort.each(one_client, ())
    picked = cohort.pick(one_client, (), phase=1)
    worked = cohort.pick(one_client, (), phase=2, others_work=True)
    value = sent.value @ jnp.arange(4.0)
    value += 100 * picked.value + 1000 * worked.value
    return 3 * state + value, (sent, picked, worked)

  return jax_problems.own_algorithm(round, init=lambda params: jnp.zeros(()))


def buffered(work):
  """Five steps of four arrivals, which start from older models."""
  system = systems.sample(5, systems.lognormal(1.0, 1.0))
  durations = system.durations(work.steps, seed=work.seed)
  return schedules.buffered(durations, 5, concurrency=5, buffer=4)


def flat(result):
  """What a run has found, {name: array}."""
  return {
    "params": jax_problems.flat(result.params),
    "state": jax_problems.flat((result.state, result.client_state)),
    "cost": np.array([result.cost["gradient_evaluations_per_round"]]),
    **result.history.metrics,
    **result.traces,
  }


CASES = (
  "traced", "memory", "on_host", "stages", "picks", "grid", "sequential",
  "on_disk", "clock", "frozen", "frozen_bias",
)  # fmt: skip
# As each compiles in every process, and none is of a kind of its own.
OF_PROCESSES = ("memory", "on_host", "sequential", "on_disk")
# With each model over several devices.
OF_MODELS = ("traced", "adam", "grid", "frozen_bias", "killed")


def per_example(params, batch):
  """What is measured."""
  logits = TASK.features_fn(params, batch, None)
  right = (logits.argmax(1) == batch["y"]) * 1.0
  return {"loss": TASK.loss_fn(params, batch, None), "accuracy": right}


def drawn(key):
  """A model, of which the kernel depends on the key, and the bias does not."""
  return TASK.params | {"kernel": jax.random.normal(key, (4, 3))}


class Killed(Exception):
  """In place of a kill."""


def kill(report):
  if report.round == 4:
    raise Killed


def divided(devices):
  """The first axis of a leaf that the devices divide, however small it is."""

  def spec(path, shape):
    for axis, size in enumerate(shape):
      if size % devices == 0:
        return PartitionSpec(*[None] * axis, "model")

  return spec


def results(
  folder, client_devices=1, grid_devices=1, model_devices=1, cases=CASES
):
  """{case/name: array} with the clients, and a grid's settings, so divided.

  Args:
    folder: of a population; runs that are killed have one beside it.
    client_devices: over which cohorts are divided.
    grid_devices: over which settings are.
    model_devices: over which each model is.
    cases: names of those to run.
  """
  loss, params, data = TASK.loss_fn, TASK.params, TASK.data

  evaluate = evaluation.federated(per_example, batch_size=7, gradient_of=loss)
  measured = OPTIONS | {"evaluate": evaluate}
  of_one = {"client_devices": client_devices * grid_devices}
  of_grid = {"client_devices": client_devices, "grid_devices": grid_devices}
  if model_devices > 1:
    rule = divided(model_devices)
    of_model = {"model_devices": model_devices, "model_sharding": rule}
    of_one, of_grid = of_one | of_model, of_grid | of_model
  by_scaffold = lambda rate: fo.scaffold(loss, rate)

  def simulation(algorithm, **options):
    options = measured | of_one | options
    return lambda: fo.simulate(algorithm, params, data, **options)

  def grid(
    make=lambda rate: fo.fed_avg(loss, optax.sgd(rate)), start=params, **options
  ):
    rates = {"rate": [0.05, 0.1, 0.2, 1e30]}
    options = measured | of_grid | {"seeds": (0, 1)} | options
    return lambda: fo.sweep(make, rates, start, **options)

  def training(*paths):
    return lambda rate: trainable.train_only(
      lambda loss: fo.fed_avg(loss, optax.sgd(rate)), paths, loss
    )

  def of_scaffold(**options):
    return simulation(fo.scaffold(loss, 0.1), rounds=5, **options)

  def killed():
    with contextlib.suppress(Killed):
      checkpoints = fo.Checkpoints(f"{folder}-killed", 2)
      of_scaffold(checkpoints=checkpoints, on_evaluation=kill)()

  def resumed():
    checkpoints = fo.Checkpoints(f"{folder}-killed", 2, resume=True)
    return of_scaffold(checkpoints=checkpoints)()

  by_rule = fo.fed_avg(loss, fo.delta_sgd())
  runs = {
    "traced": simulation(by_rule, trace=["step_size"], client_dropout=0.3),
    "memory": simulation(fo.scaffold(loss, 0.1), client_chunk=1),
    "on_host": grid(data=data, make=by_scaffold, client_memory="host"),
    "stages": simulation(fo.bvr_l_sgd(loss, 0.1)),
    "picks": simulation(picks(), evaluate=None),
    "grid": grid(data=data, grid_map="vmap"),
    "sequential": grid(data=data, grid_map="scan", rounds=5),
    "on_disk": grid(data=fo.Population.open(folder)),
    "clock": grid(
      data=data,
      make=lambda rate: fo.fed_buff(loss, optax.sgd(rate)),
      cohort_size=None,
      schedule=buffered,
      rounds=5,
    ),
    "frozen": grid(training("bias"), drawn, data=data),
    "frozen_bias": grid(training("kernel"), drawn, data=data),
    "adam": simulation(fo.fed_avg(loss, optax.sgd(0.1), optax.adam(0.1))),
    "whole": of_scaffold(),
    "killed": killed,
    "resumed": resumed,
  }
  run_results = {case: runs[case]() for case in cases}
  run_results = {case: result for case, result in run_results.items() if result}
  for result in run_results.values() if model_devices > 1 else ():
    leaves = jax.tree.leaves(result.state)  # Frozen ones are on the host.
    state = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    assert not all(leaf.sharding.is_fully_replicated for leaf in state)
  return {
    f"{case}/{name}": value
    for case, result in run_results.items()
    for name, value in flat(result).items()
  }


def main(path, folder, cases, clients, grid, model, *processes):
  read, gather = [], fo.Population.gather

  def noted(self, clients, capacity, out=None):
    if out is not None:  # Not of the sample that metrics are measured on.
      read.extend(client for client in clients if client < self.num_clients)
    return gather(self, clients, capacity, out)

  fo.Population.gather = noted
  if processes:
    coordinator, num_processes, process_id = processes
    jax.distributed.initialize(coordinator, int(num_processes), int(process_id))
  devices = (int(clients), int(grid), int(model))
  np.savez(path, **results(folder, *devices, cases.split(",")))
  np.save(f"{path}.read.npy", read)


if __name__ == "__main__":
  main(*sys.argv[1:])
