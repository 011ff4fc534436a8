"""Runs and studies whose data changed under the same name."""

import json
import re
import shutil

import numpy as np
import pytest

from experiments import compare, convert
from fedjax_opt import load_run
from fedjax_opt.study.report import pictures
from tests.experiments.commands import call, prepare

RUN = (
  "--task=npz_logistic",
  "--client=sgd",
  "--rounds=2",
  "--cohort_size=2",
  "--batch_size=4",
  "--checkpoint_every=1",
  "--noprogress",
)


def arrays():
  rng = np.random.default_rng(0)
  x = rng.integers(256, size=(72, 8, 8), dtype=np.uint8)
  of = lambda n: np.arange(n) % 3
  found = {"x": x[:60], "y": of(60), "x_test": x[60:], "y_test": of(12)}
  return found | {"client_ids": np.arange(60) // 10}


@pytest.fixture
def write(tmp_path):
  """`(name, at) -> flag`; writes the file with one number of it changed."""
  file = tmp_path / "own.npz"

  def write(name=None, at=0):
    found = arrays()
    if name is not None:
      found[name].reshape(-1)[at] += 1
    np.savez(file, **found)
    return f"--data_file={file}"

  return write


def test_a_run_is_not_resumed_on_other_data(write, refused, tmp_path):
  folder = tmp_path / "run"
  arguments = (*RUN, write(), f"--output_dir={folder}")
  assert call(*arguments) == 0
  config = json.loads((folder / "config.json").read_text())
  sets = {"train_examples", "partition", "validation", "test"}
  assert set(config["data_digests"]) == sets
  for name, at, which in (
    ("x_test", 0, "test"),
    ("y_test", 11, "test"),
    ("client_ids", 9, "partition"),
  ):
    write(name, at)
    assert refused(*arguments, "--resume") == (
      f"resume=True: {str(folder)!r} holds a run with other data ({which}); "
      "give what that run had, or another folder"
    )
  (folder / "summary.json").unlink()  # Also of one that has not ended.
  assert "holds a run with other data" in refused(*arguments, "--resume")
  write()  # As they were: a file may be written again, or moved.
  assert call(*arguments, "--resume") == 0
  assert load_run(folder).is_complete


def test_each_seed_has_a_partition():
  some = ("--task=digits_logistic", "--num_clients=20", "--seed=3,4")
  found = prepare(*some, "--client_test_fraction=0.2").loaded.digests
  assert len(set(found["partition"])) == 4  # Of training and own tests.
  assert isinstance(found["train_examples"], str)


def test_a_population_that_was_written_again(tmp_path, refused):
  clients, folder = tmp_path / "clients", tmp_path / "run"
  disk = ("--task=digits_logistic", f"--population_dir={clients}")
  made = (*disk, "--num_clients=10")
  assert call(*made, program=convert) == 0
  arguments = (*disk, *RUN[1:], f"--output_dir={folder}")
  assert call(*arguments) == 0
  shutil.rmtree(clients)
  assert call(*made, "--seed=1", program=convert) == 0
  assert refused(*arguments, "--resume") == (
    f"resume=True: {str(folder)!r} holds a run with other data (train "
    "examples); give what that run had, or another folder"
  )


def test_a_study_has_no_cells_of_other_data(
  write, refused, tmp_path, monkeypatch
):
  monkeypatch.setattr(pictures, "of_study", lambda *_: [])
  study = tmp_path / "study"
  tuned = "--method=fed_avg client=sgd client_lr=0.1,1"
  new = "--method=fed_avg client=sgdm client_lr=0.1,1"
  shared = (RUN[0], *RUN[2:], f"--output_dir={study}")
  assert call(*shared, write(), tuned, program=compare) == 0
  folders = set((study / "runs").iterdir())
  flag = write("x", -1)
  error = refused(*shared, flag, new, tuned, program=compare)
  assert re.fullmatch(
    r"'.*-2x1-\w+' holds a run with other data \(train examples, validation\); "
    "give another folder, or remove that one",
    error,
  )
  assert set((study / "runs").iterdir()) == folders  # Nothing ran.
