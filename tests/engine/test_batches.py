"""Every client goes through its own examples as it should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_opt.engine.batches import draw_batches
from fedjax_opt.engine.plan import BatchPlan

DRAW = jax.jit(draw_batches, static_argnums=0)


def draw(plan, sizes, n_max=None, seed=0):
  """The batches of clients that own 100 m, 100 m + 1, ...: lists of arrays."""
  sizes = np.asarray(sizes, np.int32)
  n_max = n_max or sizes.max()
  indices = 100 * np.arange(len(sizes))[:, None] + np.arange(n_max)
  indices = np.where(np.arange(n_max) < sizes[:, None], indices, 0)
  keys = jax.random.split(jax.random.key(seed), len(sizes))
  drawn = DRAW(plan, keys, jnp.asarray(indices), jnp.asarray(sizes))
  rows, counts, num_steps = jax.device_get(drawn)
  assert rows.shape == (len(sizes), plan.max_steps, plan.batch_size)
  past = np.arange(plan.max_steps) >= num_steps[:, None]
  assert (counts[past] == 0).all()
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
  for m, (steps, same) in enumerate(zip(drawn, wider, strict=True)):
    own = 100 * m + np.arange(sizes[m])
    assert len(steps) == plan.num_steps(np.array(sizes))[m]
    per_epoch = max(1, int(plan.steps_per_epoch(sizes[m])))
    for e in range(0, len(steps), per_epoch):
      rows = np.concatenate(steps[e : e + per_epoch])
      assert set(rows) <= set(own)
      assert plan.replacement or len(set(rows)) == len(rows)
      if not plan.drop_remainder and not plan.replacement:
        whole = len(steps[e : e + per_epoch]) == per_epoch
        assert not whole or len(rows) == sizes[m]
    # Padding of the lists changes no draw.
    for one, other in zip(steps, same, strict=True):
      np.testing.assert_array_equal(one, other)


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
  assert plan.needs_no_mask
  for m, steps in enumerate(draw(plan, SIZES[:4])):
    values, counts = np.unique(np.ravel(steps), return_counts=True)
    np.testing.assert_array_equal(values, 100 * m + np.arange(SIZES[m]))
    expected = 800 / SIZES[m]
    assert abs(counts - expected).max() < 5 * np.sqrt(expected)
