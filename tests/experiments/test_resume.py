"""Runs that are killed, from the command line."""

import json
import os
import random
import resource
import shutil
import signal
import time

import numpy as np
import pytest

from tests.experiments.commands import call, start

ARGUMENTS = (
  "--task=digits_logistic",
  "--num_clients=20",
  "--cohort_size=4",
  "--client=sgd",
  "--client_lr=0.1,1",
  "--rounds=60",
  "--eval_every=7",
  "--checkpoint_every=2",
  "--noprogress",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """The folder of a run that nothing happened to."""
  folder = tmp_path_factory.mktemp("whole") / "run"
  assert call(*ARGUMENTS, f"--output_dir={folder}") == 0
  return folder


def rounds_saved(folder):
  names = os.listdir(folder) if folder.is_dir() else []
  return max(map(int, filter(str.isdecimal, names)), default=0)


def kill_and_resume(folder, kills, seed):
  """Kills at random moments after a checkpoint, then runs to the end."""
  draw, done = random.Random(seed), 0
  for kill in range(kills):
    others = ["--resume"] if kill else []
    process = start(*ARGUMENTS, f"--output_dir={folder}", *others)
    deadline = time.monotonic() + 120
    while rounds_saved(folder / "checkpoints") <= done:
      assert process.poll() is None, process.stderr.read()
      assert time.monotonic() < deadline
      time.sleep(0.002)
    time.sleep(draw.uniform(0, 0.2))
    process.kill()
    process.wait()
    done = rounds_saved(folder / "checkpoints")
  assert call(*ARGUMENTS, f"--output_dir={folder}", "--resume") == 0


def assert_same(folder, whole):
  text = lambda name: (folder / name).read_bytes()
  assert text("metrics.csv") == (whole / "metrics.csv").read_bytes()
  one, other = (json.loads((f / "summary.json").read_text())
                for f in (folder, whole))  # fmt: skip
  for name in ("points", "selected", "cost", "padding_waste"):
    assert one[name] == other[name]
  checkpoints = [f / "checkpoints" for f in (folder, whole)]
  assert [rounds_saved(f) for f in checkpoints] == [60, 60]


@pytest.mark.filterwarnings("ignore:.*not written to its end")
@pytest.mark.parametrize("kills", [3])
def test_kills_at_random_moments(whole, tmp_path, kills):
  kill_and_resume(tmp_path / "run", kills, seed=kills)
  assert_same(tmp_path / "run", whole)


@pytest.mark.skipif(
  "FEDJAX_OPT_KILLS" not in os.environ,
  reason="set FEDJAX_OPT_KILLS to a number of kills",
)
@pytest.mark.filterwarnings("ignore:.*not written to its end")
def test_many_kills(whole, tmp_path):
  """In runs of 5 kills each."""
  for seed in range(-(-int(os.environ["FEDJAX_OPT_KILLS"]) // 5)):
    kill_and_resume(tmp_path / str(seed), 5, seed)
    assert_same(tmp_path / str(seed), whole)


def test_sigterm_saves_a_checkpoint(whole, tmp_path, capsys):
  folder = tmp_path / "run"
  process = start(*ARGUMENTS, f"--output_dir={folder}")
  while rounds_saved(folder / "checkpoints") == 0:
    assert process.poll() is None, process.stderr.read()
    time.sleep(0.002)
  process.send_signal(signal.SIGTERM)
  process.wait(60)
  done = rounds_saved(folder / "checkpoints")
  if done < 60:  # It may have been too fast.
    assert process.returncode == 128 + signal.SIGTERM
  assert (folder / "summary.json").exists()
  assert call(*ARGUMENTS, f"--output_dir={folder}", "--resume") == 0
  assert_same(folder, whole)


def test_stopped_before_the_first_checkpoint_it_begins_anew(whole, tmp_path):
  folder = tmp_path / "run"
  folder.mkdir()
  shutil.copy(whole / "config.json", folder)
  assert call(*ARGUMENTS, f"--output_dir={folder}", "--resume") == 0
  assert_same(folder, whole)


def test_other_flags_are_refused_with_what_differs(whole, capsys):
  before = sorted(whole.rglob("*"))
  others = ("--batch_size=32", f"--output_dir={whole}", "--resume")
  assert call(*ARGUMENTS, *others) == 1
  assert capsys.readouterr().err == (
    f"error: resume=True: '{whole}' holds a run with batch_size=64, not 32; "
    "give the flags of that run, or another folder\n"
  )
  assert sorted(whole.rglob("*")) == before


def test_another_version_is_refused(whole, tmp_path, capsys):
  folder = tmp_path / "run"
  shutil.copytree(whole, folder)
  config = json.loads((folder / "config.json").read_text())
  config["versions"]["jax"] = "0.0.1"
  (folder / "config.json").write_text(json.dumps(config))
  assert call(*ARGUMENTS, f"--output_dir={folder}", "--resume") == 1
  error = capsys.readouterr().err
  assert "versions={" in error
  assert "'jax': '0.0.1'" in error


def test_nothing_is_written_where_no_checkpoint_can_be_read(
  whole, tmp_path, capsys
):
  folder = tmp_path / "run"
  shutil.copytree(whole, folder)
  for path in (folder / "checkpoints").rglob("*"):
    if path.is_file():
      os.truncate(path, path.stat().st_size // 2)
  before = {p: p.read_bytes() for p in folder.rglob("*.csv")}
  with pytest.warns(UserWarning, match="cannot be read"):
    assert call(*ARGUMENTS, f"--output_dir={folder}", "--resume") == 1
  assert capsys.readouterr().err == (
    f"error: resume=True: no checkpoint in '{folder}/checkpoints' can be read\n"
  )
  assert {p: p.read_bytes() for p in before} == before
  assert (folder / "tensorboard").is_dir()


def test_a_run_without_checkpoints_is_not_begun_anew(tmp_path, capsys):
  folder = tmp_path / "run"
  arguments = [a for a in ARGUMENTS if "checkpoint" not in a]
  arguments += ["--rounds=2", f"--output_dir={folder}"]
  assert call(*arguments) == 0
  assert call(*arguments, "--resume") == 1
  assert capsys.readouterr().err.endswith(
    f"error: resume=True: '{folder}' holds no checkpoint to go on from; the "
    "run had no checkpoint_every\n"
  )
  (folder / "config.json").write_text("{")
  assert call(*arguments, "--resume") == 1
  error = capsys.readouterr().err
  assert f"'{folder}/config.json' cannot be read" in error


def test_which_run_must_be_said(capsys):
  assert call(*ARGUMENTS, "--resume") == 1
  assert capsys.readouterr().err == (
    "error: resume=True: output_dir must say which run to go on with\n"
  )


def test_a_full_disk_is_one_line_and_keeps_whole_rows(tmp_path, capsys):
  folder, limits = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))
  try:
    arguments = (*ARGUMENTS, "--rounds=200", "--eval_every=1")
    arguments += ("--checkpoint_every=200",)
    assert call(*arguments, f"--output_dir={folder}") == 1
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  error = capsys.readouterr().err
  assert error.count("\n") == 1
  assert "File too large" in error
  assert str(folder) in error
  text = (folder / "metrics.csv").read_text()
  assert text.endswith("\n")
  head, *rows = text.splitlines()
  assert len(rows) % 2 == 0
  assert {row.count(",") for row in rows} == {head.count(",")}
  np.loadtxt(rows[:1], delimiter=",")
