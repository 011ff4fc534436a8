"""Norms and checks of large leaves, which are reduced in parts."""

import jax
import numpy as np
import pytest

from fedjax_opt.arrays import norms

SIZES = [1, 4096, 4097, 8 * 4096 + 7, 140_003]


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("size", SIZES)
def test_no_entry_is_lost(size, platform, monkeypatch):
  monkeypatch.setattr("fedjax_opt.target.platform", lambda: platform)
  x, y = np.random.default_rng(size).normal(size=(2, 3, size))
  of_each = np.linalg.norm(x - y, axis=1)
  float32 = [np.float32(array) for array in (x, y)]
  norm = jax.jit(jax.vmap(norms.distance))(*float32)
  np.testing.assert_allclose(norm, of_each, rtol=1e-6)
  with jax.enable_x64(True):
    norm = norms.norm({"a": x[0], "b": y[0]})
    expected = np.linalg.norm([x[0], y[0]])
    np.testing.assert_allclose(norm, expected, rtol=1e-14)
  vector = np.zeros(size, np.float32)
  vector[-1] = 3
  assert norms.norm([vector]) == 3


@pytest.mark.parametrize("size", SIZES)
def test_one_entry_that_is_not_finite_is_found(size, monkeypatch):
  monkeypatch.setattr("fedjax_opt.target.platform", lambda: "gpu")
  for at in (0, size - 1):
    x = np.ones(size, np.float32)
    assert norms.all_finite([x, x])
    x[at] = np.nan
    assert not norms.all_finite([x])
