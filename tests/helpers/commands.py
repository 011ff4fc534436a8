"""The command line as the tests call it."""

import csv
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

from experiments import run, tasks
from experiments.command_line import parser
from experiments.single_run import job
from experiments.specification.resolve import resolve
from tests.helpers.tables_of_calls import read_cases

REPOSITORY = pathlib.Path(run.__file__).parents[1]
# What most tests run: of one program, if nothing else is asked for.
SMALL = ("--task=digits_logistic", "--num_clients=20", "--cohort_size=4")


def call(*arguments, program=run):
  """What the command does, in this process: its exit status."""
  return program.main([program.__name__, *arguments])


def printed(capsys, *arguments, program=run):
  """What is printed, and nothing else done."""
  with pytest.raises(SystemExit) as stop:
    call(*arguments, program=program)
  assert not stop.value.code
  return capsys.readouterr()


def new_python(*arguments, cwd=REPOSITORY, **variables):
  """What a new Python prints and says, with these environment variables."""
  process = subprocess.run(
    [sys.executable, *arguments], cwd=cwd, env=os.environ | variables,
    capture_output=True, text=True,
  )  # fmt: skip
  assert process.returncode == 0, process.stderr
  return process


def flags_of_line(*arguments):
  """{flag: value}, each call from the defaults."""
  return parser.parse(["run", *arguments])


def spec_of(*arguments):
  """What a command line specifies."""
  return resolve(flags_of_line(*arguments))


def prepare(*arguments):
  """The job of a command line."""
  return job.prepare(spec_of(*arguments))


def task_of(*arguments):
  """The task of a command line, loaded."""
  return tasks.load_task(spec_of(*arguments))


def read_json(path):
  """Strict JSON: no NaN, no Infinity, no name twice."""

  def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")

  def unique(pairs):
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)

  text = path.read_text()
  return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


def summary_of(folder):
  """What a run wrote of its end."""
  return read_json(folder / "summary.json")


def config_of(folder):
  """What a run wrote of its beginning."""
  return read_json(folder / "config.json")


def rows_of(file):
  """The rows of a CSV file, {column: cell}."""
  with open(file, newline="") as opened:
    return list(csv.DictReader(opened))


def table(section):
  """Cases of a section of tables.txt."""
  return read_cases("experiments/single_run/tables.txt", section)


def wait_for(process, condition, *, may_end=False):
  """Waits until a condition holds, or the process ends where it may."""
  deadline = time.monotonic() + 600
  while process.poll() is None and not condition():
    assert time.monotonic() < deadline
    time.sleep(0.002)
  assert may_end or condition(), process.communicate()


def free_address():
  """HOST:PORT of this machine, for processes that are told of each other."""
  with socket.socket() as free:
    free.bind(("localhost", 0))
    return f"localhost:{free.getsockname()[1]}"


def start(*arguments):
  """The command, in a process of its own."""
  return subprocess.Popen(
    [sys.executable, "-m", "experiments.run", *arguments],
    cwd=REPOSITORY,
    env=os.environ | {"JAX_PLATFORMS": "cpu"},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
