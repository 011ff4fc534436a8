"""Runs that are done once, and found again."""

import json
import re
import subprocess
import types

import pytest

from experiments import reproduce
from tests.experiments.commands import call

ARGUMENTS = (
  "--task=digits_logistic",
  "--num_clients=20",
  "--cohort_size=4",
  "--client=sgd",
  "--client_lr=0.1,1",
  "--alpha=1",
  "--rounds=2",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp("runs") / "one"
  assert call(*ARGUMENTS, f"--output_dir={folder}", "--noprogress") == 0
  return folder


@pytest.fixture
def no_run(monkeypatch):
  monkeypatch.setattr(subprocess, "run", lambda *_, **__: 1 / 0)


def test_a_complete_run_is_found_and_not_run_again(folder, no_run):
  run = reproduce.find(folder, ARGUMENTS)
  assert [point["client_lr"] for point in run.points] == [0.1, 1.0]
  assert run.history.rounds == [0, 2]
  reproduce.run_once(folder, ARGUMENTS)
  # The same run in other words.
  same = ("--client_lr=1e-1,1.0", "--partition=dirichlet", "--batch_size=64")
  others = ("--local_epochs=1", "--data_dir=elsewhere", "--x_axis=bytes")
  assert reproduce.find(folder, [*ARGUMENTS, *same, *others]) is not None


@pytest.mark.parametrize(
  ("other", "difference"),
  [
    ("--client_lr=0.1", "client_lr=[0.1, 1.0], not 0.1"),
    ("--alpha=0.1", "alpha=1.0, not 0.1"),
    ("--seed=0,1", "seed=0, not [0, 1]"),
    ("--l2=0.5", "l2=0.0, not 0.5"),
    ("--local_steps=3", "local_steps=None, not 3"),
    ("--client=sgdm", "client=sgd, not sgdm, client_momentum=None, not 0.9"),
  ],
)
def test_a_run_with_other_flags_is_refused_and_kept(
  folder, no_run, other, difference
):
  message = f"{str(folder)!r} holds a run with {difference}; give another"
  for function in (reproduce.find, reproduce.run_once):
    with pytest.raises(ValueError, match=re.escape(message)):
      function(folder, [*ARGUMENTS, other])
  assert reproduce.find(folder, ARGUMENTS) is not None


def test_a_run_from_before_a_flag_was_added(folder, tmp_path):
  for name in ("summary.json", "metrics.csv"):
    (tmp_path / name).write_text((folder / name).read_text())
  path = tmp_path / "summary.json"
  summary = json.loads(path.read_text())
  del summary["config"]["sampler"]
  path.write_text(json.dumps(summary))
  assert reproduce.find(tmp_path, ARGUMENTS) is not None


def test_what_is_not_complete_is_not_found(folder, tmp_path):
  assert reproduce.find(tmp_path, ARGUMENTS) is None
  (tmp_path / "config.json").touch()
  assert reproduce.find(tmp_path, ARGUMENTS) is None


def test_only_a_run_is_removed(tmp_path, monkeypatch):
  failed = types.SimpleNamespace(returncode=1)
  monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
  for name in ("config.json", "thesis.tex"):
    folder = tmp_path / name.split(".")[0]
    folder.mkdir()
    (folder / name).touch()
    with pytest.raises(subprocess.CalledProcessError):
      reproduce.run_once(folder, ARGUMENTS)
    assert folder.exists() == (name == "thesis.tex")
