"""The command line as the tests call it."""

import os
import pathlib
import subprocess
import sys

from experiments import job, run, tasks
from experiments.command_line import parser
from experiments.specification.resolve import resolve

REPOSITORY = pathlib.Path(run.__file__).parents[1]


def call(*arguments, program=run):
  """What the command does, in this process: its exit status."""
  return program.main([program.__name__, *arguments])


def given(*arguments):
  """{flag: value}, each call from the defaults."""
  return parser.parse(["run", *arguments])


def spec_of(*arguments):
  """What a command line specifies."""
  return resolve(given(*arguments))


def prepare(*arguments):
  """The job of a command line."""
  return job.prepare(spec_of(*arguments))


def task_of(*arguments):
  """The task of a command line, loaded."""
  return tasks.load(spec_of(*arguments))


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
