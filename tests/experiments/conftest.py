"""What the tests of the runner share."""

import pytest

from experiments.flags import command_line


@pytest.fixture
def flags_of():
  """`(*arguments) -> {flag: value}`, each call from the defaults."""

  def flags_of(*arguments):
    return command_line.parse(["run", *arguments], "")

  return flags_of
