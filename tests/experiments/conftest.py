"""What the tests of the runner share."""

import pytest
from absl.testing import flagsaver

import experiments.run_flags  # noqa: F401 (it defines the flags)
from experiments import command_line


@pytest.fixture
def flags_of():
  """`(*arguments) -> {flag: value}`, each call from the defaults."""

  def flags_of(*arguments):
    with flagsaver.flagsaver():
      return command_line.parse(["run", *arguments], "")

  return flags_of
