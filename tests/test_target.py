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
from fedjax_opt.arrays import norms
from fedjax_opt.engine import chunks, programs
from tests.helpers import jax_problems
from tests.helpers.refusals import refusal

TASK = jax_problems.softmax()


def simulator(**options):
  algorithm = fo.fed_avg(TASK.loss_fn, optax.sgd(0.1))
  defaults = {"cohort_size": 3, "batch_size": 4, "local_steps": 2}
  return fo.Simulator(algorithm, TASK.data, **defaults | options)


def device(platform):
  return types.SimpleNamespace(platform=platform)


def per_example(params, batch):
  return {"loss": TASK.loss_fn(params, batch, None)}


def use(*arguments):
  with target.use(*arguments):
    pass


EVALUATE = fo.evaluation.federated(per_example)


def test_compile_gives_the_programs_of_a_run(monkeypatch):
  """No array is put on devices that are elsewhere."""

  def refuse(*args, **kwargs):
    raise AssertionError("an array was put on a device")

  programs.clear()
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
  monkeypatch.setattr(programs, "compiled", compiled)
  with target.use([device(name)]):
    assert target.platform() == platform
    assert chunks.fastest_vmapped(None, 1) is None
    programs.run_once(jnp.sin)(1.0)
    assert compiled.call_args.args[-1] is None  # No option of the CPU.
  assert target.platform() == jax.default_backend()


@pytest.mark.parametrize(
  ("devices", "names"),
  [([], "are of []"), ([device("tpu"), device("cuda")], "'cuda', 'tpu'")],
)
def test_devices_are_of_one_platform(devices, names):
  message = refusal(use, devices)
  assert message.startswith("devices: must be one or more")
  assert names in message


@pytest.mark.parametrize(
  "devices", [["cpu"], None, jax.devices()[0], np.zeros(()), jax.numpy.ones(3)]
)
def test_devices_are_a_list_of_devices(devices):
  message = refusal(use, devices, kind=TypeError)
  assert message.startswith("devices=")
  assert "must be a list of devices, as" in message


@pytest.mark.parametrize("number", [0, 1.5, "8 GB", float("nan")])
def test_memory_is_a_number_of_bytes(number):
  assert refusal(use, jax.devices(), number).startswith("memory_bytes=")


# What is computed otherwise there.

TREE = {"a": np.arange(6.0, dtype=np.float32).reshape(2, 3), "b": np.ones(4)}


@pytest.mark.parametrize("worst", [0.0, np.inf, np.nan])
def test_sums_over_trees_are_the_same_on_accelerators(worst):
  tree = jax.tree.map(jnp.float32, TREE | {"c": worst})
  cpu = norms.norm(tree), norms.distance(tree, TREE | {"c": 1.0})
  finite = norms.all_finite(tree)
  with target.use([device("cuda")]):
    assert len(norms.joined(jax.tree.leaves(tree))) == 1
    gpu = norms.norm(tree), norms.distance(tree, TREE | {"c": 1.0})
    assert norms.all_finite(tree) == finite
  np.testing.assert_allclose(gpu, cpu, rtol=1e-6)


def test_large_trees_stay_in_leaves():
  leaves = [jnp.zeros(1 << 20), jnp.zeros(2)]
  with target.use([device("cuda")]):
    assert [leaf.size for leaf in norms.joined(leaves)] == [1 << 20, 2]
    assert norms.joined([]) == []


@pytest.mark.parametrize("reuse_gradients", [False, True])
@pytest.mark.default_cases("True")
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


# Norms of trees: the number, whatever the shapes and types.


X = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([[-2.0], [4.0]])}
Y = {"a": np.ones((2, 3)), "b": np.array([[0.5], [1.0]])}


def cast(tree, dtype):
  return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), tree)


@pytest.mark.parametrize(
  ("dtype", "rtol", "result"),
  [
    ("bfloat16", 1e-6, "float32"),
    ("float32", 1e-6, "float32"),
    ("float64", 1e-14, "float64"),
  ],
)
def test_norm_and_distance(dtype, rtol, result):
  with jax.enable_x64(dtype == "float64"):
    x, y = cast(X, dtype), cast(Y, dtype)
    actual = norms.norm(x), norms.distance(x, y)
    flat = norms.distance(norms.flat(x), y), norms.distance(x, norms.flat(y))
    np.testing.assert_array_equal(flat, [actual[1]] * 2)
    assert {number.dtype for number in actual} == {jnp.dtype(result)}
    x, y = jax_problems.flat(X), jax_problems.flat(Y)
    expected = np.linalg.norm(x), np.linalg.norm(x - y)
    np.testing.assert_allclose(actual, expected, rtol=rtol)


def test_an_empty_tree_has_length_0():
  assert norms.norm({}) == 0
  assert norms.distance({}, {}) == 0
