"""A disk that is full: a limit of what files may become."""

import contextlib
import resource


@contextlib.contextmanager
def limited(size):
  """No file can become larger than so many bytes."""
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
