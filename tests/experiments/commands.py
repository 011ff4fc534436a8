"""The command line as the tests call it."""

import os
import pathlib
import subprocess
import sys

from experiments import run

REPOSITORY = pathlib.Path(run.__file__).parents[1]


def call(*arguments, program=run):
  """What the command does, in this process: its exit status."""
  return program.main([program.__name__, *arguments])


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
