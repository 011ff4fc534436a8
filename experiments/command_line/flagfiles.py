"""Files of flags, one on each line, as `--flagfile=FILE` names them.

A file that is not there is looked for among those installed with this program,
so that `--flagfile=experiments/domo/cifar10.flags` works in every folder.
"""

import pathlib
from collections.abc import Sequence

from fedjax_opt.files import memory
from fedjax_opt.results import folder_digests

_MOST = 1_000_000  # Bytes of a file.
_INSTALLED = pathlib.Path(__file__).parents[2]  # The folder of `experiments`.


def expanded(
  arguments: Sequence[str], within: tuple[pathlib.Path, ...] = ()
) -> list[str]:
  """The arguments, with those of the files in place of `--flagfile`.

  Blank lines of a file and those that begin with # or // are left out. A file
  may name others; of a flag that is given twice, the last value counts.

  Args:
    arguments: of a command line, or the lines of a file.
    within: the files that these are in.

  Raises:
    ValueError: for a file that cannot be read, or that names itself.
  """
  found, words = [], iter(arguments)
  for word in words:
    name, equals, file = word.partition("=")
    if name not in ("--flagfile", "-flagfile"):
      found.append(word)
      continue
    file = (file if equals else next(words, "")).strip()
    if not file:
      raise ValueError("flagfile: must be a file with a flag on each line")
    path = _found(file)
    if path in within:
      raise ValueError(f"flagfile='{file}': names itself")
    found += expanded(_lines(path), (*within, path))
  return found


def _found(file: str) -> pathlib.Path:
  """Where a file is: as given, or where this program is installed."""
  given = pathlib.Path(file).expanduser()
  for path in (given, _INSTALLED / file, _INSTALLED / "experiments" / file):
    if path.is_file():
      return path.resolve()
  return given


def _lines(path: pathlib.Path) -> list[str]:
  try:
    folder_digests.check(path.parent, path.name)  # If it is that of a run.
  except ValueError as error:
    raise ValueError(f"flagfile={str(path)!r}: {error}") from None
  try:
    text = memory.read_text(path, _MOST)
  except (OSError, ValueError) as error:
    why = getattr(error, "strerror", None) or error
    raise ValueError(
      f"flagfile={str(path)!r}: cannot be read ({why}); must be a file with a "
      "flag on each line"
    ) from None
  lines = [line.strip() for line in text.splitlines()]
  return [line for line in lines if line and not line.startswith(("#", "//"))]
