"""A refusal is one line; a defect keeps its traceback, also from a worker."""

import pathlib

import numpy as np
import pytest

from experiments.command_line import exits
from experiments.processes import workers
from experiments.processes.command import RunFailed
from experiments.processes.failures import CellFailed
from experiments.specification.choice_flags import check_absent
from fedjax_opt import samplers


def _refused(kind, shared=None):
  """Raises what a check, or a library, raises."""
  if kind == "package":
    samplers.poisson(-1)
  if kind == "commands":
    check_absent({"alpha": 1.0}, "a test has none", "alpha")
  if kind == "file":
    pathlib.Path("/no/such/file").read_text()
  return np.zeros(3) + np.zeros(4)


@pytest.mark.parametrize(
  ("kind", "line"),
  [
    ("package", "error: expected=-1: must be above 0\n"),
    ("commands", "error: --alpha=1: a test has none; leave --alpha out\n"),
    ("file", "error: [Errno 2] No such file or directory: '/no/such/file'\n"),
  ],
)
def test_what_a_command_refuses_is_one_line(capsys, kind, line):
  work = lambda: _refused(kind)
  assert exits.run_program(["compare", "--alpha=1"], work, lambda: "") == 1
  assert capsys.readouterr().err == line


def test_a_defect_is_raised_and_not_shown_as_bad_input(capsys):
  with pytest.raises(ValueError, match="operands could not be broadcast"):
    exits.run_program(["compare"], lambda: _refused("defect"), lambda: "")
  assert not capsys.readouterr().err


def test_an_error_of_a_worker_is_a_line_or_has_its_traceback():
  run = lambda kind: list(workers.map_cells(_refused, [kind, kind], None, 2))
  with pytest.raises(RunFailed, match=r"^expected=-1: must be above 0$"):
    run("package")
  with pytest.raises(CellFailed, match=r"(?s)Traceback.*np\.zeros.*broadcast"):
    run("defect")
