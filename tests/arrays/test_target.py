"""Programs for devices that are elsewhere: here for those that are at hand."""

import types
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import target
from fedjax_opt.engine import chunks, compilation
from tests.helpers import jax_problems, refusals

TASK = jax_problems.softmax()


def simulator(**options):
  algorithm = fo.fed_avg(TASK.loss_fn, optax.sgd(0.1))
  defaults = {"cohort_size": 3, "batch_size": 4, "local_steps": 2}
  return fo.Simulator(algorithm, TASK.data, **defaults | options)


def device(platform):
  return types.SimpleNamespace(platform=platform)


def use(*arguments):
  with target.use(*arguments):
    pass


EVALUATE = fo.evaluation.federated(TASK.per_example)


@pytest.mark.slow
def test_compile_gives_the_programs_of_a_run(monkeypatch):
  """No array is put on devices that are elsewhere."""

  def refuse(*args, **kwargs):
    raise AssertionError("an array was put on a device")

  compilation.clear()
  monkeypatch.setattr(jax, "device_put", refuse)
  with target.use(jax.devices()):
    assert target.is_elsewhere()
    assert target.device_bytes() is None
    compiled = simulator(evaluate=EVALUATE).compile(TASK.params)
    assert sorted(simulator().compile(TASK.params)) == ["rounds"]
  assert not target.is_elsewhere()
  assert sorted(compiled) == ["evaluation", "rounds"]
  for program in compiled.values():
    assert program.memory_analysis().temp_size_in_bytes > 0


@pytest.mark.slow
def test_a_simulator_that_compiled_for_devices_elsewhere_still_runs():
  sim = simulator(evaluate=EVALUATE)
  with target.use(jax.devices()[:1]):
    sim.compile(TASK.params)
  state, metrics = sim.run(sim.init(TASK.params), rounds=1)
  fresh_sim = simulator(evaluate=EVALUATE)
  assert metrics == fresh_sim.run(fresh_sim.init(TASK.params), rounds=1)[1]
  assert state.round == 1


def test_nothing_is_run_on_devices_that_are_elsewhere():
  algorithm = fo.fed_avg(TASK.loss_fn, optax.sgd(0.1))
  sim = simulator()
  state = sim.init(TASK.params)
  with target.use(jax.devices()):
    for run in (
      lambda: TASK.simulate(algorithm, rounds=1, batch_size=4),
      lambda: sim.run(state, rounds=1),
    ):
      with pytest.raises(ValueError, match=r"target.use: its devices are els"):
        run()


@pytest.mark.parametrize(
  ("name", "platform"), [("cuda", "gpu"), ("gpu", "gpu"), ("tpu", "tpu")]
)
def test_what_is_chosen_by_platform_is_that_of_the_target(
  name, platform, monkeypatch
):
  compiled = Mock()
  monkeypatch.setattr(compilation, "compiled", compiled)
  with target.use([device(name)]):
    assert target.platform() == platform
    assert chunks.fastest_vmapped(None, 1) is None
    compilation.quickly_compiled(jnp.sin)(1.0)
    assert compiled.call_args.args[-1] is None  # No option of the CPU.
  assert target.platform() == jax.default_backend()


test_is_refused = refusals.of_table("target.txt", use, device)


# What is computed otherwise there.


@pytest.mark.parametrize("reuse_gradients", [False, True])
@pytest.mark.slow
def test_delta_sgd_takes_the_same_steps_on_accelerators(reuse_gradients):
  """There it stores its point in a form that need not be copied."""

  def points():
    rule = fo.delta_sgd(reuse_gradients=reuse_gradients)
    grad = jax.grad(lambda x: jnp.sum(x["a"] ** 4) + jnp.sum(x["b"] ** 2))
    x = {"a": jnp.array([1.0, -0.5]), "b": jnp.ones((2, 2))}
    state, values = rule.init(x), []
    for _ in range(6):
      updates, state = rule.update(grad(x), state, x, grad_fn=grad)
      x = optax.apply_updates(x, updates)
      values += [x, state.step_size, state.count, state.params]
    return values

  cpu = points()
  with target.use([device("cuda")]):
    gpu = points()
  for a, b in zip(jax.tree.leaves(cpu), jax.tree.leaves(gpu), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5)
