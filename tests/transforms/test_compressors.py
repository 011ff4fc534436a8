"""Each compressor: its numbers, its promises, its bytes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import transforms
from fedjax_opt.arrays.draws import first_of_shuffle
from tests import reference
from tests.helpers import refusals
from tests.helpers.jax_problems import flat

SHAPES = {"a": (3, 4), "b": {"bias": (5,), "scale": ()}}
D = 18
KEY = jax.random.key(3)
ALL = {
  "top_k": transforms.top_k(0.3),
  "random_k": transforms.random_k(0.3),
  "sign": transforms.sign(),
  "quantize": transforms.quantize(3),
  "clip_by_norm": transforms.clip_by_norm(0.5),
}
K = 5  # 0.3 of 18 is 5.4.


def tree(seed=0, dtype=float):
  rng = np.random.default_rng(seed)
  is_shape = lambda node: isinstance(node, tuple)
  draw = lambda shape: jnp.asarray(rng.normal(size=shape), dtype)
  return jax.tree.map(draw, SHAPES, is_leaf=is_shape)


def send(upload, u, key=KEY, state=None):
  state = upload.rule.init(u) if state is None else state
  return upload.rule.update(u, state, None, key=key)


def expected(name, u, is_contraction=False):
  if name == "top_k":
    return reference.top_k(u, K)
  if name == "random_k":
    indices = np.asarray(first_of_shuffle(KEY, 0, D, K))
    return reference.random_k(u, indices, not is_contraction)
  if name == "sign":
    return reference.sign(u)
  if name == "quantize":
    uniforms = np.asarray(jax.random.uniform(KEY, (D,), float))
    return reference.quantize(u, 3, uniforms, is_contraction)
  return u * min(1, 0.5 / np.linalg.norm(u))


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_it_is_the_loop(name, feedback):
  with jax.enable_x64(True):
    u = tree()
    upload = ALL[name]
    upload = transforms.error_feedback(upload) if feedback else upload
    sent, _ = send(upload, u)
    assert jax.tree.structure(sent) == jax.tree.structure(u)
    target = expected(name, flat(u), feedback)
    np.testing.assert_allclose(flat(sent), target, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ALL)
def test_what_is_sent_and_the_error_are_all_that_was_given(name):
  with jax.enable_x64(True):
    upload = transforms.error_feedback(ALL[name])
    state, total, sent = upload.rule.init(tree()), 0, 0
    for seed in range(30):
      u = tree(seed)
      key = jax.random.key(seed)
      message, state = send(upload, u, key, state)
      total, sent = total + flat(u), sent + flat(message)
      error = flat(state[0])
      np.testing.assert_allclose(sent + error, total, rtol=0, atol=1e-12)
  if name != "clip_by_norm":  # Which is no contraction.
    assert np.linalg.norm(error) < 30 * math.sqrt(D)


@pytest.mark.parametrize(
  ("name", "dtype", "num_bytes"),
  [
    ("top_k", "float32", 5 * 4 + 5 * 4),
    ("top_k", "float16", 5 * 2 + 5 * 4),
    ("random_k", "float32", 5 * 4 + 4),
    ("sign", "float32", 3 + 4),  # 18 bits.
    ("sign", "float16", 3 + 4),
    ("quantize", "float32", 7 + 4),  # 18 times a sign and 2 bits: 54 bits.
    ("clip_by_norm", "float32", 72),
  ],
)
def test_the_bytes_are_those_counted_by_hand(name, dtype, num_bytes):
  shapes = jax.eval_shape(lambda: tree(dtype=dtype))
  assert ALL[name].num_bytes(shapes) == num_bytes
  feedback = transforms.error_feedback(ALL[name])
  assert feedback.num_bytes(shapes) == num_bytes


def test_levels_take_whole_bits():
  bits = lambda s: transforms.quantize(s).num_bytes(np.zeros(8, "f")) - 4
  # A sign and 1, 2, 2, 3, 4, 5 bits, for 8 entries.
  assert [bits(s) for s in (1, 2, 3, 4, 15, 16)] == [2, 3, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ALL)
def test_zeros_are_sent_as_zeros(name):
  u = jax.tree.map(jnp.zeros_like, tree())
  for upload in (ALL[name], transforms.error_feedback(ALL[name])):
    sent, state = send(upload, u)
    assert not flat(sent).any()
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(state))


def test_of_equal_entries_the_first_are_sent():
  u = {"a": jnp.full((2, 3), -1.0), "b": jnp.array([2.0, 1.0])}
  sent, _ = send(transforms.top_k(0.5), u)
  np.testing.assert_array_equal(flat(sent), [-1, -1, -1, 0, 0, 0, 2, 0])


@pytest.mark.parametrize("name", ALL)
def test_half_precision_does_not_overflow(name):
  # The squared norm, 18 times 10^6, is above the largest float16.
  u = jax.tree.map(lambda leaf: 1000 * jnp.ones_like(leaf), tree(dtype="f2"))
  for upload in (ALL[name], transforms.error_feedback(ALL[name])):
    sent, state = send(upload, u)
    leaves = jax.tree.leaves((sent, state))
    assert {leaf.dtype.name for leaf in leaves} == {"float16"}
    assert np.isfinite(flat(sent)).all()
    assert flat(sent).any()


@pytest.mark.parametrize("size", [1e-30, 1e20])
def test_clipping_squares_nothing_that_overflows(size):
  u = jax.tree.map(lambda leaf: jnp.full_like(leaf, size), tree())
  sent, _ = send(transforms.clip_by_norm(1e-31), u)
  assert np.linalg.norm(flat(sent) / 1e-31) == pytest.approx(1)


def test_one_entry_is_sent_at_least():
  sent, _ = send(transforms.top_k(1e-6), tree())
  assert np.count_nonzero(flat(sent)) == 1


test_is_refused = refusals.of_table("compressors.txt", transforms)
