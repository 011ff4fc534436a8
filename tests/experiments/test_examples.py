"""The scripts of examples/, for several hosts."""

import os
import subprocess

import pytest

from tests.helpers.commands import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
STUB = """#!/usr/bin/env bash
printf '%s\\n' "$(basename "$0")" "$@"
exit "${STATUS:-0}"
"""


def environment(*folders, **variables):
  path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
  return {**os.environ, "PATH": path, **variables}


@pytest.fixture
def stubs(tmp_path):
  """A folder with commands that say how they were called."""
  folder = tmp_path / "bin"
  folder.mkdir()
  for name in ("srun", "scontrol", "gcloud", "python"):
    (folder / name).write_text(STUB)
    (folder / name).chmod(0o755)
  return folder


def start(stubs, script, *arguments, **variables):
  """The exit status, and the lines that a script's commands said."""
  process = subprocess.run(
    ["bash", EXAMPLES / script, *arguments],
    env=environment(stubs, **variables),
    capture_output=True,
    text=True,
    check=False,
  )
  return process.returncode, process.stdout.splitlines(), process.stderr


def test_plain_hosts(stubs):
  status, lines, _ = start(stubs, "hosts.sh", "a:1234", "4", "2", "--seed=1,2")
  assert status == 0
  assert lines == [
    "python", "-m", "experiments.run", "--coordinator=a:1234",
    "--num_processes=4", "--process_id=2", "--resume", "--seed=1,2",
  ]  # fmt: skip
  status, _, error = start(stubs, "hosts.sh", "a:1234")
  assert status == 2
  assert "usage: " in error


@pytest.mark.parametrize("ended_with", ["0", "1", "143"])
def test_a_slurm_job_that_was_told_to_end_is_queued_again(stubs, ended_with):
  variables = {"STATUS": ended_with, "SLURM_JOB_ID": "17"}
  status, lines, _ = start(stubs, "slurm.sbatch", "--task=digits", **variables)
  assert status == int(ended_with)
  assert lines[0] == "srun"
  command = ["python", "-m", "experiments.run", "--cluster", "--resume"]
  assert lines[2:8] == [*command, "--task=digits"]
  requeue = ["scontrol", "requeue", "17"]
  assert lines[8:] == (requeue if ended_with == "143" else [])


def test_a_pod_gets_the_flags_as_they_were_given(stubs):
  note = "--note=two words; $HOME"
  _, lines, _ = start(stubs, "tpu_pod.sh", "pod", "here", "--task=digits", note)
  assert lines[:8] == [
    "gcloud", "compute", "tpus", "tpu-vm", "ssh", "pod", "--zone=here",
    "--worker=all",
  ]  # fmt: skip
  command = lines[8].removeprefix("--command=cd fedjax_opt && ")
  parts = subprocess.run(
    ["bash", "-c", f"printf '%s\\n' {command}"],
    capture_output=True, text=True, check=True,
  ).stdout.splitlines()  # fmt: skip
  assert parts[-3:] == ["--resume", "--task=digits", note]
  assert start(stubs, "tpu_pod.sh", "pod")[0] == 2
