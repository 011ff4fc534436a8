"""What a study is asked to be, and the cells that it plans."""

import pathlib

import numpy as np
import pytest

import fedjax_opt as fo
from experiments import compare
from experiments.command_line.flag_words import arguments
from experiments.stored import store
from experiments.studies import planned_cells
from tests.helpers import refusals
from tests.helpers.plans import (
  DELTA,
  FED_AVG,
  RATES,
  SCAFFOLD,
  asked,
  by_method,
  planned,
)  # fmt: skip
from tests.helpers.refusals import refusal


def test_methods_times_conditions():
  cells = planned(
    FED_AVG, SCAFFOLD, RATES, "--alpha=1,0.1", "--local_steps=2,4", "--seed=3,4"
  )
  assert len(cells) == 2 * 4
  assert list(by_method(cells)) == ["FedAvg, SGD", "SCAFFOLD"]
  assert [cell.condition for cell in cells[:4]] == [
    {"alpha": alpha, "local_steps": steps}
    for alpha in (1, 0.1)
    for steps in (2, 4)
  ]
  assert cells[0].grid == {"client_lr": [0.1, 1.0]}
  assert cells[0].spec.seed == [3, 4]
  assert cells[0].design.report_seeds == list(range(5, 15))
  assert {"--alpha=1.0", "--client_lr=0.1,1"} <= set(arguments(cells[0].spec))
  report = arguments(cells[0].spec.at({"client_lr": 0.1}, [5, 6]))
  assert {"--client_lr=0.1", "--seed=5,6", "--local_steps=2"} <= set(report)
  assert len({store.run_name(cell.spec) for cell in cells}) == len(cells)


def test_availabilities_and_their_numbers_make_conditions():
  numbers = ("--availability_period=10,20", "--availability_share=0.5")
  cells = planned(DELTA, "--system=constant", "--availability=cyclic", *numbers)
  periods = [cell.condition for cell in cells]
  assert periods == [{"availability_period": 10}, {"availability_period": 20}]
  cells = planned(DELTA, "--system=constant", "--availability=cyclic,markov")
  kinds = [cell.condition for cell in cells]
  assert kinds == [{"availability": "cyclic"}, {"availability": "markov"}]


def test_a_kill_before_the_folder_was_marked_is_no_obstacle(tmp_path):
  (tmp_path / "study.json.tmp").touch()
  asks = asked(SCAFFOLD, f"--output_dir={tmp_path}")
  assert compare._folder(asks) == tmp_path


def test_a_study_of_too_many_cells_is_refused_before_they_are_made():
  numbers = ",".join(map(str, range(1, 72)))
  line = refusal(
    planned, FED_AVG, SCAFFOLD, f"--alpha={numbers}", f"--local_steps={numbers}"
  )
  assert line.endswith("would have 10,082 cells; must have at most 10,000")


def test_shared_flags_go_to_the_methods_that_have_them():
  cells = by_method(planned(FED_AVG, SCAFFOLD, DELTA, RATES, "--gamma=1"))
  assert "client_lr" not in cells["FedAvg, Δ-SGD"][0].spec.user_flags
  assert cells["FedAvg, Δ-SGD"][0].grid == {}
  assert cells["FedAvg, Δ-SGD"][0].spec.user_flags["gamma"] == "1"
  assert "gamma" not in cells["SCAFFOLD"][0].spec.user_flags
  # The clients' rule of all methods, where they can have one.
  cells = by_method(planned("--method=fed_avg", SCAFFOLD, "--client=adam"))
  assert cells["FedAvg"][0].spec.user_flags["client"] == "adam"
  assert "client" not in cells["SCAFFOLD"][0].spec.user_flags


def test_shared_switches_go_to_the_methods_that_can_have_them():
  cells = by_method(planned(SCAFFOLD, DELTA, "--trace"))
  assert "trace" not in cells["SCAFFOLD"][0].spec.user_flags
  assert cells["FedAvg, Δ-SGD"][0].spec.user_flags["trace"] is True
  cells = by_method(planned(SCAFFOLD, DELTA, "--client_schedule=step_decay"))
  assert "client_schedule" in cells["SCAFFOLD"][0].spec.user_flags
  assert "client_schedule" not in cells["FedAvg, Δ-SGD"][0].spec.user_flags


def test_a_method_s_own_flags_come_first():
  method = "--method=scaffold client_lr=0.5,5 local_steps=1 l2=0.1 label=S"
  cells = by_method(planned(FED_AVG, method, RATES, "--local_steps=4"))
  assert cells["S"][0].grid == {"client_lr": [0.5, 5.0]}
  assert cells["FedAvg, SGD"][0].grid == {"client_lr": [0.1, 1.0]}
  assert cells["S"][0].spec.local_steps == 1
  assert cells["FedAvg, SGD"][0].spec.local_steps == 4


def test_clients_on_disk_have_the_validation_examples_that_they_have(tmp_path):
  """A method with models of its own asks for no others."""
  examples = {"x": np.zeros((4, 8, 8, 1), np.uint8), "y": np.arange(4)}
  fo.Population.write(tmp_path / "all", [examples] * 12)
  flags = ("--task=digits_logistic", f"--population_dir={tmp_path / 'all'}")
  cells = planned(*flags, FED_AVG, "--method=ditto client=sgd", RATES)
  assert {cell.spec.select_on for cell in cells} == {"train"}


@pytest.mark.parametrize("tasks", ["digits_logistic,lasso", "lasso,digits"])
def test_defaults_for_own_models_are_of_each_condition(tasks):
  ditto = "--method=ditto client=sgd"
  cells = planned(f"--task={tasks}", FED_AVG, ditto, RATES)
  of_task = {}
  for cell in cells:
    name = cell.condition["task"]
    of_task.setdefault(name, set()).add(cell.spec.select_on)
  assert of_task.pop("lasso") == {"validation"}
  assert [*of_task.values()] == [{"clients"}]


def test_cells_are_told_by_all_their_flags():
  base = (SCAFFOLD, RATES)
  name = lambda *flags: store.run_name(planned(*base, *flags)[0].spec)
  base_name = name()
  assert name() == base_name
  assert base_name.startswith("digits-scaffold-sgd-")
  for other in ("--rounds=7", "--batch_size=3", "--l2=1"):
    assert name(other) != base_name
  # What a default is need not be said; its tuning is the same.
  for other in ("--compilation_cache=none", "--rounds=100", "--report_seeds=9"):
    assert name(other) == base_name


def test_a_study_file_says_the_same():
  file = pathlib.Path(__file__).with_name("study.toml")
  of_file = planned_cells.plan(asked(f"--study={file}"))
  of_line = planned(
    FED_AVG, "--method=scaffold server_lr=0.5", "--seed=0,1", "--alpha=1.0,0.1",
    "--rounds=20", RATES, "--report_seeds=3",
  )  # fmt: skip
  assert of_file == of_line
  assert asked(f"--study={file}").title == "Two methods"
  # The command line replaces what the file says.
  shorter = planned_cells.plan(asked(f"--study={file}", "--rounds=5"))
  assert {cell.spec.user_flags["rounds"] for cell in shorter} == {5}


def test_no_method_tries_more_settings_unless_that_is_asked_for():
  more = "--method=scaffold client_lr=0.1,1,10"
  with pytest.raises(ValueError, match="budget: methods try different"):
    planned(FED_AVG, more, RATES)
  assert len(planned(FED_AVG, more, RATES, "--budget=unequal")) == 2
  # Nor is one refused that has nothing to tune.
  assert len(planned(FED_AVG, DELTA, RATES)) == 2


def study(text):
  read = lambda file: planned(f"--study={file}")
  return refusals.of_file(read, "study.toml", text)


test_is_refused = refusals.of_table("study_files.txt", study)


def test_a_nested_cell_runs_its_grid_with_the_seeds_of_the_report():
  seeds = ("--seed=0,4,2", "--report_seeds=2")
  (cell,) = planned(FED_AVG, RATES, *seeds, "--nested")
  assert cell.first_run.seed == [5, 6]
  assert cell.first_run.grid["client_lr"] == [0.1, 1.0]


def test_crossed_seeds_are_fresh_and_each_partition_is_a_run():
  (plain,) = planned(FED_AVG, RATES, "--report_seeds=2")
  crossed = lambda cell: (
    cell.design.partition_seeds,
    cell.design.crossed_seeds,
  )
  assert crossed(plain) == ([], [])
  (cell,) = planned(FED_AVG, RATES, "--report_seeds=2", "--crossed=3")
  assert crossed(cell) == ([3, 4, 5], [6, 7, 8])
  spec = cell.spec.crossed(4, cell.design.crossed_seeds)
  assert (spec.partition_seed, spec.seed) == (4, [6, 7, 8])
  assert spec.grid == cell.spec.grid
  assert spec.values()["partition_seed"] == 4
  for fixed in (0, 3):
    line = refusal(planned, FED_AVG, RATES, "--crossed=3",
                   f"--partition_seed={fixed}")  # fmt: skip
    assert "crossed=3: needs a partition that the seed draws" in line
