"""The steps that clients take, alike on host and device, and their batches."""

import fractions
import gc
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.extend.core import Jaxpr

from fedjax_opt import ClientData
from fedjax_opt.engine.batch_plan import BatchPlan
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced.batches import draw_batches

pytestmark = pytest.mark.quick

LARGEST = 2**31 - 1
FRACTIONS = [1e-12, 0.001, 0.1, 0.3, 1 / 3, 0.7, 0.123456789, 1 - 2**-53]


def exact(epochs, per_epoch):
  """In rational numbers; who is above a whole number by 1e-4 takes a step."""
  product = fractions.Fraction(epochs) * per_epoch
  excess = product - math.floor(product)
  # Between these both are right: 48 bits of the fraction count.
  lower, upper = fractions.Fraction(6, 2**16), fractions.Fraction(8, 2**16)
  floor = math.floor(product)
  return {floor + int(excess > lower), floor + int(excess > upper)}


def both(plan, sizes):
  """The steps by NumPy, which are those by JAX."""
  sizes = np.asarray(sizes, np.int32)
  steps = np.asarray(plan.num_steps(sizes))
  np.testing.assert_array_equal(steps, plan.num_steps(jnp.asarray(sizes)))
  return steps


def plan_of(epochs, batch_size=1, drop_remainder=False):
  return BatchPlan(batch_size, epochs, None, False, drop_remainder)


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_numpy_and_jax_agree_at_every_size(fraction):
  """In float32 the device had others from 46,357,070 examples on, at 0.1."""
  rng = np.random.default_rng(0)
  sizes = np.unique(np.r_[:5000, rng.integers(1, LARGEST, 5000), LARGEST])
  all_steps = both(plan_of(fraction), sizes)
  for size, steps in list(zip(sizes.tolist(), all_steps.tolist(), strict=True))[
    ::97
  ]:
    assert steps in exact(fraction, size), (fraction, size)


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.25, 0.3, 0.5, 0.7, 0.95])
def test_a_decimal_fraction_is_that_fraction(fraction):
  """0.3 of 10 batches are 3, and of 11 they are 4."""
  sizes = np.arange(1, 20_001)
  decimal = fractions.Fraction(str(fraction))
  expected = [math.ceil(decimal * int(size)) for size in sizes]
  np.testing.assert_array_equal(both(plan_of(fraction), sizes), expected)


@settings(max_examples=40, deadline=None)
@given(
  sizes=st.lists(st.integers(0, LARGEST // 4), min_size=3, max_size=3),
  batch_size=st.integers(1, 5000),
  epochs=st.floats(1e-6, 3.999),
  drop_remainder=st.booleans(),
)
@example([0, 10, 46_357_070], 1, 0.1, False)
@example([1, 2, LARGEST // 4], 1, 3.999, False)
def test_any_plan(sizes, batch_size, epochs, drop_remainder):
  plan = plan_of(epochs, batch_size, drop_remainder)
  whole_epochs, fraction = divmod(epochs, 1.0)
  for size, steps in zip(sizes, both(plan, sizes).tolist(), strict=True):
    batches = size / batch_size
    per_epoch = math.floor(batches) if drop_remainder else math.ceil(batches)
    assert steps - int(whole_epochs) * per_epoch in exact(fraction, per_epoch)


@settings(max_examples=30, deadline=None)
@given(
  sizes=st.lists(st.integers(0, 10**6), min_size=1, max_size=8),
  batch_size=st.integers(1, 1000),
  epochs=st.floats(1e-3, 50),
)
def test_the_bounds_of_a_plan_hold(sizes, batch_size, epochs):
  sizes = np.array([*sizes, 10**6], np.int32)
  plan = BatchPlan.create(sizes, batch_size, epochs=epochs)
  steps = plan.num_steps(sizes)
  assert (plan.min_steps, plan.max_steps) == (steps.min(), steps.max())
  passes = np.ceil(steps / np.maximum(plan.steps_per_epoch(sizes), 1))
  assert plan.max_epochs == passes.max()
  assert np.all(steps * plan.batch_size <= np.iinfo(np.int32).max)
  assert steps[-1] >= epochs * plan.steps_per_epoch(10**6) - 1e-3


# Every client goes through its own examples as it should.


DRAW = jax.jit(draw_batches, static_argnums=0)


def draw(plan, sizes, n_max=None, seed=0):
  """The batches of clients that own 100 m, 100 m + 1, ...: lists of arrays."""
  sizes = np.asarray(sizes, np.int32)
  n_max = n_max or sizes.max()
  indices = 100 * np.arange(len(sizes))[:, None] + np.arange(n_max)
  indices = np.where(np.arange(n_max) < sizes[:, None], indices, 0)
  keys = jax.random.split(jax.random.key(seed), len(sizes))
  batches = DRAW(plan, keys, jnp.asarray(indices), jnp.asarray(sizes))
  rows, counts, num_steps = jax.device_get(batches)
  assert rows.shape == (len(sizes), plan.max_steps, plan.batch_size)
  is_past = np.arange(plan.max_steps) >= num_steps[:, None]
  assert (counts[is_past] == 0).all()
  return [
    [rows[m, k, : counts[m, k]] for k in range(num_steps[m])]
    for m in range(len(sizes))
  ]


SIZES = [7, 12, 1, 8, 0]
PLANS = {
  "epochs": {"epochs": 2.5},
  "full": {"epochs": 1.5, "drop_remainder": True},
  "steps": {"steps": 5},
  "replacement": {"steps": 3, "replacement": True},
}


# The plan and the shapes are the same, so that each compiles once.
@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=25, deadline=None)
@given(
  sizes=st.lists(st.integers(0, 12), min_size=4, max_size=4),
  seed=st.integers(0, 10**6),
)
def test_any_sizes(name, sizes, seed):
  """Own examples only, once an epoch, whatever the other clients have."""
  plan = BatchPlan.create(np.arange(13), 4, **PLANS[name])
  drawn = draw(plan, sizes, 12, seed)
  wider = draw(plan, sizes, 20, seed)
  for m, (steps, wider_steps) in enumerate(zip(drawn, wider, strict=True)):
    own_rows = 100 * m + np.arange(sizes[m])
    assert len(steps) == plan.num_steps(np.array(sizes))[m]
    per_epoch = max(1, int(plan.steps_per_epoch(sizes[m])))
    for start in range(0, len(steps), per_epoch):
      rows = np.concatenate(steps[start : start + per_epoch])
      assert set(rows) <= set(own_rows)
      assert plan.replacement or len(set(rows)) == len(rows)
      if not plan.drop_remainder and not plan.replacement:
        is_whole = len(steps[start : start + per_epoch]) == per_epoch
        assert not is_whole or len(rows) == sizes[m]
    # Padding of the lists changes no draw.
    for rows_drawn, wider_rows in zip(steps, wider_steps, strict=True):
      np.testing.assert_array_equal(rows_drawn, wider_rows)


@pytest.mark.parametrize(("sizes", "options", "batch_size"), [
  ([3, 5], {}, 5), ([3, 50], {}, 32), ([3, 50], {"batch_size": 40}, 40),
])  # fmt: skip
def test_the_default_batch_is_at_most_the_largest_client(
  sizes, options, batch_size
):
  owners = np.repeat(np.arange(len(sizes)), sizes)
  data = ClientData.from_client_ids({"x": np.ones(sum(sizes))}, owners)
  assert Config.create(data, options).plan.batch_size == batch_size


def test_steps_go_on_into_further_epochs():
  plan = BatchPlan.create(np.array(SIZES), 4, steps=5)
  drawn = draw(plan, SIZES)
  assert [len(steps) for steps in drawn] == [5, 5, 5, 5, 0]
  assert [len(rows) for rows in drawn[0]] == [4, 3, 4, 3, 4]
  # In a new order in each.
  first, second = (np.concatenate(drawn[1][k : k + 2]) for k in (0, 3))
  assert not np.array_equal(first, second)


def test_replacement_repeats_examples_of_the_client():
  plan = BatchPlan.create(np.array(SIZES[:4]), 4, steps=200, replacement=True)
  assert plan.fills_all_steps
  for m, steps in enumerate(draw(plan, SIZES[:4])):
    values, counts = np.unique(np.ravel(steps), return_counts=True)
    np.testing.assert_array_equal(values, 100 * m + np.arange(SIZES[m]))
    expected = 800 / SIZES[m]
    assert abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.slow
def test_batches_of_other_shapes_leave_no_traces():
  """Each left more than twenty, and JAX keeps all while the process lives."""
  keys = jax.random.split(jax.random.key(0), 7)
  rows, sizes = jnp.zeros((7, 11), jnp.int32), jnp.full(7, 11)

  def trace(steps):
    plan = BatchPlan.create(np.full(7, 11), batch_size=3, steps=steps)
    # A new function, whose own trace goes with it.
    jax.eval_shape(lambda *args: draw_batches(plan, *args), keys, rows, sizes)
    gc.collect()
    return sum(isinstance(x, Jaxpr) for x in gc.get_objects())

  num_traces = trace(5)
  assert trace(6) - num_traces <= 2
