"""Runs that are done once, and found again, unless their data changed."""

import contextlib
import dataclasses
import re
import shutil
import warnings

import numpy as np
import pytest

from experiments import convert
from experiments.single_run import execution, loading
from experiments.stored import store
from experiments.stored.store import Store
from experiments.studies import existing_runs
from fedjax_opt import load_run
from fedjax_opt.files import folders, locks
from tests.helpers.commands import SMALL, call, config_of, prepare, spec_of
from tests.helpers.own_arrays import arrays

ARGUMENTS = (
  *SMALL,
  "--client=sgd",
  "--client_lr=0.1,1",
  "--alpha=1",
  "--rounds=2",
)


SPEC = spec_of(*ARGUMENTS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
  """A store with one run."""
  runs = Store(tmp_path_factory.mktemp("runs"))
  _, was_stored = runs.run(SPEC)
  assert not was_stored
  return runs


@pytest.fixture
def no_run(monkeypatch):
  monkeypatch.setattr(execution, "perform", lambda *_, **__: 1 / 0)


@pytest.mark.slow
def test_a_complete_run_is_found_and_not_run_again(runs, no_run):
  stored_run, was_there = runs.run(SPEC)
  assert was_there
  assert [point["client_lr"] for point in stored_run.points] == [0.1, 1.0]
  assert stored_run.history.rounds == [0, 2]
  # The same run in other words.
  aliases = ("--client_lr=1e-1,1.0", "--partition=dirichlet", "--batch_size=64")
  other_flags = ("--local_epochs=1", "--x_axis=bytes", "--data_dir=d")
  spec = dataclasses.replace(
    spec_of(*ARGUMENTS, *aliases, *other_flags[:2]), data_dir="elsewhere"
  )
  assert runs.find(spec) is not None


@pytest.mark.slow
def test_a_study_keeps_no_models(runs):
  stored_run = runs.find(SPEC)
  assert stored_run.params is not None
  (cell,) = existing_runs.cells_of_runs([stored_run], [])
  assert [part.run.params for part in cell.parts] == [None, None]


@pytest.mark.parametrize(
  ("other", "difference"),
  [
    ("--client_lr=0.1", "client_lr=[0.1, 1.0], not 0.1"),
    ("--alpha=0.1", "alpha=1.0, not 0.1"),
    ("--seed=0,1", "seed=0, not [0, 1]"),
    (
      "--local_steps=3",
      "local_epochs=1.0, not None, local_steps=None, not 3",
    ),
    ("--client=sgdm", "client=sgd, not sgdm, client_momentum=None, not 0.9"),
  ],
)
def test_other_runs_have_other_folders(runs, no_run, other, difference):
  spec = spec_of(*ARGUMENTS, other)
  assert runs.find(spec) is None
  assert runs.folder_of(spec) != runs.folder_of(SPEC)
  config = runs.find(SPEC).config
  text = store.other_flags_text(config, spec.identity)
  assert set(text.split(", ")) == set(difference.split(", "))


def test_a_folder_of_another_run_is_refused(runs, no_run, tmp_path):
  other, moved = spec_of(*ARGUMENTS, "--l2=0.5"), Store(tmp_path)
  shutil.copytree(runs.folder_of(SPEC), moved.folder_of(other))
  with pytest.raises(ValueError, match=r"holds a run with l2=0\.0, not 0\.5"):
    moved.run(other)


def test_a_run_from_before_a_flag_was_added(runs):
  config = dict(runs.find(SPEC).config)
  del config["sampler"]
  assert store.other_flags_text(config, SPEC.identity) is None


def test_a_run_with_one_flag_more_is_another():
  flags = SPEC.identity
  for name, value in {"upload": "sign", "max_update_norm": 1.0}.items():
    text = store.other_flags_text(flags | {name: value}, flags)
    assert text == f"{name}={value}, not None"
  assert store.other_flags_text(flags | {"data_digests": {}}, flags) is None


def test_the_way_of_computing_is_no_part_of_a_run(runs):
  hosts = ("--coordinator=a:1", "--num_processes=2", "--process_id=0")
  for flags in (("--client_chunk=1", "--grid_map=scan"), hosts, ("--cluster",)):
    assert runs.find(spec_of(*ARGUMENTS, *flags)) is not None


def test_what_is_not_complete_is_not_found(tmp_path):
  runs = Store(tmp_path)
  assert runs.find(SPEC) is None
  runs.folder_of(SPEC).mkdir()
  (runs.folder_of(SPEC) / "config.json").touch()
  assert runs.find(SPEC) is None


def test_a_run_that_was_begun_goes_on(tmp_path, monkeypatch):
  runs, resume_flags = Store(tmp_path), []
  perform = lambda spec, *_, **__: resume_flags.append(spec.resume) or 130
  monkeypatch.setattr(execution, "perform", perform)
  for _ in range(2):
    with pytest.raises(KeyboardInterrupt):
      runs.run(SPEC)
    runs.folder_of(SPEC).mkdir(exist_ok=True)
    (runs.folder_of(SPEC) / "config.json").touch()
  assert resume_flags == [False, True]


def test_a_run_that_another_process_runs_is_waited_for(
  runs, no_run, tmp_path, monkeypatch
):
  store, other = Store(tmp_path), contextlib.ExitStack()
  folder = store.folder_of(SPEC)
  other.enter_context(locks.held("output_dir", folder))

  def sleep(seconds):  # Meanwhile it comes to its end.
    shutil.copytree(runs.folder_of(SPEC), folder, dirs_exist_ok=True)
    other.close()

  monkeypatch.setattr(locks.time, "sleep", sleep)
  run, was_there = store.run(SPEC)
  assert was_there
  assert run.history.rounds == [0, 2]
  assert not (folder / folders.LOCK).exists()


def test_what_else_is_in_a_folder_stays(tmp_path):
  runs = Store(tmp_path)
  other = runs.folder_of(SPEC) / "thesis.tex"
  other.parent.mkdir()
  other.touch()
  with pytest.raises(ValueError, match=r"thesis\.tex"):
    runs.run(SPEC)
  assert other.exists()


def test_a_run_whose_data_are_gone(runs, monkeypatch):
  """Nothing can run on others, so it is found as before."""

  def load(spec):
    raise ValueError(f"{spec.task.name}: no such file")

  monkeypatch.setattr(loading, "load_data", load)
  assert Store(runs.folder).find(SPEC) is not None


def test_data_are_loaded_once(runs, monkeypatch):
  loaded, load = [], loading.load_data
  monkeypatch.setattr(
    loading, "load_data", lambda spec: loaded.append(0) or load(spec)
  )
  fresh = Store(runs.folder)
  for other in ("--client_lr=1", "--rounds=3", "--algorithm=scaffold"):
    assert fresh.find(SPEC) is not None
    assert fresh.loader.load(spec_of(*ARGUMENTS[:-1], other)) is not None
  assert len(loaded) == 1
  # Other examples are held out.
  of = lambda on: fresh.loader.load(spec_of(*ARGUMENTS, f"--select_on={on}"))
  assert of("validation").task.validation is not None
  assert of("clients").task.validation is None


def test_names_of_folders():
  name = store.folder_name("-δ digits, δ=0.1/α", {"a": 1, "b": None})
  assert re.fullmatch(r"digits_=0.1-[0-9a-f]{8}", name)
  assert store.folder_name("-δ digits, δ=0.1/α", {"a": 1}) == name
  assert store.folder_name("-δ digits, δ=0.1/α", {"a": 2}) != name


# Runs and studies whose data changed under the same name.


RUN = (
  "--task=npz_logistic",
  "--client=sgd",
  "--rounds=2",
  "--cohort_size=2",
  "--batch_size=4",
  "--checkpoint_every=1",
  "--noprogress",
)


@pytest.fixture
def write(tmp_path):
  """`(name, index) -> flag`; writes the file with one number of it changed."""
  file = tmp_path / "own.npz"

  def write(name=None, index=0):
    values = arrays("x", "y", "x_test", "y_test", "client_ids")
    if name is not None:
      values[name].reshape(-1)[index] += 1
    np.savez(file, **values)
    return f"--data_file={file}"

  return write


def test_a_run_is_not_resumed_on_other_data(write, error_of, tmp_path):
  folder = tmp_path / "run"
  arguments = (*RUN, write(), f"--output_dir={folder}")
  assert call(*arguments) == 0
  config = config_of(folder)
  sets = {"train_examples", "partition", "validation", "test"}
  assert set(config["data_digests"]) == sets
  for name, index, which in (
    ("x_test", 0, "test"),
    ("y_test", 11, "test"),
    ("client_ids", 9, "partition"),
  ):
    write(name, index)
    assert error_of(*arguments, "--resume") == (
      f"--resume: {str(folder)!r} holds a run with other data ({which}); "
      "give what that run had, or another folder"
    )
  (folder / "summary.json").unlink()  # Also of one that has not ended.
  assert "holds a run with other data" in error_of(*arguments, "--resume")
  write()  # As they were: a file may be written again, or moved.
  assert call(*arguments, "--resume") == 0
  (folder / "summary.json").unlink()
  moved = tmp_path / "elsewhere" / "own.npz"
  moved.parent.mkdir()
  shutil.move(tmp_path / "own.npz", moved)
  moved_flags = (*RUN, f"--data_file={moved}", f"--output_dir={folder}")
  assert call(*moved_flags, "--resume") == 0
  assert load_run(folder).is_complete


def test_the_cohort_of_clients_in_a_file_follows_from_the_file(write, tmp_path):
  runs = Store(tmp_path)
  spec = spec_of(*(f for f in RUN if "--cohort" not in f), write())
  assert spec.cohort_size is None
  stored_run, was_there = runs.run(spec)
  assert not was_there
  assert stored_run.config["cohort_size"] == 6
  assert runs.run(spec)[1]


def test_defaults_that_the_clients_limit(tmp_path):
  runs = Store(tmp_path)
  flags = ("--task=digits_logistic", "--num_clients=4", "--rounds=1")
  spec = spec_of(
    *flags, "--client=sgd", "--client_lr=1", "--examples_per_client=5"
  )
  stored_run, was_there = runs.run(spec)
  assert not was_there
  assert (spec.batch_size, stored_run.config["batch_size"]) == (64, 5)
  assert runs.run(spec)[1]


def test_each_seed_has_a_partition():
  flags = ("--task=digits_logistic", "--num_clients=20", "--seed=3,4")
  digests = prepare(*flags, "--client_test_fraction=0.2").loaded.digests
  assert len(set(digests["partition"])) == 4  # Of training and own tests.
  assert isinstance(digests["train_examples"], str)


@pytest.mark.slow
def test_a_population_that_was_written_again(tmp_path, error_of):
  clients, folder = tmp_path / "clients", tmp_path / "run"
  disk = ("--task=digits_logistic", f"--population_dir={clients}")
  convert_flags = (*disk, "--num_clients=10")
  assert call(*convert_flags, program=convert) == 0
  arguments = (*disk, *RUN[1:], f"--output_dir={folder}")
  assert call(*arguments) == 0
  shutil.rmtree(clients)
  assert call(*convert_flags, "--seed=1", program=convert) == 0
  assert error_of(*arguments, "--resume") == (
    f"--resume: {str(folder)!r} holds a run with other data (train "
    "examples); give what that run had, or another folder"
  )


def test_warnings_of_a_run_are_passed_on_with_its_name(tmp_path, monkeypatch):
  run = execution._run

  def warned(*args):
    print("a table")
    warnings.warn("memory is small", stacklevel=1)
    return run(*args)

  monkeypatch.setattr(execution, "_run", warned)
  stored = Store(tmp_path)
  name = stored.folder_of(SPEC).name
  with warnings.catch_warnings(record=True) as caught:
    stored.run(SPEC)
  assert [str(w.message) for w in caught] == [f"{name}: memory is small"]
