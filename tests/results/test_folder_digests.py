"""Digests of a folder's files: kills at any moment, and folders without."""

import contextlib
import os
import pathlib
import re
import shutil
import sys
import warnings

import numpy as np
import pytest

from experiments.command_line import parser
from experiments.single_run import resuming
from experiments.stored import records
from fedjax_opt import load_run
from fedjax_opt.results import folder_digests
from fedjax_opt.results.history import History
from fedjax_opt.results.run_writer import RunWriter
from fedjax_opt.results.selection import Criterion
from tests.helpers.commands import new_python

POINTS = ({"client_lr": 0.1, "seed": 0}, {"client_lr": 1.0, "seed": 0})
EXPERIMENTS = pathlib.Path(records.__file__).parents[1]


class KilledError(BaseException):
  """Stands for a kill: nothing is done from then on."""


@contextlib.contextmanager
def killed_at(number, monkeypatch):
  """Files are replaced and removed `number` times, and then no more."""
  left = number

  def counted(function):
    def call(*arguments, **keywords):
      nonlocal left
      left -= 1
      if left < 0:
        raise KilledError
      return function(*arguments, **keywords)

    return call

  with monkeypatch.context() as patch:
    for name in ("replace", "unlink", "truncate"):
      patch.setattr(os, name, counted(getattr(os, name)))
    patch.setattr(pathlib.Path, "unlink", counted(pathlib.Path.unlink))
    yield


def run(folder, rounds, resume=False):
  """A run of so many rounds, evaluated at each; its numbers are the same."""
  config = {"rounds": rounds}
  writer = RunWriter(folder, config, POINTS, resume, f"--rounds={rounds}\n")
  history = History()
  for number in range(rounds + 1):
    history.append(number, {"train_loss": np.array([1, 2]) / (1 + number)})
    writer.write(history)
  (folder / "per_client.csv").write_text(f"client,rounds\n0,{rounds}\n")
  model = {"w": np.full(3, rounds)}
  writer.finish(history, Criterion("train_loss", "min"), params=lambda _: model)


def content(folder):
  return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.mark.parametrize("extends", [False, True])
@pytest.mark.default_cases("False")
def test_a_kill_at_any_moment_is_no_damage(extends, tmp_path, monkeypatch):
  """Of a new run, and of one that is extended."""
  monkeypatch.setitem(sys.modules, "tensorboardX", None)
  run(tmp_path / "whole", 3)
  if extends:
    run(tmp_path / "begun", 2)
  number, is_done = 0, False
  while not is_done:
    folder = tmp_path / str(number)
    if extends:
      shutil.copytree(tmp_path / "begun", folder)
    try:
      with killed_at(number, monkeypatch):
        run(folder, 3, resume=extends)
        is_done = True
    except KilledError:
      pass
    if (folder / "config.json").exists():
      run_read = load_run(folder)
      assert run_read.is_verified
      rounds_done = run_read.history.rounds
      assert rounds_done == list(range(len(rounds_done)))
      np.testing.assert_array_equal(
        run_read.history.metrics.get("train_loss", np.ones((2, 0))),
        np.array([[1], [2]]) / (1 + np.array(rounds_done)),
      )
      if run_read.is_complete:
        rounds = run_read.config["rounds"]
        np.testing.assert_array_equal(run_read.params["w"], np.full(3, rounds))
        assert (folder / "per_client.csv").exists()
    run(folder, 3, resume=True)
    assert content(folder) == content(tmp_path / "whole")
    number += 1
  assert number > 12


def test_a_folder_without_digests_is_not_verified(tmp_path):
  run(tmp_path, 1)
  with warnings.catch_warnings(action="error"):
    assert load_run(tmp_path).is_verified
  assert "not verified" not in repr(load_run(tmp_path))
  (tmp_path / "digests.json").unlink()
  assert folder_digests.check(tmp_path) is None
  with pytest.warns(UserWarning, match="not verified") as notes:
    run_read = load_run(tmp_path)
  assert [str(warning.message) for warning in notes] == [
    f"folder='{tmp_path}': not verified: digests.json is missing or lacks "
    "config.json, summary.json, metrics.csv, params.safetensors, so damage "
    "would not be noticed"
  ]
  assert notes[0].filename == __file__
  assert not run_read.is_verified
  assert repr(run_read).endswith("not verified)")


def test_digests_that_are_a_folder_are_named(tmp_path):
  path = tmp_path / folder_digests.DIGESTS_FILE
  path.mkdir()
  with pytest.raises(OSError, match=f"it is no file: '{path}'"):
    folder_digests.check(tmp_path)


def test_a_file_without_its_digest_is_not_verified(tmp_path):
  """Here a model that somebody copied."""
  run(tmp_path / "other", 1)
  run(tmp_path / "run", 1)
  folder_digests.remove(tmp_path / "run" / "params.safetensors")
  assert load_run(tmp_path / "run").is_verified
  shutil.copy(tmp_path / "other" / "params.safetensors", tmp_path / "run")
  with pytest.warns(UserWarning, match=r"or lacks params.safetensors, so dam"):
    assert not load_run(tmp_path / "run").is_verified


@pytest.mark.parametrize(
  "name",
  [
    "config.json", "flags.txt", "metrics.csv", "params.safetensors",
    "per_client.csv", "summary.json",
  ],
)  # fmt: skip
@pytest.mark.parametrize("damage", ["longer", "shorter", "missing"])
def test_a_file_of_another_size(name, damage, tmp_path):
  run(tmp_path, 1)
  path, size = tmp_path / name, (tmp_path / name).stat().st_size
  if damage == "longer":
    with open(path, "a") as file:
      file.write("\n")
  elif damage == "shorter":
    os.truncate(path, size - 1)
  else:
    path.unlink()
  with pytest.raises(ValueError, match=f"^folder='.*': {name} is") as error:
    load_run(tmp_path)
  ways = "remove the folder to run it again, or remove digests.json to read all"
  assert ways in str(error.value)


def damaged(path):
  content = path.read_bytes()
  path.write_bytes(content[:9] + bytes([content[9] ^ 1]) + content[10:])


def test_who_resumes_is_told(tmp_path):
  run(tmp_path, 1)
  contents = content(tmp_path)
  damaged(tmp_path / "metrics.csv")
  line = (
    f"folder='{tmp_path}': metrics.csv is damaged: it does not hold what was "
    "written; it is written again"
  )
  with pytest.warns(UserWarning, match=f"^{re.escape(line)}$"):
    assert resuming._complete(tmp_path) is None
  run(tmp_path, 1, resume=True)
  assert content(tmp_path) == contents
  damaged(tmp_path / "config.json")
  with pytest.raises(ValueError, match=r"resume=True: .*config.json is dam"):
    resuming._config_of(tmp_path)


@pytest.mark.slow
def test_a_command_warns_in_one_line(tmp_path):
  """Without the place in the code, where Python shows it."""
  run(tmp_path, 1)
  (tmp_path / "digests.json").unlink()
  code = (
    "from experiments.processes import command\n"
    "command.begin()\n"
    "from experiments.single_run import resuming\n"
    "import pathlib, sys\n"
    "resuming._complete(pathlib.Path(sys.argv[1]))\n"
  )
  process = new_python("-c", code, tmp_path, JAX_PLATFORMS="cpu")
  text = f"warning: folder='{tmp_path}': not verified: digests.json is missin"
  assert process.stderr.startswith(text)
  assert process.stderr.count("\n") == 1


def test_a_flagfile_of_a_run(tmp_path):
  run(tmp_path, 1)
  flagfile = f"--flagfile={tmp_path / 'flags.txt'}"
  assert parser.expanded([flagfile]) == ["--rounds=1"]
  damaged(tmp_path / "flags.txt")
  with pytest.raises(ValueError, match=r"flagfile='.*': flags.txt is damaged"):
    parser.expanded([flagfile])


@pytest.mark.parametrize(
  "path",
  sorted(EXPERIMENTS.glob("*/records/*.jsonl")),
  ids=lambda path: f"{path.parts[-3]}-{path.stem}",
)
def test_what_is_published_is_whole(path):
  """Each record has its digest: `read` refuses others."""
  assert records.read(path)


@pytest.mark.parametrize(
  "text",
  [
    '{"arguments":[],"flags":{},"about":{},"points":[],"rounds":[],"metrics":{}}',
    "[]",
    "",
  ],
)
def test_records_that_were_not_written_like_this(tmp_path, text):
  """Without a digest, of another kind, or empty."""
  path = tmp_path / "old.jsonl"
  path.write_text(text)
  with pytest.raises(ValueError, match=r"'.*old.jsonl' is damaged at line 1"):
    records.read(path)
