"""Settings chosen by the models that clients use themselves."""

import csv
import dataclasses
import json

import numpy as np
import pytest

from experiments import compare
from experiments.data import criterion_of
from experiments.reference import plans
from experiments.studies import plan
from experiments.studies.request import Request
from tests.experiments.commands import call, prepare, spec_of, task_of

SMALL = (
  *("--task=digits_logistic", "--num_clients=10", "--cohort_size=3"),
  *("--local_steps=3", "--batch_size=8", "--rounds=4", "--eval_every=2"),
  *("--partition=dirichlet_disjoint", "--noprogress"),
)
PERSONAL = ("ditto", "fed_per", "fed_rep", "fed_bn", "p_fed_me", "per_fed_avg")
CHOSEN_BY = "client_validation_accuracy"


def last_of(folder, name):
  """The values of a metric after the last round, and the setting and seed."""
  with open(folder / "metrics.csv", newline="") as file:
    rows = list(csv.DictReader(file))
  end = max(int(row["round"]) for row in rows)
  last = [row for row in rows if int(row["round"]) == end]
  return np.array([float(row[name]) for row in last])


def summary_of(folder):
  return json.loads((folder / "summary.json").read_text())


# What is chosen on.


@pytest.mark.parametrize("name", PERSONAL)
def test_methods_for_own_models_are_chosen_by_these(name):
  spec = spec_of(f"--algorithm={name}")
  assert spec.select_on == "clients"
  assert (spec.validation_fraction, spec.client_test_fraction) == (0.1, 0.2)
  given = spec_of(f"--algorithm={name}", "--select_on=validation")
  assert given.select_on == "validation"


def test_others_are_not():
  assert spec_of("--algorithm=moon").select_on == "validation"
  assert spec_of("--select_on=clients").select_on == "clients"


@pytest.mark.parametrize(
  "arguments", [["--task=nonconvex"], ["--cluster"], ["--task=lasso"]]
)
def test_where_clients_have_no_examples_of_their_own_the_server_counts(
  arguments,
):
  task = [] if arguments[0].startswith("--task") else ["--task=digits"]
  spec = spec_of(*task, *arguments, "--algorithm=ditto", "--client=sgd")
  assert spec.select_on != "clients"
  with pytest.raises(ValueError, match="select_on='clients': "):
    spec_of(*task, *arguments, "--select_on=clients")


def test_no_client_trains_on_what_it_is_chosen_by(tmp_path):
  found = prepare(
    *SMALL, "--algorithm=ditto", "--seed=0,1", f"--output_dir={tmp_path}"
  )
  assert str(found.criterion) == f"highest {CHOSEN_BY} (last)"
  assert found.task.validation is None
  for seed, train in found.data.items():
    parts = found.loaded.held_out.per_client[seed]
    assert parts.train is train
    rows = [
      set(part.owned_rows().tolist())
      for part in (train, parts.validation, parts.test)
    ]
    assert all(rows)
    assert len(set.union(*rows)) == sum(map(len, rows)) == 1437
    sizes = np.array(train.sizes) + parts.validation.sizes
    np.testing.assert_array_equal(parts.validation.sizes, np.round(sizes / 10))


def test_a_score_of_own_models_is_refused():
  spec = spec_of(*SMALL, "--select_on=clients")
  spec = dataclasses.replace(spec, metrics="f1", select_metric="f1")
  with pytest.raises(ValueError, match="select_metric='f1': "):
    criterion_of(spec, task_of(*SMALL))


# Runs.


@pytest.mark.parametrize(
  "arguments",
  [
    ["--algorithm=ditto", "--client=sgd"],
    ["--algorithm=per_fed_avg", "--inner_learning_rate=0.001"],
    # The server's model is that of each client.
    ["--select_on=clients", "--client_test_fraction=0.2", "--client=sgd"],
  ],
)
def test_a_grid_is_chosen_by_own_models(tmp_path, arguments):
  folder = tmp_path / "run"
  grid = ("--client_lr=0.0001,0.01", "--seed=3,1")
  assert call(*SMALL, *arguments, *grid, f"--output_dir={folder}") == 0
  summary = summary_of(folder)
  assert summary["criterion"]["metric"] == CHOSEN_BY
  of_settings = last_of(folder, CHOSEN_BY).reshape(2, 2).mean(axis=1)
  selected = summary["selected"]
  assert selected // 2 == np.argmax(of_settings)
  kind = "global" if arguments[0].startswith("--select") else "personal"
  after = summary["per_client"][kind]["client_test_accuracy"]
  found = last_of(folder, "client_test_accuracy")[selected]
  assert found == pytest.approx(after, rel=1e-6)


def test_a_resumed_run_has_what_was_measured_before(tmp_path):
  own = ("--algorithm=ditto", "--client=sgd", "--client_lr=0.01,0.1")
  for folder, rounds in (("whole", [8]), ("parts", [4, 8])):
    for number in rounds:
      place = tmp_path / folder
      arguments = (f"--rounds={number}", f"--output_dir={place}", "--resume")
      assert call(*SMALL, *own, "--checkpoint_every=4", *arguments) == 0
  whole, parts = (
    (tmp_path / name / "metrics.csv").read_text() for name in ("whole", "parts")
  )
  assert whole == parts
  assert CHOSEN_BY in whole


def test_a_target_is_one_of_own_models(tmp_path):
  folder = tmp_path / "run"
  target = ("--target_accuracy=0.05", f"--output_dir={folder}")
  assert call(*SMALL, "--algorithm=ditto", "--client=sgd", *target) == 0
  assert summary_of(folder)["target"]["metric"] == CHOSEN_BY


# Studies.


def planned(*algorithms, **flags):
  methods = tuple({"algorithm": name, "client": "sgd"} for name in algorithms)
  return plan.plan(Request(methods=methods, flags=flags))


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
  field = plans.read("field")
  method = {"algorithm": "ditto", "client": "sgd", "label": "Ditto"}
  method |= {"conditions": "digits-0.05-few"}
  (cell,) = field.places([method], budget="unequal")
  assert cell.planned.spec.select_on == "validation"


def test_a_study_compares_own_models(tmp_path, capsys):
  arguments = [each for each in SMALL if each != "--noprogress"]
  status = call(
    "--method=fed_avg client=sgd",
    "--method=ditto client=sgd",
    *arguments,
    *("--client_lr=0.001,0.01", "--seed=0", "--report_seeds=2"),
    f"--output_dir={tmp_path}",
    program=compare,
  )
  assert status == 0
  assert "Client test accuracy (%)" in capsys.readouterr().out
  report = (tmp_path / "report.html").read_text()
  assert "Each client is measured on its own validation examples" in report
