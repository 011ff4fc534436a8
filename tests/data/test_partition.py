"""Partition schemes: what each promises, for random pools and clients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_opt.data import partition, partition_schemes

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

# Schemes that promise to use every example exactly once.
COMPLETE = {
  "iid": {},
  "dirichlet_disjoint": {"alpha": 0.1},
  "similarity": {"similarity": 0.3},
  "shards": {"shards_per_client": 2},
  "size_skew": {"size_sigma": 2.0},
}
LABELLED = {
  **COMPLETE,
  "dirichlet": {"alpha": 0.1, "examples_per_client": (5, 9), "tail_cut": 0.1},
  "class_q": {"class_fraction": 0.5},
}


def balanced(num_classes=10, per_class=100):
  return np.repeat(np.arange(num_classes), per_class)


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
  given = COMPLETE[name] | {
    key: draw.draw(values) for key, values in EXTREME.get(name, {}).items()
  }
  rows = partition.split(name, labels, num_clients, seed, **given)
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
    partition.split(name, balanced(), 10, seed, **LABELLED[name])
  )
  np.random.seed(0)  # noqa: NPY002
  first, state = draw(1), np.random.get_state()  # noqa: NPY002
  np.random.seed(1)  # noqa: NPY002
  np.testing.assert_array_equal(first, draw(1))
  assert not np.array_equal(first, draw(2))
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
  whole = partition.dirichlet(labels, num_clients, alpha, size, seed)
  cut = partition.dirichlet(labels, num_clients, alpha, size, seed, tail_cut)
  assert all(low <= len(rows) <= low + extra for rows in whole)
  for kept, rows in zip(cut, whole, strict=True):
    assert len(kept) == max(1, int((1 - tail_cut) * len(rows) + 1e-9))
    np.testing.assert_array_equal(kept, rows[: len(kept)])
    assert (np.diff(labels[rows]) >= 0).all()


@quick
@given(
  mixture=st.lists(st.floats(1e-3, 1), min_size=1, max_size=100),
  size=st.integers(1, 600),
)
def test_dirichlet_counts_are_exact_and_close(mixture, size):
  q = np.array(mixture) / np.sum(mixture)
  counts = partition_schemes._class_counts(q, size)
  assert counts.sum() == size
  assert counts.min() >= 0
  assert np.abs(counts - size * q)[:-1].max(initial=0) <= 1.5
  plain = np.round(size * q).astype(int)
  if plain[:-1].sum() <= size:  # Where the published rule is well defined.
    np.testing.assert_array_equal(counts[:-1], plain[:-1])


def test_dirichlet_label_fractions():
  labels = balanced()
  counts = lambda alpha: np.array(
    [
      np.bincount(labels[r], minlength=10)
      for r in partition.dirichlet(labels, 400, alpha, 500, seed=3)
    ]
  )
  assert (counts(1e-3).max(axis=1) > 450).mean() > 0.95
  np.testing.assert_allclose(counts(1e3), 50, atol=12)
  # Var[q_c] = (1/C)(1 - 1/C) / (C alpha + 1).
  fractions = counts(1.0) / 500
  np.testing.assert_allclose(fractions.mean(axis=0), 0.1, atol=0.02)
  np.testing.assert_allclose(fractions.var(), 0.09 / 11, rtol=0.1)


def test_tail_cut_removes_the_highest_labels():
  labels = balanced()
  rows = partition.dirichlet(labels, 4000, 1.0, 500, seed=0, tail_cut=0.1)
  shares = np.bincount(labels[np.concatenate(rows)], minlength=10)
  assert {len(r) for r in rows} == {450}
  # E[max(q - 0.1, 0)] / 0.9 for q ~ Beta(1, 9): 3.9 %, and not 10 %.
  np.testing.assert_allclose(shares[-1] / shares.sum(), 0.9**9 / 10, atol=0.004)


def test_dirichlet_disjoint_extremes():
  labels = balanced()

  def largest_parts(alpha):
    rows = partition.dirichlet_disjoint(labels, 20, alpha, seed=0)
    return np.max([np.bincount(labels[r], minlength=10) for r in rows], axis=0)

  assert (largest_parts(1e-3) > 80).mean() > 0.8
  assert largest_parts(1e3).max() <= 12


def test_similarity_extremes():
  labels = balanced()
  held = lambda fraction: {
    len(np.unique(labels[rows]))
    for rows in partition.similarity(labels, 10, fraction, seed=0)
  }
  assert max(held(0.0)) <= 2
  assert held(1.0) == {10}


def test_similarity_shares_that_fraction():
  labels = balanced()
  rows = partition.similarity(labels, 10, 0.4, seed=0)
  own = np.mean([np.bincount(labels[r]).max() / len(r) for r in rows])
  np.testing.assert_allclose(own, 0.6 + 0.04, atol=0.06)


def test_class_q_sizes():
  labels = balanced(10, 5000)
  for q, size, own in [
    (0.1, 5000, 500),
    (0.35, 4999, 1750),
    (0.6, 4998, 3000),
    (0.85, 4997, 4250),
  ]:
    rows = partition.class_q(labels, 10, q, seed=0)
    assert {len(r) for r in rows} == {size}
    assert len(np.unique(np.concatenate(rows))) == 10 * size
    counts = [np.bincount(labels[r], minlength=10) for r in rows]
    assert [c[p] for p, c in enumerate(counts)] == [own] * 10
    others = {n for p, c in enumerate(counts) for n in np.delete(c, p)}
    assert others == {(5000 - own) // 9}


def test_class_q_balances_classes_first():
  labels = np.repeat([0, 1, 2], [40, 30, 50])
  rows = partition.class_q(labels, 3, 1.0, seed=0)
  assert [len(r) for r in rows] == [30, 30, 30]


def test_shards_hold_few_labels():
  labels = np.random.default_rng(0).permutation(balanced())
  rows = partition.shards(labels, 50, 2, seed=0)
  assert {len(r) for r in rows} == {20}
  assert max(len(np.unique(labels[r])) for r in rows) <= 2


def test_size_skew_is_log_normal():
  labels = np.zeros(200_000, int)
  sizes = [len(r) for r in partition.size_skew(labels, 500, 1.0, seed=0)]
  np.testing.assert_allclose(np.std(np.log(sizes)), 1.0, atol=0.1)
  sizes = [len(r) for r in partition.size_skew(labels, 500, 0.0, seed=0)]
  assert set(sizes) == {400}
  rows = partition.size_skew(labels, 500, 1e4, seed=0)
  assert sum(map(len, rows)) == 200_000


def test_natural_groups_by_id():
  rows = partition.natural(["b", "a", "b", "c"])
  assert [r.tolist() for r in rows] == [[1], [0, 2], [3]]
  rows = partition.split("natural", None, None, client_ids=np.array([7, 3, 7]))
  assert [r.tolist() for r in rows] == [[1], [0, 2]]


def test_every_scheme_is_tested():
  assert set(LABELLED) == set(partition.SCHEMES) - {"natural"}


L = balanced(3, 4)


BAD = {
  "num_clients=13: without replacement .* so at most 12": ("iid", L, 13),
  "labels: must be of at least one example, got N = 0": ("iid", L[:0], 2),
  "num_clients=4: must be 3, one client per class": ("class_q", L, 4, 0.5),
  r"class_fraction=0.2: must be in \[1/3, 1\]": ("class_q", L, 3, 0.2),
  r"_client=5: must be a whole number in \[1, 4\]": ("shards", L, 3, 5),
  r"client_ids must be .*, got float64 of shape \(0,\)": ("natural", []),
  "client_ids must be integers or strings, .*float64": ("natural", [0.5]),
  "partition='iidd': must be one of .* mean iid": ("split", "iidd", L, 2),
  "alpha=1.0: belongs to partition dirichlet, .*, not to partition ii": (
    "check_parameters", "iid", {"alpha": 1.0},
  ),
  "partition='natural': the data comes with": ("split", "natural", L, 2),
  "num_clients=2: the data has 3 natural clients": (
    "split", "natural", L, 2, 0, L,
  ),
  "client_ids: has 3 entries; must have one for each of the 12 exam": (
    "split", "natural", L, None, 0, [7, 3, 7],
  ),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_input(message):
  name, *arguments = BAD[message]
  with pytest.raises(ValueError, match=message) as error:
    getattr(partition, name)(*arguments)
  assert "\n" not in str(error.value)


@pytest.mark.parametrize("labels", [L * 1.0, L.reshape(3, 4)])
def test_labels_that_cannot_be(labels):
  with pytest.raises((ValueError, TypeError), match="must be whole numbers"):
    partition.iid(labels, 2)


@pytest.mark.parametrize(
  "given", ["5", None, [[1, 2]], True, 2.5, [], 0, (5, 3), (1, 2, 3)]
)
def test_examples_per_client_that_cannot_be(given):
  with pytest.raises(ValueError) as error:  # noqa: PT011
    partition.split("dirichlet", L, 2, examples_per_client=given)
  assert str(error.value) == (
    f"examples_per_client={given!r}: must be a whole number in [1, inf), or "
    "(low, high) with 1 <= low <= high"
  )
