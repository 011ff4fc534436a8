"""Cells made of runs that are there, beside those that a study plans."""

import pytest

from experiments.studies import existing_runs
from fedjax_opt.results.load import Run
from tests.helpers.histories import of_values
from tests.helpers.plans import (
  DELTA,
  FED_AVG,
  RATES,
  SCAFFOLD,
  asked,
  planned,
)  # fmt: skip
from tests.helpers.refusals import refusal


@pytest.fixture
def beside_runs(monkeypatch, tmp_path):
  """Plans a study beside runs of which only the flags are of interest."""

  def plan(flags_of_runs, *arguments, limits=None):
    (tmp_path / "flags.txt").touch()
    summary = {
      "timing": {"compile_seconds": 0, "run_seconds": 0},
      "criterion": {"metric": "validation_loss", "direction": "min"},
    }
    history = of_values(validation_loss=[[0.2, 0.1]])
    runs = [
      Run(tmp_path, cell.spec.values() | limit, [{"seed": 0}], history, summary,
          None, None, True)
      for flags, limit in zip(flags_of_runs, limits or [{}] * 9, strict=False)
      for cell in planned(*flags)
    ]  # fmt: skip
    monkeypatch.setattr(existing_runs, "load_runs", lambda folders: runs)
    return existing_runs.planned_and_existing(asked("--runs=a", *arguments))

  return plan


@pytest.mark.parametrize("rates", ["--client_lr=0.1", RATES])
def test_a_method_that_ran_is_refused_without_a_label(beside_runs, rates):
  """Or one of the two would be in no table."""
  runs = [(FED_AVG, DELTA, "--client_lr=0.1")]
  line = refusal(beside_runs, runs, FED_AVG, rates)
  assert line.endswith(
    "has the label 'FedAvg, SGD' too; give the method a label=NAME of its own"
  )
  new, old = beside_runs(runs, f"{FED_AVG} label=Mine", rates)
  labels = [cell.method for cell in (*new, *old)]
  assert labels == ["Mine", "FedAvg, SGD", "FedAvg, Δ-SGD"]
  taken = f"{FED_AVG} label='FedAvg, Δ-SGD'"
  line = refusal(beside_runs, runs, taken, rates)
  assert "has the label 'FedAvg, Δ-SGD' too" in line


@pytest.mark.parametrize(
  ("of_run", "of_method", "labels"),
  [
    ("fed_avg client=delta_sgd", "fed_avg client=sgd",
     ["FedAvg, Δ-SGD", "FedAvg, SGD"]),
    ("fed_prox client=sgd mu=0.1", "fed_prox client=sgd mu=1",
     ["FedProx (μ 0.1)", "FedProx, SGD"]),
    # The same method under two conditions.
    ("fed_avg client=sgd client_lr=0.1", "fed_avg client=sgd client_lr=0.1,1",
     ["FedAvg, SGD"] * 2),
    ("fed_avg client=sgd", "fed_avg client=sgd label=Mine",
     ["FedAvg", "Mine"]),
  ],
)  # fmt: skip
def test_a_run_has_the_label_of_a_method_if_it_is_one_of_it(
  beside_runs, of_run, of_method, labels
):
  runs, method = [(f"--method={of_run}",)], f"--method={of_method}"
  (new,), (old,) = beside_runs(runs, method, "--alpha=1")
  assert [old.method, new.method] == labels
  assert [old.condition, new.condition] == [{"alpha": 0.1}, {"alpha": 1.0}]


@pytest.mark.parametrize(
  ("flags", "condition"),
  [
    (("--system=constant", "--max_time=9"), {"system": "constant"}),
    (("--partition=iid",), {"partition": "iid"}),
    (("--local_steps=3",), {"local_steps": 3}),
    (("--client_dropout=0.1",), {"client_dropout": 0.1}),
  ],
)
def test_a_run_and_a_method_differ_in_flags_that_only_one_has(
  beside_runs, flags, condition
):
  """Whichever of them has the flag."""
  for of_run, of_method in ((flags, ()), ((), flags)):
    cells = beside_runs([(DELTA, *of_run)], FED_AVG, *of_method)
    conditions = [cell.condition for (cell,) in cells]
    assert conditions[0] != conditions[1]
    assert condition.items() <= conditions[not of_method].items()


def test_a_batch_that_clients_limit_is_no_condition(beside_runs):
  """Runs of more clients have smaller ones, which told nothing apart."""
  runs = [(FED_AVG, "--num_clients=100"), (FED_AVG, "--num_clients=50")]
  limits = [
    {"batch_size": size, "limited_defaults": ["batch_size"]}
    for size in (13, 26)
  ]
  new, old = beside_runs(runs, SCAFFOLD, "--num_clients=100,50", limits=limits)
  expected = [{"num_clients": 100}, {"num_clients": 50}]
  assert [cell.condition for cell in new] == expected
  assert [cell.condition for cell in old] == expected


def test_a_cohort_that_is_known_with_the_data_is_no_condition(beside_runs):
  runs = [(FED_AVG, "--num_clients=4", "--cohort_size=4")]
  (new,), (old,) = beside_runs(runs, "--method=prox_skip", "--num_clients=4")
  assert new.spec.cohort_size is None
  assert new.condition == old.condition == {}
