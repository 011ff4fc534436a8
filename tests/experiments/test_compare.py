"""Studies that run: what they leave, what they find again, what they choose."""

import copy
import dataclasses
import re
import shutil
import signal
import types
from unittest.mock import Mock

import numpy as np
import pytest

from experiments import compare
from experiments.single_run import execution, run_output
from experiments.stored.store import Store
from experiments.studies import cell_runs, existing_runs
from experiments.studies.request import read_request
from fedjax_opt import load_run, statistics
from fedjax_opt.study.report import pictures
from tests.helpers import studies
from tests.helpers.commands import call, rows_of

# Clients of one size: all conditions have one program.
SHARED = (
  *("--task=digits_logistic", "--num_clients=10", "--cohort_size=3"),
  *("--rounds=4", "--eval_every=2", "--client_lr=0.01,0.1,1", "--seed=0,1"),
  "--report_seeds=2",
  *("--examples_per_client=30", "--batch_size=10"),
)
FED_AVG, SCAFFOLD = "--method=fed_avg client=sgd", "--method=scaffold"
DELTA = "--method=fed_avg client=delta_sgd label=Delta"
ALPHAS = "--alpha=1,0.1"


def study(folder, *arguments):
  return call(*SHARED, *arguments, f"--output_dir={folder}", program=compare)


def table_of(folder):
  return rows_of(folder / "table.csv")


def runs_of(folder):
  """path -> (time of its writing, content), of all finished runs."""
  return {
    path: (path.stat().st_mtime_ns, path.read_bytes())
    for path in (folder / "runs").glob("*/summary.json")
  }


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
  """Reports without pictures, which take seconds; not that of `full_study`."""
  monkeypatch.setattr(pictures, "of_study", lambda *_: [])


@pytest.fixture(scope="module")
def full_study(tmp_path_factory):
  """A study of two methods under two conditions, with a whole report."""
  folder = tmp_path_factory.mktemp("study") / "one"
  assert study(folder, FED_AVG, DELTA, ALPHAS, "--target=0.5") == 0
  return folder


@pytest.fixture
def copied(full_study, tmp_path):
  """A copy of that study, to be written to."""
  return shutil.copytree(full_study, tmp_path / "copied")


def test_what_it_leaves(full_study):
  for name in ("report.html", "table.md", "table.tex", "table.csv"):
    assert (full_study / name).stat().st_size > 200
  assert list((full_study / "pictures").glob("client_labels.png"))
  assert not list((full_study / "runs").rglob("*.png"))
  page = (full_study / "report.html").read_text()
  # A linear model of 64 inputs; a tenth of 1437 examples is held out.
  for name, value in {
    "Parameters of the model": "650",
    "Number of clients": "10",
    "Training examples of a client": "30",
    "Validation examples": "144",
    "Test examples": "360",
    "Clients per round": "3",
    "Batch size": "10",
    "Local epochs": "1",
  }.items():
    row = rf">{name}</th>\s*<th[^>]*>{value}<"
    assert re.search(row, page), name
  assert re.search(">Device</th>.*platform cpu", page)
  assert re.search(">Versions</th>.*jax ", page)
  folders = sorted(path.name for path in (full_study / "runs").iterdir())
  assert len([f for f in folders if "-3x2-" in f]) == 2
  # Delta-SGD has nothing to tune.
  assert len([f for f in folders if "-1x2-" in f]) == 4
  assert len(table_of(full_study)) == 4


def test_every_number_comes_from_the_runs(full_study):
  """The chosen setting has the best validation mean; the report fresh seeds."""
  for folder in (full_study / "runs").glob("*-1x2-*"):
    report = load_run(folder)
    assert [point["seed"] for point in report.points] == [2, 3]
    prefix = folder.name.split("-1x2-")[0]
    tuning_folders = [*(full_study / "runs").glob(f"{prefix}-3x2-*")]
    if not tuning_folders:
      continue
    tuning = load_run(tuning_folders[0])
    assert {point["seed"] for point in tuning.points} == {0, 1}
    final = tuning.history.values("validation_accuracy")[:, -1]
    rates = [point["client_lr"] for point in tuning.points]
    means = {
      rate: np.mean([v for v, r in zip(final, rates, strict=True) if r == rate])
      for rate in rates
    }
    assert report.points[0]["client_lr"] == max(means, key=means.get)
    final = report.history.values("test_accuracy")[:, -1]
    (row,) = (
      row
      for row in table_of(full_study)
      if row["method"] == "FedAvg, SGD"
      and float(row["alpha"]) == report.config["alpha"]
    )
    assert float(row["mean"]) == pytest.approx(final.mean(), abs=1e-12)
    assert float(row["chosen_client_lr"]) == report.points[0]["client_lr"]


def test_what_is_there_is_not_run_again(copied, monkeypatch, capsys):
  before, table = runs_of(copied), (copied / "table.csv").read_bytes()

  def fail(spec, *_):
    raise AssertionError(f"runs again: {spec}")

  monkeypatch.setattr(execution, "perform", fail)
  say = Mock(wraps=compare._say)
  monkeypatch.setattr(compare, "_say", say)
  arguments = (FED_AVG, DELTA, ALPHAS, "--target=0.5")
  assert study(copied, *arguments) == 0
  # What collapsed is said of the same cells, with their examples, as in tables.
  assert all(c.args[2].sets["validation"].size == 144 for c in say.mock_calls)
  assert runs_of(copied) == before
  assert (copied / "table.csv").read_bytes() == table
  assert capsys.readouterr().err.count("(was there)") == 4
  # Nor for another label, title or order; tables have that of the command.
  methods = DELTA.replace("Delta", "Mine"), FED_AVG
  assert study(copied, *methods, ALPHAS, "--title=Other") == 0
  assert runs_of(copied) == before
  labels = list(dict.fromkeys(row["method"] for row in table_of(copied)))
  assert labels == ["Mine", "FedAvg, SGD"]
  page = (copied / "report.html").read_text()
  assert "<h1>Other</h1>" in page
  # The first method has none.
  assert re.search(r"Seeds of tuning</th><th[^>]*>0, 1<", page)


@pytest.mark.parametrize(
  ("arguments", "is_said"),
  [
    ((DELTA, FED_AVG, ALPHAS, "--title=Other"), False),
    ((DELTA.replace("Delta", "Mine"), FED_AVG, SCAFFOLD, ALPHAS), False),
    ((FED_AVG, DELTA, "--alpha=0.1,1,10"), False),
    ((FED_AVG, ALPHAS), True),
    ((FED_AVG, DELTA, "--alpha=1"), True),
    ((FED_AVG, DELTA, ALPHAS, "--rounds=4"), True),
    ((FED_AVG, "--method=fed_avg", ALPHAS), True),
  ],
)
def test_a_note_if_a_report_loses_cells(tmp_path, capsys, arguments, is_said):
  asked = lambda *words: read_request(["compare", *words], "")
  compare._mark(tmp_path, asked(FED_AVG, DELTA, ALPHAS))
  (tmp_path / "report.html").touch()
  compare._mark(tmp_path, asked(*arguments))
  note = f"note: {tmp_path / 'report.html'} is of another command, and is repl"
  assert capsys.readouterr().err.startswith(note) == is_said
  compare._mark(tmp_path, asked(*arguments))
  assert not capsys.readouterr().err


@pytest.mark.slow
def test_more_seeds_of_the_report_need_no_other_tuning(copied):
  before = runs_of(copied)
  assert study(copied, FED_AVG, "--alpha=1", "--report_seeds=3") == 0
  after = runs_of(copied)
  assert {path: after[path] for path in before} == before
  (new_path,) = set(after) - set(before)
  assert "-1x3-" in str(new_path)
  assert {int(row["seeds"]) for row in table_of(copied)} == {3}


@pytest.mark.parametrize(
  ("rates", "said"), [((1, 1, 1), "chosen"), ((1, 0.1, 1), "mostly")]
)
def test_a_line_says_whether_all_seeds_chose_alike(rates, said, capsys):
  cell = studies.cell("a", [0.5] * 3, tried={0.1: [0.4] * 3, 1: [0.5] * 3})
  points = [{"client_lr": x, "seed": s} for s, x in enumerate(rates)]
  runs = cell.report_runs._replace(points=points)
  cell = dataclasses.replace(cell, report_runs=runs, is_nested=True)
  planned = types.SimpleNamespace(
    grid=["client_lr"], design=types.SimpleNamespace(is_nested=True)
  )
  compare._say("[1/1]", planned, cell)
  assert f"a: {said} client learning rate 1 (" in capsys.readouterr().err


@pytest.mark.slow
def test_nested_tuning_is_one_run_and_tells_what_seeds_are_needed(
  tmp_path, capsys
):
  """Each seed of the report has its own best setting of one grid."""
  arguments = (FED_AVG, DELTA, "--alpha=0.1", "--nested", "--report_seeds=3")
  assert study(tmp_path, *arguments) == 0
  # Delta-SGD has nothing to tune.
  assert len(runs_of(tmp_path)) == 2
  (grid,) = (tmp_path / "runs").glob("*-3x3-*")
  run = load_run(grid)
  assert {point["seed"] for point in run.points} == {2, 3, 4}
  scores, finals = (
    run.history.values(f"{part}_accuracy")[:, -1].reshape(3, 3)
    for part in ("validation", "test")
  )
  row = next(row for row in table_of(tmp_path) if row["method"] != "Delta")
  chosen_finals = finals[scores.argmax(axis=0), range(3)]
  assert float(row["mean"]) == pytest.approx(chosen_finals.mean(), abs=1e-12)
  assert row["nested"] == "True"
  capsys.readouterr()
  flags = ("--seeds_needed=0.01", f"--output_dir={tmp_path}")
  assert call(*flags, program=compare) == 0
  (pair,) = rows_of(tmp_path / "pairs.csv")
  num_seeds = statistics.seeds_needed(0.01, float(pair["sd"]))
  last_line = capsys.readouterr().out.splitlines()[-1]
  assert last_line.split()[-2:] == [str(num_seeds)] * 2  # There is one pair.


def test_no_test_value_enters_any_choice(
  full_study, tmp_path, corrupt_test_examples
):
  """With absurd test examples the same settings are chosen."""
  corrupt_test_examples()
  assert study(tmp_path, FED_AVG, "--alpha=0.1") == 0
  column = lambda folder, name: [
    row[name]
    for row in table_of(folder)
    # A condition that is the same everywhere has no column.
    if row["method"] == "FedAvg, SGD" and row.get("alpha", "0.1") == "0.1"
  ]
  rates = lambda folder: column(folder, "chosen_client_lr")
  assert rates(tmp_path) == rates(full_study) != []
  assert column(tmp_path, "mean") != column(full_study, "mean")
  # The choice on the test examples would be another one.
  (tuning,) = (tmp_path / "runs").glob("*-3x2-*")
  run = load_run(tuning)
  means = run.history.values("test_accuracy")[:, -1].reshape(3, 2).mean(axis=1)
  assert run.points[2 * means.argmax()]["client_lr"] != float(*rates(tmp_path))


@pytest.mark.parametrize(
  ("runs", "methods"),
  [
    (["*-3x2-*", "*-delta_sgd-*"], {"FedAvg, SGD", "FedAvg, Δ-SGD"}),
    # Whether a rate was tuned in a run is no part of the method.
    (["*-sgd-*=0.1-3x2-*", "*-sgd-*=1.0-1x2-*"], {"FedAvg"}),
  ],
)
def test_runs_that_are_there(full_study, tmp_path, runs, methods):
  folders = [str(f) for name in runs for f in (full_study / "runs").glob(name)]
  flags = (f"--runs={','.join(folders)}", f"--output_dir={tmp_path}")
  assert call(*flags, program=compare) == 0
  rows = table_of(tmp_path)
  assert {row["method"] for row in rows} == methods
  assert {float(row["alpha"]) for row in rows} == {1, 0.1}
  text = (tmp_path / "report.html").read_text()
  assert "the setting was chosen with the seeds of the report" in text


def test_settings_and_methods_that_diverged(copied, capsys):
  absurd = "--method=fed_avg client=sgd client_lr=1e38,2e38,3e38 label=Absurd"
  assert study(copied, absurd, FED_AVG, "--alpha=1") == 0
  assert "Absurd: every setting diverged" in capsys.readouterr().err
  assert {row["verdict"] for row in table_of(copied)} == {"best", "diverged"}
  assert study(copied, absurd, "--alpha=1") == 1
  captured = capsys.readouterr()
  assert captured.err.endswith("error: every method diverged\n")
  assert captured.out.startswith("Test accuracy (%)")


@pytest.mark.slow
def test_a_further_method_runs_alone_after_ctrl_c(copied, monkeypatch, capsys):
  before, method = runs_of(copied), "--method=fed_nova"
  with monkeypatch.context() as patch:
    real_run = Store.run

    def pressed(self, spec):
      if spec.algorithm.name == "fed_nova":
        raise KeyboardInterrupt
      return real_run(self, spec)

    patch.setattr(Store, "run", pressed)
    assert study(copied, FED_AVG, method, "--alpha=1") == 130
  assert capsys.readouterr().err.endswith(
    "interrupted: 1 cell complete; the same command continues the study\n"
  )
  assert study(copied, FED_AVG, method, "--alpha=1") == 0
  after = runs_of(copied)
  assert {path: after[path] for path in before} == before
  assert len(after) == len(before) + 2
  assert capsys.readouterr().err.count("(was there)") == 1


@pytest.mark.slow
def test_ctrl_c_while_a_run_writes_its_files(tmp_path, monkeypatch, capsys):
  """The run is whole then, and the study ends."""
  finish = run_output.RunOutput.finish

  def pressed(self, result):
    signal.raise_signal(signal.SIGINT)
    finish(self, result)

  monkeypatch.setattr(run_output.RunOutput, "finish", pressed)
  assert study(tmp_path, DELTA, SCAFFOLD, "--alpha=1") == 130
  assert len(runs_of(tmp_path)) == 1
  (path,) = runs_of(tmp_path)
  assert load_run(path.parent).is_complete
  assert "interrupted: 0 cells complete" in capsys.readouterr().err


def test_flags_beside_runs_alone(tmp_path, full_study, error_of):
  """They would change nothing."""
  (run_of,) = (full_study / "runs").glob("*-fed_avg-sgd-alpha=1.0-1x2-*")
  arguments = (f"--runs={run_of}", "--rounds=7", f"--output_dir={tmp_path}")
  line = error_of(*arguments, program=compare)
  assert "--rounds=7: the runs have their own flags" in line
  arguments = (f"--runs={run_of}", "--nested", f"--output_dir={tmp_path}")
  line = error_of(*arguments, program=compare)
  assert "--nested: the runs have their own flags" in line


def test_step_sizes_are_of_the_chosen_setting(tmp_path):
  points = [{"eta_0": 0.001}, {"eta_0": 0.5}]
  np.savez(tmp_path / "traces.npz", step_size=np.array([[0.001], [0.5]]))
  run = types.SimpleNamespace(folder=tmp_path, points=points)
  cell = types.SimpleNamespace(
    report_runs=types.SimpleNamespace(points=points[1:])
  )
  assert cell_runs._step_sizes(run, cell) == {"step_size": [0.5]}


@pytest.mark.parametrize("part", ["test", "partition"])
def test_runs_on_other_data_are_not_compared(full_study, part):
  (folder,) = (full_study / "runs").glob("*-fed_avg-sgd-alpha=1.0-1x2-*")
  (cell,) = existing_runs.cells_of_runs([load_run(folder)], ())
  other = copy.deepcopy(cell)
  existing_runs.check_data([cell, other], [], None)
  config = other.parts[0].run.config
  config["data_digests"][part] = "0"
  config["client_lr"] = 7.0  # Of the method, not of the data.
  with pytest.raises(ValueError, match=rf"has other data \({part}\) than the"):
    existing_runs.check_data([cell, other], [], None)
  for name, value in {"seed": [7, 8], "num_clients": 7}.items():
    changed = copy.deepcopy(other)
    changed.parts[0].run.config[name] = value  # Of which there are others.
    if part == "partition":
      existing_runs.check_data([cell, changed], [], None)
