"""A lock of a folder, which one process at a time writes to."""

import contextlib
import fcntl
import json
import os
import pathlib
import socket
from collections.abc import Iterator
from typing import Any

from fedjax_opt.files import folders


@contextlib.contextmanager
def held(flag: str, folder: pathlib.Path) -> Iterator[None]:
  """Locks a folder, which is made if need be.

  The system frees the lock of a process that ended, however it ended: what it
  left is no obstacle on its host. On another host, with a file system that
  does not share locks, it is: the message says which file to remove.

  Args:
    flag: name of the flag or argument, for messages.
    folder: path of the folder.

  Raises:
    ValueError: if another process has it, which the message names, or if the
      folder cannot be made or written.
  """
  is_new = not os.path.lexists(folder)
  path = folder / folders.LOCK
  with folders.writing(flag, folder):
    descriptor = _take(flag, folder, path)
  try:
    yield
  finally:
    with contextlib.suppress(OSError):
      path.unlink()
    os.close(descriptor)
    if is_new:  # Nothing may have been written.
      with contextlib.suppress(OSError):
        folder.rmdir()


def _take(flag: str, folder: pathlib.Path, path: pathlib.Path) -> int:
  """The descriptor of the lock, which is this process's."""
  while True:
    folder.mkdir(parents=True, exist_ok=True)
    try:
      descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:  # An owner that ended removed the folder.
      continue
    try:
      is_free = _lock(descriptor)
      if is_free and not _is_at(descriptor, path):
        os.close(descriptor)  # Its owner ended, and removed it.
        continue
      owner = _owner(descriptor)
      if not is_free or _is_elsewhere(owner):
        raise ValueError(_refusal(flag, folder, path, owner, is_free))
      mine = {"host": socket.gethostname(), "process": os.getpid()}
      os.ftruncate(descriptor, 0)
      os.pwrite(descriptor, json.dumps(mine).encode(), 0)
    except BaseException:
      os.close(descriptor)
      raise
    return descriptor


def _lock(descriptor: int) -> bool:
  """Whether the file could be locked; the system frees it at our end."""
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True


def _is_at(descriptor: int, path: pathlib.Path) -> bool:
  try:
    return os.path.samestat(os.fstat(descriptor), os.stat(path))
  except FileNotFoundError:
    return False


def _owner(descriptor: int) -> dict[str, Any]:
  """Host and process of the owner; {} if there is none yet."""
  try:
    return dict(json.loads(os.pread(descriptor, 1000, 0)))
  except (ValueError, TypeError):
    return {}


def _is_elsewhere(owner: dict[str, Any]) -> bool:
  return owner.get("host") not in (None, socket.gethostname())


def _refusal(
  flag: str,
  folder: pathlib.Path,
  path: pathlib.Path,
  owner: dict[str, Any],
  is_free: bool,
) -> str:
  what = f"{flag}={str(folder)!r}: is in use by process "
  what += f"{owner.get('process', '?')} on host {owner.get('host', '?')}; "
  if is_free:  # As far as this host can see.
    return f"{what}if that has ended, remove {str(path)!r}"
  return f"{what}wait for its end, or give another folder"
