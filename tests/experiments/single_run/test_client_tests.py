"""Clients' own test examples and own models on the command line."""

import dataclasses

import numpy as np
import pytest

from experiments.reference import definition
from experiments.single_run import extra_metrics, loading
from experiments.single_run.job import criterion_of
from experiments.single_run.stopping import Stopping
from experiments.specification import resolve
from experiments.specification.choice_flags import PARTITION
from experiments.studies import planned_cells
from experiments.studies.request import Request
from experiments.tasks import TASKS
from fedjax_opt import ClientData
from tests.helpers.commands import (
  call,
  prepare,
  rows_of,
  spec_of,
  summary_of,
  task_of,
)
from tests.helpers.refusals import refusal

SMALL = ("--task=digits_logistic", "--num_clients=12", "--cohort_size=3")
SHORT = ("--rounds=3", "--client=sgd", "--client_lr=0.1", "--batch_size=8")
DISJOINT = "--partition=dirichlet_disjoint"


def owned_rows(clients):
  return set(clients.owned_rows().tolist())


def test_what_a_run_leaves(tmp_path, capsys, drawn):
  folder = tmp_path / "run"
  status = call(
    *SMALL, *SHORT, DISJOINT, "--seed=3,1", "--client_test_fraction=0.3",
    "--personalize_steps=4", "--heldout_clients=5", f"--output_dir={folder}",
  )  # fmt: skip
  assert status == 0
  summary = summary_of(folder)
  seed = summary["points"][summary["selected"]]["hyperparameters"]["seed"]
  out = capsys.readouterr().out
  for group, number in (("per_client", 12), ("heldout_clients", 5)):
    rows = rows_of(folder / f"{group}.csv")
    assert list(rows[0]) == [
      "client", "num_train", "num_test", "global_accuracy", "global_loss",
      "personalized_accuracy", "personalized_loss",
    ]  # fmt: skip
    assert [row["client"] for row in rows] == list(map(str, range(number)))
    sizes = np.array([int(row["num_test"]) for row in rows])
    total = sizes + [int(row["num_train"]) for row in rows]
    np.testing.assert_array_equal(sizes, np.round(0.3 * total))
    assert set(summary[group]) == {"global", "personalized"}
    for kind, metrics in summary[group].items():
      cells = [row[f"{kind}_accuracy"] for row in rows]
      accuracy = np.array([float(c) for c in cells if c])
      mean = np.average(accuracy, weights=sizes[sizes > 0])
      assert metrics["client_test_accuracy"] == pytest.approx(mean)
      worst = np.sort(accuracy)[: -(-len(accuracy) // 10)].mean()
      decile = metrics["client_test_worst_decile_accuracy"]
      assert decile == pytest.approx(worst)
      assert f"seed {seed}: accuracy {100 * mean:.2f} %, worst" in out
    # Four steps on clients of few classes.
    losses = {k: v["client_test_loss"] for k, v in summary[group].items()}
    assert losses["personalized"] < losses["global"]
  assert "clients that never trained, personalized models" in out
  assert (folder / "per_client.png").read_bytes().startswith(b"\x89PNG")


# What is held out.

PARTITIONS = {
  "dirichlet": "--examples_per_client=5-40",
  "class_q": "--num_clients=10",
}


def divided(task, seeds, *arguments):
  spec = dataclasses.replace(spec_of(*arguments), seed=seeds)
  return loading.clients_and_tests(spec, task)


@pytest.fixture(scope="module")
def digits():
  return TASKS["digits_logistic"].factory()


@pytest.mark.parametrize("partition", PARTITION.registry)
def test_nothing_held_out_is_trained_on(digits, partition):
  number = 10 if partition == "class_q" else 4
  flags = [PARTITIONS[partition]] if partition in PARTITIONS else []
  train, tests = divided(
    digits, [5, 6], f"--partition={partition}", "--num_clients=7",
    *flags, "--client_test_fraction=0.25", f"--heldout_clients={number}",
  )  # fmt: skip
  examples = train[5].examples
  assert list(train) == [5, 6]
  for seed in (5, 6):
    per_client = tests.per_client[seed]
    heldout = tests.heldout_clients[seed]
    assert per_client.train is train[seed]
    assert heldout.train.num_clients == heldout.test.num_clients == number
    assert per_client.test.num_clients == train[seed].num_clients
    parts = (per_client.train, per_client.test, heldout.train, heldout.test)
    assert all(part.examples is examples for part in parts)
    rows = [owned_rows(part) for part in parts]
    assert all(rows)
    assert sum(map(len, rows)) == len(set.union(*rows))
  assert owned_rows(train[5]) != owned_rows(train[6])


def test_a_partition_of_its_own_seed_is_that_of_all_seeds(digits):
  held = ("--num_clients=7", "--client_test_fraction=0.25")
  train, tests = divided(digits, [5, 6], *held, "--partition_seed=3")
  (clients,) = divided(digits, [3], *held)[0].values()
  assert train[5] is train[6]
  assert owned_rows(train[5]) == owned_rows(clients)
  assert tests.per_client[5].train is train[6]


def test_clients_that_come_with_the_data(digits):
  ids = np.arange(len(digits.train["y"])) % 9
  task = digits._replace(clients=ClientData.from_client_ids(digits.train, ids))
  train, tests = divided(task, [0, 1], "--task=lasso", "--heldout_clients=4")
  assert not tests.per_client
  for seed, clients in train.items():
    heldout = tests.heldout_clients[seed]
    assert clients.num_clients == 5
    assert heldout.test.num_clients == 4
    assert heldout.train is None
    assert clients.examples is task.clients.examples
    assert not owned_rows(clients) & owned_rows(heldout.test)
  line = refusal(divided, task, [0], "--task=lasso", "--heldout_clients=9")
  assert line.startswith("heldout_clients=9: there are 9 clients")


def test_the_clients_are_the_same_where_none_are_apart(digits):
  train, _ = divided(digits, [2], *SMALL[1:2], DISJOINT)
  parts, tests = divided(
    digits, [2], *SMALL[1:2], DISJOINT, "--client_test_fraction=0.2"
  )
  together = parts[2].sizes + tests.per_client[2].test.sizes
  np.testing.assert_array_equal(together, train[2].sizes)


@pytest.mark.parametrize("name", ["client_test_fraction", "heldout_clients"])
@pytest.mark.parametrize(
  "other", [{"population_dir": "p"}, {"coordinator": "a:1"}, {"cluster": True}]
)
def test_goes_only_with_one_process_and_memory(name, other):
  spec = dataclasses.replace(spec_of(), user_flags=other, **{name: 2})
  line = refusal(resolve.check_excluded, spec)
  assert line.startswith(f"{name}=2: ")
  assert line.endswith(f"leave {next(iter(other))} out")


# Settings chosen by the models that clients use themselves.


FEW = (
  *("--task=digits_logistic", "--num_clients=10", "--cohort_size=3"),
  *("--local_steps=3", "--batch_size=8", "--rounds=4", "--eval_every=2"),
  *("--partition=dirichlet_disjoint", "--noprogress"),
)
PERSONAL = ("ditto", "fed_per", "fed_rep", "fed_bn", "p_fed_me", "per_fed_avg")
CHOSEN_BY = "client_validation_accuracy"


def last_of(folder, name):
  """The values of a metric after the last round, and the setting and seed."""
  rows = rows_of(folder / "metrics.csv")
  end = max(int(row["round"]) for row in rows)
  last_rows = [row for row in rows if int(row["round"]) == end]
  return np.array([float(row[name]) for row in last_rows])


# What is chosen on.


@pytest.mark.parametrize("name", PERSONAL)
def test_methods_for_own_models_are_chosen_by_these(name):
  spec = spec_of(f"--algorithm={name}")
  assert spec.select_on == "clients"
  assert (spec.validation_fraction, spec.client_test_fraction) == (0.1, 0.2)
  other_spec = spec_of(f"--algorithm={name}", "--select_on=validation")
  assert other_spec.select_on == "validation"


@pytest.mark.parametrize(
  "arguments", [["--task=nonconvex"], ["--cluster"], ["--task=lasso"]]
)
def test_where_clients_have_no_own_examples_the_server_counts(arguments):
  task = [] if arguments[0].startswith("--task") else ["--task=digits"]
  spec = spec_of(*task, *arguments, "--algorithm=ditto", "--client=sgd")
  assert spec.select_on != "clients"
  with pytest.raises(ValueError, match="select_on='clients': "):
    spec_of(*task, *arguments, "--select_on=clients")


def test_no_client_trains_on_what_it_is_chosen_by(tmp_path):
  job = prepare(
    *FEW, "--algorithm=ditto", "--seed=0,1", f"--output_dir={tmp_path}"
  )
  assert str(job.criterion) == f"highest {CHOSEN_BY} (last)"
  assert job.task.validation is None
  assert {CHOSEN_BY, "client_test_loss"} < {*extra_metrics.names_of(job)}
  for seed, train in job.clients.items():
    parts = job.loaded.client_parts.per_client[seed]
    assert parts.train is train
    rows = [owned_rows(part) for part in (train, parts.validation, parts.test)]
    assert all(rows)
    assert len(set.union(*rows)) == sum(map(len, rows)) == 1437
    sizes = np.array(train.sizes) + parts.validation.sizes
    np.testing.assert_array_equal(parts.validation.sizes, np.round(sizes / 10))


def test_a_score_of_own_models_is_refused():
  spec = spec_of(*FEW, "--select_on=clients")
  spec = dataclasses.replace(spec, metrics="f1", select_metric="f1")
  with pytest.raises(ValueError, match="select_metric='f1': "):
    criterion_of(spec, task_of(*FEW))


# Runs.


@pytest.mark.slow
@pytest.mark.parametrize(
  "arguments",
  [
    ["--algorithm=ditto", "--client=sgd"],
    # The server's model is that of each client.
    ["--select_on=clients", "--client_test_fraction=0.2", "--client=sgd"],
  ],
)
def test_a_grid_is_chosen_by_own_models(tmp_path, arguments):
  folder = tmp_path / "run"
  grid = ("--client_lr=0.0001,0.01", "--seed=3,1")
  assert call(*FEW, *arguments, *grid, f"--output_dir={folder}") == 0
  summary = summary_of(folder)
  assert summary["criterion"]["metric"] == CHOSEN_BY
  of_settings = last_of(folder, CHOSEN_BY).reshape(2, 2).mean(axis=1)
  selected = summary["selected"]
  assert selected // 2 == np.argmax(of_settings)
  kind = "global" if arguments[0].startswith("--select") else "personal"
  after = summary["per_client"][kind]["client_test_accuracy"]
  last_accuracy = last_of(folder, "client_test_accuracy")[selected]
  assert last_accuracy == pytest.approx(after, rel=1e-6)


@pytest.mark.slow
def test_a_run_is_chosen_by_clients_that_hold_nothing_out(tmp_path):
  flags = (*FEW, "--client=sgd", "--client_lr=0.01", "--select_on=clients")
  assert call(*flags, f"--output_dir={tmp_path}") == 0
  assert "per_client" not in summary_of(tmp_path)


@pytest.mark.slow
def test_metrics_of_own_models_are_in_checkpoints(tmp_path, monkeypatch):
  flags = (*FEW, "--algorithm=per_fed_avg", "--client_lr=0.01")
  resumed = tmp_path / "resumed"
  flags = (*flags, "--checkpoint_every=2", "--eval_every=2")
  assert call(*flags, "--rounds=6", f"--output_dir={tmp_path / 'whole'}") == 0
  assert call(*flags, "--rounds=4", f"--output_dir={resumed}") == 0
  path = resumed / "metrics.csv"
  content = path.read_bytes()
  # A resumed run may be killed before it has them all again.
  with monkeypatch.context() as patch:
    patch.setattr(Stopping, "is_over", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
      call(*flags, "--rounds=6", f"--output_dir={resumed}", "--resume")
  assert path.read_bytes() == content
  path.unlink()
  assert call(*flags, "--rounds=6", f"--output_dir={resumed}", "--resume") == 0
  whole = tmp_path / "whole" / "metrics.csv"
  assert path.read_bytes() == whole.read_bytes()


# Studies.


def planned(*algorithms, **flags):
  methods = tuple({"algorithm": name, "client": "sgd"} for name in algorithms)
  return planned_cells.plan(Request(methods=methods, flags=flags))


def test_methods_beside_one_for_own_models_are_chosen_as_that_is():
  cells = planned("fed_avg", "ditto")
  assert {cell.spec.select_on for cell in cells} == {"clients"}
  assert {cell.spec.client_test_fraction for cell in cells} == {0.2}
  cells = planned("fed_avg", "ditto", select_on="validation")
  assert {cell.spec.select_on for cell in cells} == {"validation"}
  assert {c.spec.select_on for c in planned("fed_avg", "fed_dyn")} == {
    "validation"
  }


def test_in_a_reference_comparison_the_servers_model_counts():
  field = definition.read("field")
  method = {"algorithm": "ditto", "client": "sgd", "label": "Ditto"}
  method |= {"conditions": "digits-0.05-few"}
  (cell,) = field.cells([method], budget="unequal")
  assert cell.planned.spec.select_on == "validation"
  assert cell.planned.spec.client_test_fraction == 0
