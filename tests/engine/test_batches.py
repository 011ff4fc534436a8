"""Every client goes through its own examples as it should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_opt.engine.batches import draw_batches, first_of_shuffle, shuffle
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


def test_every_epoch_visits_each_example_once():
  plan = BatchPlan.create(np.array(SIZES), 4, epochs=3)
  assert not plan.needs_no_mask
  for m, steps in enumerate(draw(plan, SIZES)):
    per_epoch = -(-SIZES[m] // 4)
    assert len(steps) == 3 * per_epoch
    epochs = [
      np.concatenate(steps[e * per_epoch : (e + 1) * per_epoch] or [[]])
      for e in range(3)
    ]
    for rows in epochs:
      np.testing.assert_array_equal(
        np.sort(rows), 100 * m + np.arange(SIZES[m])
      )
    if SIZES[m] > 5:  # A new order in each epoch.
      assert not np.array_equal(epochs[0], epochs[1])


def test_drop_remainder_takes_full_batches_of_distinct_examples():
  plan = BatchPlan.create(np.array(SIZES), 4, epochs=2, drop_remainder=True)
  drawn = draw(plan, SIZES)
  assert [len(steps) for steps in drawn] == [2, 6, 0, 4, 0]
  for m, steps in enumerate(drawn):
    per_epoch = SIZES[m] // 4
    for e in range(2):
      epoch = np.ravel(steps[e * per_epoch : (e + 1) * per_epoch])
      assert len(epoch) == len(set(epoch)) == 4 * per_epoch
      assert set(epoch) <= set(100 * m + np.arange(SIZES[m]))


def test_steps_go_on_into_further_epochs():
  plan = BatchPlan.create(np.array(SIZES), 4, steps=5)
  drawn = draw(plan, SIZES)
  assert [len(steps) for steps in drawn] == [5, 5, 5, 5, 0]
  assert [len(rows) for rows in drawn[0]] == [4, 3, 4, 3, 4]


def test_replacement_repeats_examples_of_the_client():
  plan = BatchPlan.create(np.array(SIZES[:4]), 4, steps=200, replacement=True)
  assert plan.needs_no_mask
  for m, steps in enumerate(draw(plan, SIZES[:4])):
    values, counts = np.unique(np.ravel(steps), return_counts=True)
    np.testing.assert_array_equal(values, 100 * m + np.arange(SIZES[m]))
    expected = 800 / SIZES[m]
    assert abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize(
  ("epochs", "steps"), [(0.5, 49), (1, 98), (2, 196), (1.5, 147), (0.001, 1)]
)
def test_fractions_of_epochs_are_rounded_up(epochs, steps):
  size = np.array([3125])
  plan = BatchPlan.create(size, 32, epochs=epochs)
  assert plan.max_steps == steps
  assert plan.num_steps(jnp.asarray(size)) == steps
  assert plan.num_steps(np.array([0])) == 0


def test_padding_of_the_list_is_inert():
  plan = BatchPlan.create(np.array(SIZES), 4, epochs=1.5)
  narrow, wide = draw(plan, SIZES), draw(plan, SIZES, n_max=99)
  jax.tree.map(np.testing.assert_array_equal, narrow, wide)


def orders(n_max, size, num_orders):
  epochs = jnp.arange(num_orders)
  key = jax.random.key(1)
  return np.asarray(
    jax.jit(jax.vmap(lambda e: shuffle(key, e, n_max, size)))(epochs)
  )


@pytest.mark.parametrize("n_max", [6, 5000], ids=["packed", "pairs"])
def test_shuffle_is_uniform(n_max):
  size, repeats = 5, 400 if n_max == 5000 else 4000
  drawn = orders(n_max, size, repeats)[:, :size]
  np.testing.assert_array_equal(np.sort(drawn, 1), [range(size)] * repeats)
  table = np.stack([np.sum(drawn == v, axis=0) for v in range(size)])
  expected = repeats / size
  chi_squared = np.sum((table - expected) ** 2) / expected
  assert chi_squared < 39.3  # 99.9 % of chi^2 with 16 degrees of freedom.


@pytest.mark.parametrize("n_max", [4096, 4097])
def test_shuffle_of_long_lists_keeps_the_padding_last(n_max):
  (order,) = orders(n_max, 4000, 1)
  np.testing.assert_array_equal(np.sort(order), np.arange(n_max))
  np.testing.assert_array_equal(np.sort(order[:4000]), np.arange(4000))
  assert abs(np.corrcoef(order[:4000], np.arange(4000))[0, 1]) < 0.06


@pytest.mark.parametrize(
  ("n_max", "count"), [(9, 4), (4096, 7), (5000, 1), (5000, 17), (5000, 4999)]
)
def test_the_first_of_a_shuffle(n_max, count):
  for seed in range(3):
    key = jax.random.key(seed)
    whole = jax.jit(shuffle, static_argnums=2)(key, 1, n_max, n_max)
    first = jax.jit(first_of_shuffle, static_argnums=(2, 3))
    np.testing.assert_array_equal(first(key, 1, n_max, count), whole[:count])


def test_the_first_of_a_shuffle_where_keys_are_tied(monkeypatch):
  bits = lambda key, shape, dtype: jnp.arange(5000, dtype=dtype) % 7
  monkeypatch.setattr(jax.random, "bits", bits)
  key = jax.random.key(0)
  for count in (3, 800, 2500):
    np.testing.assert_array_equal(
      first_of_shuffle(key, 0, 5000, count),
      shuffle(key, 0, 5000, 5000)[:count],
    )
