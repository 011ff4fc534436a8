"""A lock of a folder, which one process at a time writes to.

The system holds the lock, and frees it when its process ends in whatever way.
Not all file systems tell one host of another's locks, and some have none. So
the owner also touches the file every two seconds, and an owner of another host
counts as gone if that is not seen for 20.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from fedjax_opt.files import folders, json_files

_BEAT = 2.0  # Seconds between two touches.
_PATIENCE = 20.0  # Seconds without one, after which an owner counts as gone.
_UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class _InUse(ValueError):
  """Another process has the lock."""


@contextlib.contextmanager
def held(
  flag: str, folder: pathlib.Path, waits: bool = False
) -> Iterator[None]:
  """Locks a folder, which is made if need be.

  What a process left that ended is no obstacle. If it was of another host, or
  the file system has no locks, that it has ended takes 20 seconds to see.

  Args:
    flag: name of the flag or argument, for messages.
    folder: path of the folder.
    waits: whether to wait for the end of another process that has it.

  Raises:
    ValueError: if another process has it, which the message names, or if the
      folder cannot be made or written.
  """
  is_new = not os.path.lexists(folder)
  path = folder / folders.LOCK
  with folders.writing(flag, folder):
    while True:
      try:
        descriptor = _take(flag, folder, path)
        break
      except _InUse:
        if not waits:
          raise
        time.sleep(_BEAT / 4)
  try:
    # At once: a signal may end the process while the thread starts.
    with json_files.removed_at_end(path), _beating(descriptor):
      yield
  finally:
    os.close(descriptor)
    if is_new:  # Nothing may have been written.
      with contextlib.suppress(OSError):
        folder.rmdir()


@contextlib.contextmanager
def _beating(descriptor: int) -> Iterator[None]:
  """Touches a file again and again, as long as what is inside takes."""
  stop = threading.Event()
  beats = threading.Thread(target=_beat, args=(descriptor, stop), daemon=True)
  beats.start()
  try:
    yield
  finally:
    stop.set()
    beats.join()


def _beat(descriptor: int, stop: threading.Event) -> None:
  while not stop.wait(_BEAT):
    with contextlib.suppress(OSError):
      os.utime(descriptor)


def _take(flag: str, folder: pathlib.Path, path: pathlib.Path) -> int:
  """The descriptor of the lock, which is this process's."""
  record = {"host": socket.gethostname(), "process": os.getpid()}
  while True:
    folder.mkdir(parents=True, exist_ok=True)
    try:
      descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:  # An owner that ended removed the folder.
      continue
    try:
      is_free, owner = _lock(descriptor), _owner(descriptor)
      if is_free is False or (_may_live(owner, is_free) and _lives(path)):
        raise _InUse(_refusal(flag, folder, owner))
      if not _is_at(descriptor, path):  # Its owner ended, and removed it.
        os.close(descriptor)
        continue
      os.ftruncate(descriptor, 0)
      os.pwrite(descriptor, json.dumps(record).encode(), 0)
      if is_free is None:  # Of two that took it at once the later one has it.
        time.sleep(_BEAT)
        if (owner := _owner(descriptor)) != record:
          raise _InUse(_refusal(flag, folder, owner))
    except BaseException:
      os.close(descriptor)
      raise
    return descriptor


def _lock(descriptor: int) -> bool | None:
  """Whether the file could be locked; None where there are no locks."""
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  except OSError as error:
    if error.errno not in _UNSUPPORTED:
      raise
    return None
  return True


def _is_at(descriptor: int, path: pathlib.Path) -> bool:
  try:
    return os.path.samestat(os.fstat(descriptor), os.stat(path))
  except FileNotFoundError:
    return False


def _owner(descriptor: int) -> dict[str, Any]:
  """Host and process of the owner; {} if there is none yet."""
  try:
    return dict(json_files.parse(os.pread(descriptor, 1000, 0)))
  except (ValueError, TypeError):
    return {}


def _may_live(owner: dict[str, Any], is_free: bool | None) -> bool:
  """Whether a lock that seems free may have an owner."""
  is_here = owner.get("host") == socket.gethostname()
  return bool(owner) and not (is_here and is_free)


def _lives(path: pathlib.Path) -> bool:
  """Whether somebody touches the file."""
  before, deadline = _touched(path), time.monotonic() + _PATIENCE
  while (now := _touched(path)) == before and time.monotonic() < deadline:
    time.sleep(_BEAT / 4)
  return now not in (before, None)


def _touched(path: pathlib.Path) -> int | None:
  """When a file was touched; None if it is gone."""
  try:
    with open(path, "rb") as file:  # Opening it asks a file server.
      return os.fstat(file.fileno()).st_mtime_ns
  except FileNotFoundError:
    return None


def _refusal(flag: str, folder: pathlib.Path, owner: dict[str, Any]) -> str:
  return (
    f"{flag}={str(folder)!r}: is in use by process {owner.get('process', '?')} "
    f"on host {owner.get('host', '?')}; wait for its end, or give another "
    "folder"
  )
