"""Several processes, and clients on disk, from the command line."""

import dataclasses
import inspect

import jax
import numpy as np
import pytest

from experiments import convert, run
from experiments.command_line import flag_words
from experiments.processes import hosts
from experiments.single_run import job
from fedjax_opt import Population
from tests.helpers.commands import (
  call,
  config_of,
  flags_of_line,
  free_address,
  prepare,
  start,
  table,
)
from tests.helpers.refusals import refusal

ARGUMENTS = (
  "--task=digits_logistic",
  "--client=sgd",
  "--client_lr=0.1,1",
  "--cohort_size=4",
  "--rounds=6",
  "--eval_every=3",
  "--noprogress",
)
CLIENTS = ("--num_clients=20", "--alpha=0.5")


def rows_of(folder):
  """[rows, columns] of metrics.csv; an empty cell is NaN."""
  return np.genfromtxt(folder / "metrics.csv", delimiter=",", skip_header=1)


@pytest.mark.slow
def test_two_processes_write_one_folder(tmp_path):
  folder, address = tmp_path / "two", free_address()
  processes = [
    start(
      *ARGUMENTS,
      *CLIENTS,
      f"--coordinator={address}",
      "--num_processes=2",
      f"--process_id={i}",
      "--checkpoint_every=4",
      f"--output_dir={folder}",
    )
    for i in range(2)
  ]
  single_folder = tmp_path / "one"
  assert call(*ARGUMENTS, *CLIENTS, f"--output_dir={single_folder}") == 0
  outputs = [process.communicate(timeout=300) for process in processes]
  assert [p.returncode for p in processes] == [0, 0], outputs
  # Only the first one speaks.
  assert "after round 6" in outputs[0][0]
  assert "after round 6" not in outputs[1][0]
  np.testing.assert_allclose(rows_of(folder), rows_of(single_folder), rtol=2e-6)
  names = sorted(p.name for p in (folder / "checkpoints").iterdir())
  assert names == ["4.npz", "6.npz"]


def test_a_cluster_that_is_none(tmp_path, error_of):
  folder = tmp_path / "run"
  error = error_of("--cluster", f"--output_dir={folder}")
  assert error.startswith("--cluster: no processes to join (")
  assert not folder.exists()


def test_it_listens_on_the_given_address_alone(monkeypatch):
  """And a death is noticed in seconds, not in minutes."""
  started = {}
  parameters = set(inspect.signature(jax.distributed.initialize).parameters)
  monkeypatch.setattr(jax.distributed, "initialize", started.update)
  address = ("--coordinator=10.0.0.1:12", "--num_processes=2", "--process_id=0")
  hosts.join(flags_of_line(*address))
  assert started["coordinator_bind_address"] == "10.0.0.1:12"
  assert started["heartbeat_timeout_seconds"] <= 25
  # The first one may still write files.
  assert "shutdown_timeout_seconds" not in started
  assert set(started) <= parameters


@pytest.fixture(scope="module")
def population(tmp_path_factory):
  folder = tmp_path_factory.mktemp("clients") / "clients"
  arguments = ("--task=digits_logistic", *CLIENTS)
  flag = f"--population_dir={folder}"
  assert call(*arguments, flag, program=convert) == 0
  return folder


@pytest.mark.slow
def test_clients_on_disk_give_the_same_run(population, tmp_path):
  flag = f"--population_dir={population}"
  assert call(*ARGUMENTS, flag, f"--output_dir={tmp_path / 'disk'}") == 0
  assert call(*ARGUMENTS, *CLIENTS, f"--output_dir={tmp_path / 'one'}") == 0
  disk_rows, other_rows = rows_of(tmp_path / "disk"), rows_of(tmp_path / "one")
  np.testing.assert_allclose(disk_rows, other_rows, rtol=2e-6)
  assert (tmp_path / "disk" / "clients.png").exists()
  config = config_of(tmp_path / "disk")
  assert config["population_dir"] == str(population)
  assert "partition" not in config


def test_a_run_parses_and_loads_once(population, tmp_path, monkeypatch):
  calls = []
  for owner, name in (
    (flag_words, "read"),
    (run, "resolve"),
    (job, "load_data"),
    (Population, "open"),
  ):
    real = getattr(owner, name)
    counted = lambda *arguments, name=name, real=real: (
      calls.append(name) or real(*arguments)
    )
    monkeypatch.setattr(owner, name, counted)
  words = (*ARGUMENTS[:-3], "--rounds=0", f"--population_dir={population}")
  assert call(*words, f"--output_dir={tmp_path / 'run'}") == 0
  assert sorted(calls) == ["load_data", "open", "read", "resolve"]


@pytest.mark.parametrize(("arguments", "message"), table("populations"))
def test_populations_that_do_not_fit(population, arguments, message):
  words = (f"--population_dir={population}", *arguments.split())
  line = refusal(prepare, "--task=digits_logistic", *words)
  assert line.startswith(message.format(folder=population))


def test_labels_of_another_task(population, tmp_path):
  data = Population.open(population).load()
  labels = data.examples["y"] + 5
  folder = tmp_path / "others"
  Population.of_client_data(
    folder, dataclasses.replace(data, examples=data.examples | {"y": labels})
  )
  line = refusal(
    prepare, "--task=digits_logistic", f"--population_dir={folder}"
  )
  assert line.endswith("y must be in [0, 10), but one is 14")
