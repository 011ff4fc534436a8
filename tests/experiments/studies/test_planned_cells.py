"""What a study is asked to be, and the cells that it plans."""

import pathlib
import shlex
import types

import numpy as np
import pytest

import fedjax_opt as fo
from experiments import compare
from experiments.command_line.flag_words import arguments
from experiments.studies import (
  cell_runs,
  existing_runs,
  planned_cells,
  request,
  seeds_needed,
  store,
)
from fedjax_opt.results.load import Run
from tests.helpers import refusals
from tests.helpers.histories import of_values
from tests.helpers.refusals import refusal

FED_AVG, SCAFFOLD = "--method=fed_avg client=sgd", "--method=scaffold"
DELTA = "--method=fed_avg client=delta_sgd"
RATES = "--client_lr=0.1,1"


def asked(*arguments):
  return request.read_request(["compare", *arguments], "intro")


def planned(*arguments):
  return planned_cells.plan(asked(*arguments))


def by_method(cells):
  groups = {}
  for cell in cells:
    groups.setdefault(cell.method, []).append(cell)
  return groups


@pytest.fixture
def beside_runs(monkeypatch, tmp_path):
  """Plans a study beside runs of which only the flags are of interest."""

  def plan(flags_of_runs, *arguments):
    (tmp_path / "flags.txt").touch()
    summary = {
      "timing": {"compile_seconds": 0, "run_seconds": 0},
      "criterion": {"metric": "validation_loss", "direction": "min"},
    }
    history = of_values(validation_loss=[[0.2, 0.1]])
    runs = [
      Run(tmp_path, cell.spec.values(), [{"seed": 0}], history, summary, None,
          None, True)
      for flags in flags_of_runs
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


def test_a_cohort_that_is_known_with_the_data_is_no_condition(beside_runs):
  runs = [(FED_AVG, "--num_clients=4", "--cohort_size=4")]
  (new,), (old,) = beside_runs(runs, "--method=prox_skip", "--num_clients=4")
  assert new.spec.cohort_size is None
  assert new.condition == old.condition == {}


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


def test_labels_say_what_differs():
  cells = planned(
    "--method=fed_prox client=sgd mu=0.1",
    "--method=fed_prox client=sgd mu=1",
    "--method=fed_prox client=sgdm",
  )
  assert list(by_method(cells)) == [
    "FedProx, SGD (μ 0.1)", "FedProx, SGD (μ 1)", "FedProx, SGDM",
  ]  # fmt: skip
  # A rule that nobody chose, unless it is what one expects.
  usual = ("--method=fed_avg", "--method=scaffold", "--method=fed_exp")
  assert list(by_method(planned(*usual))) == [
    "FedAvg, Δ-SGD", "SCAFFOLD", "FedExP",
  ]  # fmt: skip


def test_labels_say_what_another_method_changes_of_what_all_have():
  usual = ("--client=sgd", "--upload=quantize", "--client_lr=0.1")
  methods = ("--method=fed_avg upload=sign", "--method=fed_avg", SCAFFOLD)
  cells = planned(*usual, *methods)
  assert list(by_method(cells)) == [
    "FedAvg (upload sign)", "FedAvg (upload quantize)", "SCAFFOLD",
  ]  # fmt: skip
  assert planned_cells.difference_notes(cells) == [
    "Methods differ in upload: sign for FedAvg (upload sign); quantize for "
    "FedAvg (upload quantize) and SCAFFOLD."
  ]
  # A rule of the server is no rule of the clients.
  methods = ("--method=fed_avg client=adam", "--method=fed_avg server=adam")
  cells = planned("--client=sgd", "--server=sgdm", *methods, SCAFFOLD)
  assert list(by_method(cells)) == [
    "FedAvg, Adam, server SGDM", "FedAvg, SGD, server Adam", "SCAFFOLD",
  ]  # fmt: skip


def test_the_numbers_of_privacy_are_of_the_methods_that_have_it():
  private = "--method=fed_avg client=sgd privacy=gaussian label=private"
  shared = ("--weighting=uniform", "--dp_noise_multiplier=0.5,1", RATES)
  flags = ("--dp_delta=1e-3", "--budget=unequal")
  private_cell, plain_cell = planned(private, FED_AVG, *shared, *flags)
  assert private_cell.grid["dp_noise_multiplier"] == [0.5, 1.0]
  assert private_cell.spec.dp_delta == 1e-3
  assert set(plain_cell.grid) == {"client_lr"}
  (alone,) = planned("--privacy=gaussian", FED_AVG, *shared)
  assert set(alone.grid) == {"client_lr", "dp_noise_multiplier"}
  assert planned_cells.privacy_notes([alone]) == []
  seeded = planned(private, FED_AVG, *shared, *flags, "--dp_seed=0")
  assert [cell.spec.dp_seed for cell in seeded] == [0, None]
  (line,) = planned_cells.privacy_notes(seeded)
  assert line.startswith("NOT private: private, whose noise comes from dp_seed")
  run = types.SimpleNamespace(config={"dp_seed": 3})
  old = types.SimpleNamespace(
    method="old", parts=[types.SimpleNamespace(run=run)]
  )
  (line,) = planned_cells.privacy_notes([plain_cell], [old])
  assert line.startswith("NOT private: old, whose noise")


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


@pytest.mark.parametrize("label", ['"My method"', "'My method'"])
def test_a_label_with_spaces_is_quoted(label):
  (cell,) = planned(f"{FED_AVG} label={label}", RATES)
  assert cell.method == "My method"


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


def test_what_methods_do_not_share_is_told():
  mine = "--method=fed_avg client=sgd cohort_size=50 local_epochs=5 label=Mine"
  cells = planned(SCAFFOLD, mine, RATES, "--alpha=1,0.1")
  assert planned_cells.difference_notes(cells) == [
    "Methods differ in clients per round: 10 for SCAFFOLD; 50 for Mine.",
    "Methods differ in local epochs: 1 for SCAFFOLD; 5 for Mine.",
  ]
  assert planned_cells.difference_notes(planned(SCAFFOLD, FED_AVG, RATES)) == []


def study(text):
  read = lambda file: planned(f"--study={file}")
  return refusals.of_file(read, "study.toml", text)


test_is_refused = refusals.of_table("study_files.txt", study)


def test_the_command_of_a_run_can_be_called(tmp_path):
  folder = tmp_path / "a run"
  folder.mkdir()
  (folder / "flags.txt").write_text("# Run.\n--data_dir=my data\n--rounds=2\n")
  command = cell_runs._command(types.SimpleNamespace(folder=folder))
  words = ["--data_dir=my data", "--rounds=2", f"--output_dir={folder}"]
  assert shlex.split(command)[3:] == words


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


def test_what_seeds_are_needed_for_is_a_stored_study():
  line = refusal(asked, "--seeds_needed=0.01")
  assert "needs output_dir, the stored study" in line


def test_pairs_of_a_file_may_have_any_labels_and_any_spread(tmp_path):
  (tmp_path / "pairs.csv").write_text(
    'method,other,sd,seeds\n1,NA,0.02,5\n"a, x",c,225431,5\nb,c,,5\nc,d,,1\n'
  )
  study_request = asked("--seeds_needed=0.01", f"--output_dir={tmp_path}")
  *_, unstable, row = seeds_needed.table(study_request)
  assert unstable.startswith("“a, x” and c ")
  assert unstable.endswith("  more than 1,000,000  more than 1,000,000")
  assert row.startswith("1 and NA ")
  num_seeds = fo.statistics.seeds_needed(0.01, 0.02, num_pairs=3)
  assert row.split()[-2] == str(num_seeds)
