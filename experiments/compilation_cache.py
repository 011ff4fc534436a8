"""The folder in which JAX keeps compiled programs."""

import contextlib
import pathlib
from collections.abc import Iterator

import jax
from jax.experimental.compilation_cache import compilation_cache


@contextlib.contextmanager
def kept_in(folder: str) -> Iterator[None]:
  """Lets JAX keep what is compiled inside, unless it was told where already.

  Args:
    folder: folder of compiled programs, or "none".
  """
  if folder == "none" or jax.config.jax_compilation_cache_dir is not None:
    yield
    return
  before = jax.config.jax_persistent_cache_min_compile_time_secs
  # Only what takes long: a run has hundreds of small programs.
  _use(str(pathlib.Path(folder).expanduser()), 0.5)
  try:
    yield
  finally:
    _use(None, before)


def _use(folder: str | None, min_seconds: float) -> None:
  jax.config.update("jax_compilation_cache_dir", folder)
  jax.config.update("jax_persistent_cache_min_compile_time_secs", min_seconds)
  compilation_cache.reset_cache()  # Else the folder of before is used.
