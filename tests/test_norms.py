"""Norms of large leaves, which a processor sums in parts."""

import jax
import numpy as np
import pytest

from fedjax_opt import norms


@pytest.mark.parametrize("size", [1, 4096, 4097, 8 * 4096 + 7, 140_003])
def test_no_entry_is_lost(size):
  x, y = np.random.default_rng(size).normal(size=(2, 3, size))
  of_each = np.linalg.norm(x - y, axis=1)
  float32 = [np.float32(each) for each in (x, y)]
  found = jax.jit(jax.vmap(norms.distance))(*float32)
  np.testing.assert_allclose(found, of_each, rtol=1e-6)
  with jax.enable_x64(True):
    found = norms.norm({"a": x[0], "b": y[0]})
    whole = np.linalg.norm([x[0], y[0]])
    np.testing.assert_allclose(found, whole, rtol=1e-14)
  last = np.zeros(size, np.float32)
  last[-1] = 3
  assert norms.norm([last]) == 3
