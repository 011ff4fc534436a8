"""Runs that were stopped, from the command line.

tools/kills.py and signals.py stop them at random moments.
"""

import json
import os
import shutil
from unittest.mock import Mock

import pytest

from experiments.single_run import resuming, run_output
from experiments.stored.store import Store
from fedjax_opt import load_run
from fedjax_opt.base import STREAMS
from fedjax_opt.results import environment, folder_digests
from tests.helpers.commands import call, spec_of, summary_of
from tests.helpers.resumed_runs import ARGUMENTS, SHARED, assert_same


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
  """The folder of a run that nothing happened to."""
  folder = tmp_path_factory.mktemp("whole") / "run"
  assert call(*ARGUMENTS, f"--output_dir={folder}") == 0
  return folder


@pytest.mark.slow
@pytest.mark.parametrize("every", ["", "--checkpoint_every=5"])
def test_a_kill_while_the_pictures_are_drawn(tmp_path, monkeypatch, every):
  arguments = (*SHARED, f"--output_dir={tmp_path}", "--resume")
  arguments = [a for a in arguments if not a.startswith("--check")] + [every]
  arguments = list(filter(None, arguments))
  with monkeypatch.context() as patch:
    patch.setattr(run_output, "_draw_curves", Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
      call(*arguments)
  assert not (tmp_path / "curves.png").exists()
  assert call(*arguments) == 0
  assert (tmp_path / "curves.png").exists()
  assert load_run(tmp_path).is_complete


def content(folder):
  files = [path for path in folder.rglob("*") if path.is_file()]
  return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def unresumed(error_of):
  """`(*arguments) -> str`, why it cannot go on."""
  prefix = "--resume: "

  def unresumed(*arguments):
    line = error_of(*arguments, "--resume")
    assert line.startswith(prefix)
    return line.removeprefix(prefix)

  return unresumed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.json", "config.json.tmp"])
def test_stopped_before_the_first_checkpoint_it_begins_anew(
  full_run, tmp_path, name
):
  folder = tmp_path / "run"
  folder.mkdir()
  if name == "config.json":
    shutil.copy(full_run / name, folder)
  else:
    (folder / name).write_text("{")  # A kill came very early.
  assert call(*ARGUMENTS, f"--output_dir={folder}", "--resume") == 0
  assert_same(folder, full_run)


@pytest.mark.parametrize("rates", ["0.1,1", "1e38,2e38"])
@pytest.mark.default_cases("0.1,1")
def test_killed_after_its_last_checkpoint(full_run, tmp_path, rates):
  """Nothing is left to compute but the summary; perhaps all diverged."""
  folder = tmp_path / "run"
  arguments = (*ARGUMENTS, f"--client_lr={rates}", f"--output_dir={folder}")
  status = call(*arguments)
  before = (folder / "metrics.csv").read_bytes()
  points = summary_of(folder)["points"]
  assert status == int(rates != "0.1,1")
  (folder / "summary.json").unlink()
  assert call(*arguments, "--resume") == status
  assert (folder / "metrics.csv").read_bytes() == before
  assert load_run(folder).is_complete
  assert summary_of(folder)["points"] == points


def test_other_flags_are_refused_with_what_differs(full_run, unresumed):
  before = content(full_run)
  flags = ("--batch_size=32", f"--output_dir={full_run}")
  assert unresumed(*ARGUMENTS, *flags) == (
    f"'{full_run}' holds a run with --batch_size=64, not 32; give what that "
    "run had, or another folder"
  )
  assert content(full_run) == before


def test_a_run_of_another_version_or_random_stream_is_refused(
  full_run, tmp_path, unresumed
):
  folder = shutil.copytree(full_run, tmp_path / "run")
  path, summary = folder / "config.json", folder / "summary.json"
  config = json.loads(path.read_text())
  other = config | {"versions": config["versions"] | {"jax": "0.0.1"}}
  folder_digests.write(path, json.dumps(other).encode())
  error = unresumed(*ARGUMENTS, f"--output_dir={folder}")
  assert "versions={" in error
  assert "'jax': '0.0.1'" in error
  config["streams"] = 1
  path.write_text(json.dumps(config))
  about = json.loads(summary.read_text()) | {"config": config}
  summary.write_text(json.dumps(about))
  (folder / "digests.json").unlink()
  assert unresumed(*ARGUMENTS, f"--output_dir={folder}") == (
    f"'{folder}' holds a run with streams=1, not {STREAMS}; give what that run "
    "had, or another folder"
  )
  runs, spec = Store(tmp_path / "runs"), spec_of(*ARGUMENTS)
  shutil.copytree(folder, runs.folder_of(spec))
  with pytest.raises(ValueError, match=f"streams=1, not {STREAMS}; give an"):
    runs.find(spec)


def test_nothing_is_written_where_no_checkpoint_can_be_read(
  full_run, tmp_path, unresumed
):
  folder = shutil.copytree(full_run, tmp_path / "run")
  for path in (folder / "checkpoints").rglob("*"):
    if path.is_file():
      os.truncate(path, path.stat().st_size // 2)
  (folder / "summary.json").unlink()  # It was killed after its last round.
  (folder / "digests.json").unlink()
  before = {p: p.read_bytes() for p in folder.rglob("*.csv")}
  with pytest.warns(UserWarning, match="cannot be read"):
    line = unresumed(*ARGUMENTS, f"--output_dir={folder}")
  assert line == f"no checkpoint in '{folder}/checkpoints' can be read"
  assert {p: p.read_bytes() for p in before} == before
  assert (folder / "tensorboard").is_dir()


@pytest.mark.slow
def test_a_run_is_repeated_from_its_flags(full_run, tmp_path):
  folder = tmp_path / "run"
  text = (full_run / "flags.txt").read_text()
  assert text == "".join(
    f"{flag}\n"
    for flag in (
      "--task=digits_logistic", "--num_clients=20", "--client=sgd",
      "--client_lr=0.1,1", "--rounds=20", "--cohort_size=4", "--eval_every=7",
      "--checkpoint_every=5",
    )
  )  # fmt: skip
  flags = (f"--output_dir={folder}", "--noprogress")
  assert call(f"--flagfile={full_run / 'flags.txt'}", *flags) == 0
  assert_same(folder, full_run)


def test_a_run_that_ended_is_extended(full_run, tmp_path):
  """From an evaluation that the longer one does not have."""
  folder = tmp_path / "run"
  assert call(*ARGUMENTS, "--rounds=10", f"--output_dir={folder}") == 0
  assert load_run(folder).history.rounds[-1] == 10
  assert call(*ARGUMENTS, f"--output_dir={folder}", "--resume") == 0
  assert_same(folder, full_run)
  assert load_run(folder).history.rounds[-2:] == [14, 20]


def test_a_run_that_ended_has_nothing_left_to_do(full_run, capsys):
  before = content(full_run)
  assert call(*ARGUMENTS, f"--output_dir={full_run}", "--resume") == 0
  out = capsys.readouterr().out
  assert "highest validation_accuracy (last)" in out
  assert out.endswith(f"nothing left to do: {full_run} ended after 20 rounds\n")
  assert content(full_run) == before


def test_fewer_rounds_are_refused(full_run, unresumed):
  before = content(full_run)
  arguments = (*ARGUMENTS, "--rounds=19", f"--output_dir={full_run}")
  assert unresumed(*arguments) == (
    f"--rounds=19: '{full_run}' holds a run of 20 rounds; give --rounds=20 or "
    "more, or another folder"
  )
  assert content(full_run) == before


@pytest.mark.slow
def test_a_schedule_over_all_rounds_cannot_be_extended(full_run, tmp_path):
  folder = shutil.copytree(full_run, tmp_path / "run")
  find = lambda schedule: resuming._check_rounds(
    folder, 20, spec_of(*ARGUMENTS, "--rounds=30", schedule)
  )
  with pytest.raises(ValueError, match="rounds=30") as error:
    find("--client_schedule=step_decay")
  assert str(error.value) == (
    f"resume=True: rounds=30: '{folder}' holds a run of 20 rounds, whose rate "
    "drops after fractions of them (client_schedule='step_decay'), so a longer "
    "run would not begin like it; give rounds=20, or another folder"
  )
  find("--client_schedule=exponential")  # Of the round alone.


def test_stopped_before_a_checkpoint_and_begun_by_other_versions(
  tmp_path, monkeypatch
):
  """There is nothing to go on with, so it starts again."""
  arguments = [*ARGUMENTS, "--rounds=1", f"--output_dir={tmp_path / 'run'}"]
  with monkeypatch.context() as patch:
    patch.setattr(environment, "versions", lambda: {"numpy": "0"})
    assert call(*arguments) == 0
  for name in ("summary.json", "digests.json"):
    (tmp_path / "run" / name).unlink()
  shutil.rmtree(tmp_path / "run" / "checkpoints")
  assert call(*arguments, "--resume") == 0


@pytest.mark.slow
def test_a_run_without_checkpoints(tmp_path, unresumed):
  folder = tmp_path / "run"
  arguments = [a for a in ARGUMENTS if "checkpoint" not in a]
  arguments.append(f"--output_dir={folder}")
  assert call(*arguments, "--rounds=2") == 0
  assert call(*arguments, "--rounds=2", "--resume") == 0
  assert unresumed(*arguments, "--rounds=3") == (
    f"'{folder}' holds a run of 2 rounds that saved no checkpoint to go on "
    "from; give another folder, and --checkpoint_every for a run that can be "
    "extended"
  )
  # One that was stopped starts again; with resume it saves a checkpoint.
  metrics = (folder / "metrics.csv").read_bytes()
  for name in ("summary.json", "digests.json"):
    (folder / name).unlink()
  os.truncate(folder / "metrics.csv", 200)
  assert call(*arguments, "--rounds=2", "--resume") == 0
  assert (folder / "metrics.csv").read_bytes() == metrics
  assert call(*arguments, "--rounds=3", "--resume") == 0
  assert load_run(folder).history.rounds == [0, 3]

  (folder / "config.json").write_text("{")
  assert unresumed(*arguments).startswith(
    f"'{folder}': config.json is damaged: it does not hold what was written; "
  )
  (folder / "digests.json").unlink()
  assert unresumed(*arguments) == (
    f"'{folder}/config.json' cannot be read; give the folder of a run"
  )


def test_which_run_must_be_said(unresumed):
  line = unresumed(*ARGUMENTS)
  assert line == "--output_dir must say which run to go on with"
