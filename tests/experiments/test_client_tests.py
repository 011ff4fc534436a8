"""Clients' own test examples on the command line."""

import csv
import dataclasses
import json

import numpy as np
import pytest

from experiments import data
from experiments.specification import resolve
from experiments.specification.kinds import PARTITION
from experiments.tasks import TASKS
from fedjax_opt import ClientData
from tests.experiments.commands import call, spec_of

SMALL = ("--task=digits_logistic", "--num_clients=12", "--cohort_size=3")
SHORT = ("--rounds=3", "--client=sgd", "--client_lr=0.1", "--batch_size=8")
DISJOINT = "--partition=dirichlet_disjoint"


def rows_of(clients):
  owned = np.arange(clients.max_size) < np.asarray(clients.sizes)[:, None]
  return set(np.asarray(clients.indices)[owned].tolist())


def read(path):
  with open(path, newline="") as file:
    return list(csv.DictReader(file))


def test_what_a_run_leaves(tmp_path, capsys, drawn):
  folder = tmp_path / "run"
  status = call(
    *SMALL, *SHORT, DISJOINT, "--seed=3,1", "--client_test_fraction=0.3",
    "--personalize_steps=4", "--heldout_clients=5", f"--output_dir={folder}",
  )  # fmt: skip
  assert status == 0
  summary = json.loads((folder / "summary.json").read_text())
  seed = summary["points"][summary["selected"]]["hyperparameters"]["seed"]
  out = capsys.readouterr().out
  for group, number in (("per_client", 12), ("heldout_clients", 5)):
    rows = read(folder / f"{group}.csv")
    assert list(rows[0]) == [
      "client", "num_train", "num_test", "global_accuracy", "global_loss",
      "personalized_accuracy", "personalized_loss",
    ]  # fmt: skip
    assert [row["client"] for row in rows] == list(map(str, range(number)))
    sizes = np.array([int(row["num_test"]) for row in rows])
    total = sizes + [int(row["num_train"]) for row in rows]
    np.testing.assert_array_equal(sizes, np.round(0.3 * total))
    assert set(summary[group]) == {"global", "personalized"}
    for kind, found in summary[group].items():
      cells = [row[f"{kind}_accuracy"] for row in rows]
      accuracy = np.array([float(c) for c in cells if c])
      mean = np.average(accuracy, weights=sizes[sizes > 0])
      assert found["client_test_accuracy"] == pytest.approx(mean)
      worst = np.sort(accuracy)[: -(-len(accuracy) // 10)].mean()
      shown = found["client_test_worst_decile_accuracy"]
      assert shown == pytest.approx(worst)
      assert f"seed {seed}: accuracy {100 * mean:.2f} %, worst" in out
    # Four steps on clients of few classes.
    losses = {k: v["client_test_loss"] for k, v in summary[group].items()}
    assert losses["personalized"] < losses["global"]
  assert "clients that never trained, personalized models" in out
  assert (folder / "per_client.png").read_bytes().startswith(b"\x89PNG")


def test_clients_own_models(tmp_path):
  folder = tmp_path / "run"
  status = call(
    *SHORT, "--task=digits", "--num_clients=12", "--cohort_size=3",
    "--algorithm=moon", "--client_test_fraction=0.2", "--heldout_clients=2",
    "--upload=sign", "--error_feedback", f"--output_dir={folder}",
  )  # fmt: skip
  assert status == 0
  summary = json.loads((folder / "summary.json").read_text())
  assert list(summary["per_client"]) == ["global", "personal"]
  cost = summary["cost"]
  assert cost["bytes_up_per_round"] < cost["bytes_down_per_round"] / 30
  assert list(summary["heldout_clients"]) == ["global"]
  columns = list(read(folder / "heldout_clients.csv")[0])
  assert columns[3:] == ["global_accuracy", "global_loss"]


def test_algorithms_with_personal_models_hold_out_a_share_by_default():
  assert spec_of().client_test_fraction is None
  personal = spec_of("--algorithm=fed_per", "--personal=output/bias")
  assert personal.client_test_fraction == 0.2


# What is held out.

PARTITIONS = {
  "dirichlet": "--examples_per_client=5-40",
  "class_q": "--num_clients=10",
}


def divided(task, seeds, *arguments):
  return data.divide(spec_of(*arguments), task, seeds)


@pytest.fixture(scope="module")
def digits():
  return TASKS["digits_logistic"].factory()


@pytest.mark.parametrize("partition", PARTITION.registry)
def test_nothing_held_out_is_trained_on(digits, partition):
  number = 10 if partition == "class_q" else 4
  others = [PARTITIONS[partition]] if partition in PARTITIONS else []
  train, held_out = divided(
    digits, [5, 6], f"--partition={partition}", "--num_clients=7",
    *others, "--client_test_fraction=0.25", f"--heldout_clients={number}",
  )  # fmt: skip
  examples = train[5].examples
  assert list(train) == [5, 6]
  for seed in (5, 6):
    own = held_out.per_client[seed]
    new = held_out.heldout_clients[seed]
    assert own.train is train[seed]
    assert new.train.num_clients == new.test.num_clients == number
    assert own.test.num_clients == train[seed].num_clients
    parts = (own.train, own.test, new.train, new.test)
    assert all(part.examples is examples for part in parts)
    rows = [rows_of(part) for part in parts]
    assert all(rows)
    assert sum(map(len, rows)) == len(set.union(*rows))
  assert rows_of(train[5]) != rows_of(train[6])


def test_a_partition_of_its_own_seed_is_that_of_all_seeds(digits):
  held = ("--num_clients=7", "--client_test_fraction=0.25")
  train, held_out = divided(digits, [5, 6], *held, "--partition_seed=3")
  (alone,) = divided(digits, [3], *held)[0].values()
  assert train[5] is train[6]
  assert rows_of(train[5]) == rows_of(alone)
  assert held_out.per_client[5].train is train[6]


def test_clients_that_come_with_the_data(digits):
  ids = np.arange(len(digits.train["y"])) % 9
  task = digits._replace(clients=ClientData.from_client_ids(digits.train, ids))
  train, held_out = divided(task, [0, 1], "--task=lasso", "--heldout_clients=4")
  assert not held_out.per_client
  for seed, own in train.items():
    new = held_out.heldout_clients[seed]
    assert own.num_clients == 5
    assert new.test.num_clients == 4
    assert new.train is None
    assert own.examples is task.clients.examples
    assert not rows_of(own) & rows_of(new.test)
  with pytest.raises(
    ValueError, match="heldout_clients=9: there are 9 clients"
  ):
    divided(task, [0], "--task=lasso", "--heldout_clients=9")


def test_the_clients_are_the_same_where_none_are_apart(digits):
  train, _ = divided(digits, [2], *SMALL[1:2], DISJOINT)
  parts, held_out = divided(
    digits, [2], *SMALL[1:2], DISJOINT, "--client_test_fraction=0.2"
  )
  together = parts[2].sizes + held_out.per_client[2].test.sizes
  np.testing.assert_array_equal(together, train[2].sizes)


@pytest.mark.parametrize("name", ["client_test_fraction", "heldout_clients"])
@pytest.mark.parametrize(
  "other", [{"population_dir": "p"}, {"coordinator": "a:1"}, {"cluster": True}]
)
def test_goes_only_with_one_process_and_memory(name, other):
  spec = dataclasses.replace(spec_of(), given=other, **{name: 2})
  with pytest.raises(
    ValueError, match=f"^{name}=2: .*leave {next(iter(other))} out$"
  ):
    resolve.check_excluded(spec)
