"""How many clients are vectorized at a time, where that is left to `auto`."""

import numpy as np
import pytest

from fedjax_opt import ClientData
from fedjax_opt.engine.config import Config


@pytest.mark.parametrize(
  ("sizes", "chunk"),
  [
    ([8] * 16, 16),
    ([8] * 15 + [0], 16),
    ([16] * 8 + [8] * 8, 16),  # A quarter is padding.
    ([32] * 2 + [8] * 14, 4),
    ([24] * 8 + [8] * 8, 8),
    ([80] + [1] * 15, 2),  # Nothing helps here.
  ],
)
def test_auto_computes_few_clients_at_a_time_where_sizes_differ(sizes, chunk):
  rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
  data = ClientData.from_partition({"x": np.ones(sum(sizes))}, rows)
  params, settings = {"x": np.ones(2)}, {"batch_size": 1}
  assert Config.create(data, settings, params).chunk == chunk
  settings |= {"client_map": "vmap"}
  assert Config.create(data, settings, params).chunk == 16


@pytest.mark.parametrize(
  ("size", "clients", "chunk"),
  [
    (1024, 10, 10),
    (1024, 1000, 91),  # 11 chunks of at most 97.
    (10_000, 40, 14),  # 3 of at most 16.
    (200_000, 40, 1),
  ],
)
def test_auto_keeps_what_is_vectorized_in_the_caches(size, clients, chunk):
  rows = np.arange(10 * clients).reshape(clients, 10)
  data = ClientData.from_partition({"x": np.ones(10 * clients)}, list(rows))
  params = {"x": np.ones(size, np.float32)}
  assert Config.create(data, {"batch_size": 10}, params).chunk == chunk
