"""Runs that are done once, and found again."""

import json
import re

import numpy as np
import pytest

from experiments import job, once, run, workers
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
  monkeypatch.setattr(run, "main", lambda argv: 1 / 0)


def test_a_complete_run_is_found_and_not_run_again(folder, no_run):
  found, was_there = once.run(folder, ARGUMENTS)
  assert was_there
  assert [point["client_lr"] for point in found.points] == [0.1, 1.0]
  assert found.history.rounds == [0, 2]
  # The same run in other words.
  same = ("--client_lr=1e-1,1.0", "--partition=dirichlet", "--batch_size=64")
  others = ("--local_epochs=1", "--x_axis=bytes")
  assert once.find(folder, [*ARGUMENTS, *same, *others]) is not None


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
  for function in (once.find, once.run):
    with pytest.raises(ValueError, match=re.escape(message)):
      function(folder, [*ARGUMENTS, other])
  assert once.find(folder, ARGUMENTS) is not None


def test_a_run_whose_data_are_gone(folder, monkeypatch):
  """Nothing can run on others, so it is found as before."""

  def load(resolved):
    raise ValueError(f"{resolved.flags['task']}: no such file")

  monkeypatch.setattr(job, "load", load)
  monkeypatch.setattr(once, "_known", {})
  assert once.find(folder, ARGUMENTS) is not None


def test_a_run_from_before_a_flag_was_added(folder, tmp_path):
  for name in ("summary.json", "metrics.csv"):
    (tmp_path / name).write_text((folder / name).read_text())
  path = tmp_path / "summary.json"
  summary = json.loads(path.read_text())
  del summary["config"]["sampler"]
  path.write_text(json.dumps(summary))
  assert once.find(tmp_path, ARGUMENTS) is not None


def test_what_is_not_complete_is_not_found(folder, tmp_path):
  assert once.find(tmp_path, ARGUMENTS) is None
  (tmp_path / "config.json").touch()
  assert once.find(tmp_path, ARGUMENTS) is None


def test_a_run_that_was_killed_after_its_last_checkpoint(tmp_path):
  folder, arguments = tmp_path / "run", [*ARGUMENTS, "--checkpoint_every=1"]
  first, _ = once.run(folder, arguments)
  (folder / "summary.json").unlink()
  again, was_there = once.run(folder, arguments)
  assert not was_there
  assert again.points == first.points
  for name, values in first.history.metrics.items():
    np.testing.assert_array_equal(again.history.metrics[name], values)


def test_what_else_is_in_a_folder_stays(tmp_path):
  (tmp_path / "thesis.tex").touch()
  with pytest.raises(workers.RunFailed, match=r"thesis\.tex"):
    once.run(tmp_path, ARGUMENTS)
  assert (tmp_path / "thesis.tex").exists()


def test_a_run_that_failed_says_why(tmp_path):
  with pytest.raises(workers.RunFailed, match=r"^data_dir='nowhere': "):
    once.run(tmp_path / "run", ("--task=mnist_cnn", "--data_dir=nowhere"))


def test_names_of_folders():
  name = once.folder_name("digits, δ=0.1/α", {"a": 1, "b": None})
  assert re.fullmatch(r"digits_=0.1-[0-9a-f]{8}", name)
  assert once.folder_name("digits, δ=0.1/α", {"a": 1}) == name
  assert once.folder_name("digits, δ=0.1/α", {"a": 2}) != name
