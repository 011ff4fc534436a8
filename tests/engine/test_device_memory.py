"""A device whose memory is too small."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.engine import compilation
from tests.helpers import jax_problems

TASK = jax_problems.softmax()
FULL = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2000 bytes."


def run(**options):
  algorithm = fo.fed_avg(TASK.loss_fn, optax.sgd(0.1))
  defaults = {"rounds": 2, "cohort_size": 3, "batch_size": 4, "local_steps": 2}
  return fo.simulate(algorithm, TASK.params, TASK.data, **defaults | options)


def fails(monkeypatch, text):
  """Has the programs of rounds fail as they are called."""
  call_program = jax.stages.Compiled.__call__

  def call(program, *inputs):
    if len(inputs) < 4:  # It makes the initial model.
      return call_program(program, *inputs)
    raise jax.errors.JaxRuntimeError(text)

  monkeypatch.setattr(jax.stages.Compiled, "__call__", call)


def test_running_out_is_one_line_that_says_what_to_change(monkeypatch):
  fails(monkeypatch, FULL)
  monkeypatch.setattr(fo.target, "device_bytes", lambda: 15.9e9)
  with pytest.raises(MemoryError) as raised:
    run(client_chunk=3, client_map="vmap")
  assert str(raised.value).startswith(
    "a device's memory is too small: a program needs 0.0 GB of 15.9 GB; try "
  )


@pytest.mark.slow
def test_other_failures_are_not_taken_for_it(monkeypatch):
  fails(monkeypatch, "INTERNAL: something else")
  with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
    run()


@pytest.mark.slow
def test_what_will_not_fit_is_told_before_it_runs(monkeypatch, recwarn):
  run()
  assert not recwarn
  monkeypatch.setattr(fo.target, "device_bytes", lambda: 100)
  with pytest.warns(UserWarning, match="memory is too small: a program needs"):
    run()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["memory", "disk"])
def test_auto_takes_fewer_clients_than_do_not_fit(monkeypatch, tmp_path, where):
  """By what the compiled program needs, which the model does not tell.

  What was chosen gives the same bits to a run that has more memory.
  """

  weights = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)

  def loss_fn(params, batch, rng):  # [B], of large activations
    activations = jnp.tanh(batch["x"][:, None] * params["w"] @ weights)
    return jnp.mean(jnp.tanh(activations @ weights.T), 1) - batch["y"]

  examples = {"x": np.arange(48.0, dtype=np.float32), "y": np.ones(48)}
  data = fo.ClientData.from_partition(examples, np.arange(44).reshape(11, 4))
  if where == "disk":
    data = fo.Population.of_client_data(tmp_path / "population", data)
  run = functools.partial(
    fo.simulate, fo.fed_avg(loss_fn, optax.sgd(0.1)),
    {"w": jnp.ones(3)}, data, rounds=5, eval_every=2, batch_size=4,
  )  # fmt: skip
  result = run()
  assert result.computation["client_chunk"] == 11
  with monkeypatch.context() as patch:
    memory = result.needed_bytes // 3
    patch.setattr(fo.target, "device_bytes", lambda: memory)
    limited = run()
  assert limited.needed_bytes <= memory
  assert limited.computation["client_chunk"] in (2, 3, 4)
  repeated = run(**limited.computation)
  assert repeated.needed_bytes == limited.needed_bytes
  np.testing.assert_array_equal(repeated.params["w"], limited.params["w"])


@pytest.mark.slow
def test_auto_takes_fewer_clients_where_the_compiler_says_so(monkeypatch):
  """As that of a TPU does."""
  calls, compiled = [], compilation.compiled

  def compile(*arguments):
    calls.append(None)
    if len(calls) < 3:
      raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: hbm")
    return compiled(*arguments)

  monkeypatch.setattr(compilation, "compiled", compile)
  assert run(cohort_size=5).computation["client_chunk"] == 1  # 5, 2, 1.
  calls.clear()
  with pytest.raises(MemoryError, match="a device's memory is too small"):
    run(cohort_size=5, client_map="vmap")
