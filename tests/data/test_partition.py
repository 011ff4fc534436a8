"""Partition schemes: what each promises, for random pools and clients."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_opt.data import partition, partition_schemes
from tests.helpers import refusals
from tests.helpers.schemes import COMPLETE, LABELLED

pytestmark = pytest.mark.quick

SEED = st.integers(0, 2**31)
POOL = st.integers(60, 300).flatmap(
  lambda n: st.builds(
    lambda classes, seed: np.random.default_rng(seed).integers(classes, size=n),
    st.integers(1, 10),
    SEED,
  )
)
CLIENTS = st.integers(1, 30)
quick = settings(max_examples=25, deadline=None)

BALANCED = np.repeat(np.arange(10), 100)


def counts_of(rows, labels=BALANCED):
  """[M, classes], the examples of each class at each client."""
  return np.array([np.bincount(labels[r], minlength=10) for r in rows])


# Parameters at the ends of what is accepted, and between.
EXTREME = {
  "dirichlet_disjoint": {
    "alpha": st.sampled_from([1e-12, 1e-3, 0.1, 1e9, 1e30])
  },
  "similarity": {"similarity": st.sampled_from([0.0, 1e-9, 0.5, 1.0])},
  "size_skew": {"size_sigma": st.sampled_from([0.0, 1e-9, 2.0, 30.0, 500.0])},
}


@pytest.mark.parametrize("name", COMPLETE)
@quick
@given(labels=POOL, num_clients=CLIENTS, seed=SEED, draw=st.data())
def test_no_example_is_lost_or_repeated_and_sizes(
  name, labels, num_clients, seed, draw
):
  arguments = COMPLETE[name] | {
    key: draw.draw(values) for key, values in EXTREME.get(name, {}).items()
  }
  rows = partition.split(name, labels, num_clients, seed, **arguments)
  assert len(rows) == num_clients
  assert min(map(len, rows)) >= 1
  np.testing.assert_array_equal(
    np.sort(np.concatenate(rows)), np.arange(len(labels))
  )
  sizes = [len(r) for r in rows]
  assert name not in ("iid", "similarity") or max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", LABELLED)
def test_a_function_of_the_seed_alone(name):
  draw = lambda seed: np.concatenate(
    partition.split(name, BALANCED, 10, seed, **LABELLED[name])
  )
  np.random.seed(0)  # noqa: NPY002
  rows, state = draw(1), np.random.get_state()  # noqa: NPY002
  np.random.seed(1)  # noqa: NPY002
  np.testing.assert_array_equal(rows, draw(1))
  assert not np.array_equal(rows, draw(2))
  np.random.seed(0)  # noqa: NPY002
  untouched = np.random.get_state()  # noqa: NPY002
  np.testing.assert_array_equal(state[1], untouched[1])


@quick
@given(
  labels=POOL,
  num_clients=CLIENTS,
  alpha=st.sampled_from([1e-3, 0.1, 1.0, 1e3]),
  low=st.integers(1, 40),
  extra=st.integers(0, 40),
  tail_cut=st.sampled_from([0.0, 0.1, 0.9]),
  seed=SEED,
)
def test_dirichlet_sizes_and_class_order(
  labels, num_clients, alpha, low, extra, tail_cut, seed
):
  size = (low, low + extra)
  all_rows = partition.dirichlet(labels, num_clients, alpha, size, seed)
  cut = partition.dirichlet(labels, num_clients, alpha, size, seed, tail_cut)
  assert all(low <= len(rows) <= low + extra for rows in all_rows)
  for kept_rows, rows in zip(cut, all_rows, strict=True):
    assert len(kept_rows) == max(1, int((1 - tail_cut) * len(rows) + 1e-9))
    np.testing.assert_array_equal(kept_rows, rows[: len(kept_rows)])
    assert (np.diff(labels[rows]) >= 0).all()


@quick
@given(
  mixture=st.lists(st.floats(1e-3, 1), min_size=1, max_size=100),
  size=st.integers(1, 600),
)
def test_dirichlet_counts_are_exact_and_close(mixture, size):
  q = np.array(mixture) / np.sum(mixture)
  counts = partition_schemes._class_counts(q[None], np.array([size]))[0]
  assert counts.sum() == size
  assert counts.min() >= 0
  assert np.abs(counts - size * q)[:-1].max(initial=0) <= 1.5
  rounded = np.round(size * q).astype(int)
  if rounded[:-1].sum() <= size:  # Where the published rule is well defined.
    np.testing.assert_array_equal(counts[:-1], rounded[:-1])


def test_many_clients_draw_at_once_by_the_same_law(monkeypatch):
  monkeypatch.setattr(partition_schemes, "_ONE_BY_ONE", 1999)
  draw = lambda num_clients: partition.dirichlet(
    BALANCED, num_clients, 0.3, (2, 20), tail_cut=0.1
  )
  of_few, of_many = map(draw, (1999, 2000))
  assert not np.array_equal(of_few[1], of_many[1])
  sizes, largest = [], []
  for rows in (of_few, of_many):
    sizes.append(np.bincount([len(r) for r in rows], minlength=21) / len(rows))
    assert all((np.diff(BALANCED[r]) >= 0).all() for r in rows)
    largest.append((counts_of(rows).max(1) / [len(r) for r in rows]).mean())
  np.testing.assert_allclose(*sizes, atol=0.03)
  np.testing.assert_allclose(*largest, atol=0.02)
  assert len(np.unique(np.concatenate(of_many))) == len(BALANCED)


def test_dirichlet_label_fractions():
  draw = lambda alpha: counts_of(
    partition.dirichlet(BALANCED, 400, alpha, 500, seed=3)
  )
  assert (draw(1e-3).max(axis=1) > 450).mean() > 0.95
  np.testing.assert_allclose(draw(1e3), 50, atol=12)
  # Var[q_c] = (1/C)(1 - 1/C) / (C alpha + 1).
  fractions = draw(1.0) / 500
  np.testing.assert_allclose(fractions.mean(axis=0), 0.1, atol=0.02)
  np.testing.assert_allclose(fractions.var(), 0.09 / 11, rtol=0.1)


def test_tail_cut_removes_the_highest_labels():
  rows = partition.dirichlet(BALANCED, 4000, 1.0, 500, seed=0, tail_cut=0.1)
  counts = counts_of(rows)
  assert (counts.sum(axis=1) == 450).all()
  # E[max(q - 0.1, 0)] / 0.9 for q ~ Beta(1, 9): 3.9 %, and not 10 %.
  share = counts[:, -1].sum() / counts.sum()
  np.testing.assert_allclose(share, 0.9**9 / 10, atol=0.004)


def test_dirichlet_disjoint_extremes():
  largest_parts = lambda alpha: counts_of(
    partition.dirichlet_disjoint(BALANCED, 20, alpha, seed=0)
  ).max(axis=0)
  assert (largest_parts(1e-3) > 80).mean() > 0.8
  assert largest_parts(1e3).max() <= 12


def test_similarity_shares_that_fraction():
  draw = lambda fraction: counts_of(
    partition.similarity(BALANCED, 10, fraction, seed=0)
  )
  assert (draw(0.0) > 0).sum(axis=1).max() <= 2
  assert (draw(1.0) > 0).all()
  own_share = np.mean(draw(0.4).max(axis=1) / 100)
  np.testing.assert_allclose(own_share, 0.6 + 0.04, atol=0.06)


@pytest.mark.parametrize(
  ("fraction", "size", "num_own"),
  [(0.1, 5000, 500), (0.35, 4999, 1750), (0.6, 4998, 3000), (0.85, 4997, 4250)],
)
def test_class_q_sizes(fraction, size, num_own):
  labels = np.repeat(np.arange(10), 5000)
  rows = partition.class_q(labels, 10, fraction, seed=0)
  assert {len(r) for r in rows} == {size}
  assert len(np.unique(np.concatenate(rows))) == 10 * size
  num_other = (5000 - num_own) // 9
  expected = np.full((10, 10), num_other) + (num_own - num_other) * np.eye(10)
  np.testing.assert_array_equal(counts_of(rows, labels), expected)


def test_class_q_balances_classes_first():
  labels = np.repeat([0, 1, 2], [40, 30, 50])
  rows = partition.class_q(labels, 3, 1.0, seed=0)
  assert [len(r) for r in rows] == [30, 30, 30]


def test_shards_hold_few_labels():
  labels = np.random.default_rng(0).permutation(BALANCED)
  counts = counts_of(partition.shards(labels, 50, 2, seed=0), labels)
  assert (counts.sum(axis=1) == 20).all()
  assert (counts > 0).sum(axis=1).max() <= 2


def test_size_skew_is_log_normal():
  labels = np.zeros(200_000, int)
  draw = lambda sigma: partition.size_skew(labels, 500, sigma, seed=0)
  sizes = lambda sigma: np.array([len(rows) for rows in draw(sigma)])
  np.testing.assert_allclose(np.std(np.log(sizes(1.0))), 1.0, atol=0.1)
  assert (sizes(0.0) == 400).all()
  assert sizes(1e4).sum() == 200_000


def test_natural_groups_by_id():
  rows = partition.natural(["b", "a", "b", "c"])
  assert [r.tolist() for r in rows] == [[1], [0, 2], [3]]
  rows = partition.split("natural", None, None, client_ids=np.array([7, 3, 7]))
  assert [r.tolist() for r in rows] == [[1], [0, 2]]
  for dtype in (object, "string", "category"):
    rows = partition.natural(pd.Series(["b", "a", "b"], dtype=dtype))
    assert [r.tolist() for r in rows] == [[1], [0, 2]]


def test_every_scheme_is_tested():
  assert set(LABELLED) == set(partition.SCHEMES) - {"natural"}


L = np.repeat(np.arange(3), 4)


test_is_refused = refusals.of_table("partition.txt", partition, pd=pd, L=L)
