"""A device whose memory is too small."""

import jax
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import processes
from fedjax_opt.engine import programs
from tests import jax_problems
from tests.experiments.commands import call

TASK = jax_problems.softmax()
FULL = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2000 bytes."


def run(**settings):
  algorithm = fo.fed_avg(TASK.loss_fn, optax.sgd(0.1))
  defaults = {"rounds": 2, "cohort_size": 3, "batch_size": 4, "local_steps": 2}
  return fo.simulate(algorithm, TASK.params, TASK.data, **defaults | settings)


def fails(monkeypatch, text):
  """Has the programs of rounds fail as they are called."""
  before = jax.stages.Compiled.__call__

  def call(program, *inputs):
    if len(inputs) < 4:  # It makes the initial model.
      return before(program, *inputs)
    raise jax.errors.JaxRuntimeError(text)

  monkeypatch.setattr(jax.stages.Compiled, "__call__", call)


def test_running_out_is_one_line_that_says_what_to_change(monkeypatch):
  fails(monkeypatch, FULL)
  monkeypatch.setattr(processes, "device_bytes", lambda: 15.9e9)
  with pytest.raises(MemoryError) as raised:
    run(client_chunk=3, client_map="vmap")
  assert str(raised.value).startswith(
    "a device's memory is too small: a program needs 0.0 GB of 15.9 GB; try "
  )


def test_other_failures_are_not_taken_for_it(monkeypatch):
  fails(monkeypatch, "INTERNAL: something else")
  with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
    run()


def test_what_will_not_fit_is_told_before_it_runs(monkeypatch, recwarn):
  run()
  assert not recwarn
  programs.clear()
  monkeypatch.setattr(processes, "device_bytes", lambda: 100)
  with pytest.warns(UserWarning, match="memory is too small: a program needs"):
    run()


def test_on_the_command_line(monkeypatch, tmp_path, capsys):
  fails(monkeypatch, FULL)
  folder = tmp_path / "run"
  given = ("--task=digits_logistic", "--rounds=2", f"--output_dir={folder}")
  assert call(*given) == 1
  line = capsys.readouterr().err.splitlines()[-1]
  assert line.startswith("error: a device's memory is too small: a program")
  assert line.endswith(f"is kept; see {folder}")
