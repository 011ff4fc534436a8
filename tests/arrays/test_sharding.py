"""Several devices, and several processes, give what one device gives."""

import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, PartitionSpec

from fedjax_opt import Population, Simulator, fed_avg
from fedjax_opt.arrays import sharding
from tests.helpers import refusals, several_devices
from tests.helpers.commands import REPOSITORY, free_address


def start(devices, *arguments):
  """Runs `helpers/several_devices.py` with so many devices of this machine."""
  flag = f"--xla_force_host_platform_device_count={devices}"
  return subprocess.Popen(
    [
      sys.executable,
      "-m",
      "tests.helpers.several_devices",
      *map(str, arguments),
    ],
    cwd=REPOSITORY,
    env=os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flag}"},
    stderr=subprocess.PIPE,
    text=True,
  )


def end(process):
  errors = process.communicate(timeout=300)[1]
  assert process.returncode == 0, errors


def assert_same(path, expected):
  arrays = np.load(path)
  assert set(arrays.files) == set(expected)
  for name, value in expected.items():
    scale = np.nanmax(np.abs(value), initial=1e-30)
    np.testing.assert_allclose(
      arrays[name], value, rtol=0, atol=1e-6 * scale, err_msg=name
    )


@pytest.fixture(scope="module")
def population(tmp_path_factory):
  folder = tmp_path_factory.mktemp("clients") / "population"
  return Population.of_client_data(folder, several_devices.TASK.data).folder


def start_two(paths, population, cases, devices):
  """Two processes over loopback, with two of the devices each, or one."""
  num_local, address = np.prod(devices) // 2, free_address()
  return [
    start(num_local, path, population, ",".join(cases), *devices, address, 2, i)
    for i, path in enumerate(paths)
  ]


@pytest.mark.slow
def test_eight_devices_of_one_process(population, tmp_path):
  """Clients over four, the settings of a grid over two."""
  path, cases = tmp_path / "results.npz", several_devices.CASES
  process = start(8, path, population, ",".join(cases), 4, 2, 1)
  expected = several_devices.results(population)
  end(process)
  assert_same(path, expected)
  # What is on disk gives what is in memory, but for who is measured.
  for name in ("params", "state", "cost", "train_loss"):
    in_memory = expected[f"grid/{name}"]
    np.testing.assert_allclose(
      expected[f"on_disk/{name}"], in_memory, rtol=1e-6
    )


@pytest.mark.slow
def test_two_processes_each_with_its_clients(population, tmp_path):
  """With two devices each."""
  paths = [tmp_path / f"{i}.npz" for i in range(2)]
  cases = several_devices.OF_PROCESSES
  processes = start_two(paths, population, cases, (2, 2, 1))
  expected = several_devices.results(population, cases=cases)
  for process in processes:
    end(process)
  for path in paths:
    assert_same(path, expected)
  # Of each cohort, of three rounds and two seeds, every process reads half.
  for path in paths:
    assert len(np.load(f"{path}.read.npy")) == 3 * 2 * 4 / 2


@pytest.mark.slow
def test_a_model_over_several_devices(population, tmp_path):
  """With Delta-SGD, SCAFFOLD, Adam and a grid; killed, and resumed on two
  devices for each of two clients, and on one device."""
  paths = [tmp_path / f"{i}.npz" for i in range(3)]
  folders = [tmp_path / str(i) for i in range(2)]
  names = ",".join(several_devices.OF_MODELS)
  for folder in folders:
    shutil.copytree(population, folder)
  divided = start(4, paths[0], folders[0], names, 1, 1, 4)
  cases = (*several_devices.OF_MODELS[:-1], "whole")
  expected = several_devices.results(population, cases=cases)
  of_whole = {n: v for n, v in expected.items() if n.startswith("whole/")}
  end(divided)
  shutil.copytree(f"{folders[0]}-killed", f"{folders[1]}-killed")
  resumed_run = start(4, paths[1], folders[0], "resumed", 2, 1, 2)
  resumed = several_devices.results(folders[1], cases=["resumed"])
  np.savez(paths[2], **resumed)
  end(resumed_run)
  as_resumed = {n.replace("whole", "resumed"): v for n, v in of_whole.items()}
  assert_same(paths[2], as_resumed)
  assert_same(paths[1], as_resumed)
  assert_same(paths[0], {n: expected[n] for n in expected if n not in of_whole})


def test_frozen_leaves_are_put_on_a_mesh():
  devices = np.array(jax.devices()[:1]).reshape(1, 1)
  mesh = Mesh(devices, (sharding.CLIENTS, sharding.GRID))
  leaves = {"by_seed": np.ones((2, 3))}, {"shared": np.ones(3)}
  on_mesh = sharding.Layout(mesh, has_axes=True).put_frozen(leaves)
  for leaf in jax.tree.leaves(on_mesh):
    assert leaf.sharding == jax.NamedSharding(mesh, PartitionSpec())


@pytest.mark.parametrize(
  ("shape", "devices", "spec"),
  [
    ((64, 128), 4, (None, "model")),
    ((128, 64), 4, ("model",)),
    ((64, 64), 4, (None, "model")),  # The last of those of one size.
    ((65, 127, 64), 4, (None, None, "model")),
    ((65, 127), 4, ()),  # None can be divided.
    ((4095,), 3, ()),  # Too small.
    ((4096,), 4, ("model",)),
    ((), 4, ()),
  ],
)
def test_how_a_leaf_is_divided(shape, devices, spec):
  assert sharding.by_size(shape, devices) == PartitionSpec(*spec)


@pytest.mark.parametrize(
  ("spec", "message"),
  [
    ("model", "model_sharding: returned 'model' for '.*bias'; must return a"),
    (PartitionSpec("clients"), r"bias' of shape \[3\]; must name 'model'"),
    (PartitionSpec("model"), "at an axis that 2 devices divide"),
    (PartitionSpec(None, None, "model"), "at an axis that 2 devices divide"),
  ],
)
def test_rules_for_leaves_that_cannot_be(monkeypatch, spec, message):
  monkeypatch.setattr(jax, "devices", lambda: jax.local_devices() * 2)
  algorithm = fed_avg(several_devices.TASK.loss_fn, optax.sgd(0.1))
  simulator = Simulator(
    algorithm, several_devices.TASK.data, batch_size=4, model_devices=2,
    model_sharding=lambda path, _: spec if path.endswith("bias") else None,
  )  # fmt: skip
  with pytest.raises((TypeError, ValueError), match=message):
    simulator.compile(several_devices.TASK.params)


def test_one_device_needs_no_mesh():
  assert sharding.make_mesh(None, None, num_settings=4, cohort_size=3) is None


@pytest.mark.parametrize(
  ("given", "settings", "cohort", "of_model", "shape"),
  [
    ((None, None), 1, 10, 1, (8, 1)),
    ((None, None), 6, 10, 1, (4, 2)),
    ((None, None), 16, 10, 1, (1, 8)),
    ((None, None), 7, 3, 1, (2, 1)),  # More devices than clients.
    ((2, None), 6, 10, 1, (2, 2)),
    ((None, 1), 6, 10, 1, (8, 1)),
    ((2, 2), 6, 10, 1, (2, 2)),
    ((None, None), 6, 10, 4, (1, 2, 4)),
    ((2, None), 6, 10, 4, (2, 1, 4)),
    ((1, 1), 6, 10, 4, (1, 1, 4)),
  ],
)
def test_how_devices_are_divided(
  monkeypatch, given, settings, cohort, of_model, shape
):
  monkeypatch.setattr(jax, "devices", lambda: jax.local_devices() * 8)
  mesh = sharding.make_mesh(*given, settings, cohort, model_devices=of_model)
  assert tuple(mesh.shape.values()) == shape


def mesh(client_devices, grid_devices, processes=1):
  devices = jax.local_devices() * 8
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax, "devices", lambda: devices)
    patch.setattr(jax, "process_count", lambda: processes)
    sharding.make_mesh(client_devices, grid_devices, 6, 10)


test_is_refused = refusals.of_table("meshes.txt", mesh)
