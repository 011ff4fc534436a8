"""Readers of data sets have a cache of their own in each test."""

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
  """Where what was decoded is kept."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  return tmp_path / "cache" / "fedjax_opt"
