"""Where the source of a documented name is."""

import functools
import importlib
import inspect
import pathlib

from site_steps import REPOSITORY, ROOT


def resolve(domain, info) -> str | None:
  """Where the source of a documented name is, on the repository's page."""
  if domain != "py" or not info["module"]:
    return None
  path = f"{info['module']}.{info['fullname']}".split(".")
  try:
    member = functools.reduce(
      getattr, path[1:], importlib.import_module(path[0])
    )
    file = inspect.getsourcefile(inspect.unwrap(member))
    lines, first = inspect.getsourcelines(inspect.unwrap(member))
  except (AttributeError, TypeError, OSError):
    return None
  file = pathlib.Path(file)
  if not file.is_relative_to(ROOT):
    return None
  name = file.relative_to(ROOT).as_posix()
  return f"{REPOSITORY}/blob/main/{name}#L{first}-L{first + len(lines) - 1}"
