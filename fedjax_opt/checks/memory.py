"""How much a file may ask of this machine before it is read.

A small file can declare, or decompress to, more than any memory holds. What
these functions refuse has taken no memory yet.
"""

import contextlib
import errno
import os
import pathlib
import stat

# Where Linux says how much memory a container may take; "max" is no limit.
_LIMIT_FILES = (
  "/sys/fs/cgroup/memory.max",
  "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def memory_bytes() -> int | None:
  """The bytes of memory of this machine, or of this container if it has fewer.

  None if they are not known.
  """
  limits = []
  with contextlib.suppress(AttributeError, ValueError, OSError):
    limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
  for path in _LIMIT_FILES:
    with contextlib.suppress(ValueError, OSError):
      limits.append(int(pathlib.Path(path).read_text()))
  return min(limits, default=None)


def check_memory(what: str, num_bytes: int) -> None:
  """Checks that something can be in memory.

  Args:
    what: begins the message: what it is, with its verb.
    num_bytes: that it takes.

  Raises:
    ValueError: if it would take more than half of the memory.
  """
  memory = memory_bytes()
  if memory is not None and num_bytes > memory // 2:
    raise ValueError(
      f"{what} {size_text(num_bytes)} of memory; must be at most "
      f"{size_text(memory // 2)}, half of this machine's"
    )


def size_text(num_bytes: int, digits: str = ".3g") -> str:
  """A number of bytes for people, such as 1.5 GB."""
  thousands = min((len(str(int(num_bytes))) - 1) // 3, 4)
  unit = ("bytes", "kB", "MB", "GB", "TB")[thousands]
  return f"{num_bytes / 1000**thousands:{digits}} {unit}"


def check_is_file(path: str | os.PathLike) -> None:
  """Checks that reading ends: a pipe would wait for ever.

  Raises:
    OSError: if nothing is there, or no file.
  """
  if not stat.S_ISREG(os.stat(path).st_mode):
    raise OSError(errno.EINVAL, "it is no file", os.fspath(path))


def read_text(path: pathlib.Path, most: int = 1 << 28) -> str:
  """The text of a file, at most so many bytes of UTF-8.

  Raises:
    OSError: if it is no file, such as a pipe or a device, or cannot be read.
    ValueError: if it is larger, or no text.
  """
  check_is_file(path)
  with open(path, "rb") as file:
    content = file.read(most + 1)
  if len(content) > most:
    raise ValueError(f"it has more than {size_text(most)}")
  try:
    return content.decode("utf-8-sig")  # Some editors begin with a mark.
  except UnicodeDecodeError:
    raise ValueError("not a text") from None
