"""How many clients are vectorized at a time, where that is left to `auto`."""

import functools

import numpy as np
import pytest

from fedjax_opt import ClientData, target
from fedjax_opt.engine import chunks
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
  params, options = {"x": np.ones(2)}, {"batch_size": 1}
  assert Config.create(data, options, params).client_chunk == chunk
  options |= {"client_map": "vmap"}
  assert Config.create(data, options, params).client_chunk == 16


@pytest.mark.parametrize(
  ("size", "clients", "chunk"),
  [
    (1024, 10, 10),
    (1024, 1000, 91),  # 11 chunks of at most 97.
    (10_000, 40, 14),  # 3 of at most 16.
    (200_000, 40, 1),
  ],
)
def test_auto_keeps_what_is_vectorized_in_the_caches(
  monkeypatch, size, clients, chunk
):
  """Of a processor."""
  monkeypatch.setattr(target, "platform", lambda: "cpu")
  rows = np.arange(10 * clients).reshape(clients, 10)
  data = ClientData.from_partition({"x": np.ones(10 * clients)}, list(rows))
  params = {"x": np.ones(size, np.float32)}
  assert Config.create(data, {"batch_size": 10}, params).client_chunk == chunk


@pytest.mark.parametrize(
  ("models", "clients", "devices", "chunk"),
  [
    (None, 10, 1, 10),  # Nobody knows the memory.
    (100, 10, 1, 10),
    (30, 10, 1, 5),  # 7 would fit: 2 chunks of 5.
    (30, 10, 4, 1),  # Of a model that is divided.
    (7, 10, 1, 1),
    (1, 10, 1, 1),  # One client, whatever it needs.
  ],
)
def test_auto_takes_as_many_as_memory_holds(
  monkeypatch, models, clients, devices, chunk
):
  """On a GPU, which vectorizes all clients that it has memory for."""
  params = {"x": np.ones(1000, np.float32)}
  memory = models and models * 4000
  monkeypatch.setattr(target, "device_bytes", lambda: memory)
  monkeypatch.setattr(target, "platform", lambda: "gpu")
  steps = np.full(clients, 3)
  size = functools.partial(
    chunks.chunk_size, steps=steps, devices=1, params=params,
    model_devices=devices,
  )  # fmt: skip
  assert size("auto", None) == chunk
  assert size("vmap", None) == clients
  assert size("auto", 3) == 3
