"""How a command starts and ends, also by Ctrl-C and SIGTERM.

What a signal does depends on how far the command is. While it imports, it ends
at once, as nothing was made yet: an exception that arises within the import of
a library may be lost, or become another one. Then it raises `Signalled` in the
program, which cleans up; what a run does instead says `Signals`. At the end,
with all files written, it is ignored.
"""

import contextlib
import ctypes
import gc
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Self

# In a checkout programs are called as modules; from a wheel by the command.
_IS_INSTALLED = pathlib.Path(__file__).parents[1].name == "_commands"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds: an exception may have been lost, but ten presses are one.
_AGAIN = 1.0

_M_ARENA_MAX = -8  # Of glibc's malloc.h.

_main: Callable | None = None  # Of the program that this process is for.
_is_command = False
_raised = -_AGAIN


class Signalled(KeyboardInterrupt):
  """A signal is to end the program.

  Attributes:
    number: of the signal.
    status: the exit status.
  """

  def __init__(self, number: int = signal.SIGINT):
    super().__init__(number)
    self.number, self.status = number, 128 + number


def as_called_here(text: str) -> str:
  """A text whose commands can be called where this program is installed."""
  if not _IS_INSTALLED:
    return text
  return text.replace("python -m experiments.", "fedjax-opt ")


def run(
  main: Callable[[Sequence[str]], int], *, is_front: bool = False
) -> None:
  """Runs a command and exits with its status.

  A command lives for seconds and keeps nearly all that it makes: jaxprs, graphs
  of modules. So cyclic garbage is looked for less often, and not once more in
  all objects at the end, which together takes most of a second.

  Args:
    main: argv -> status.
    is_front: whether it only imports and calls a program, see `starts`.
  """
  begin()
  _limit_heaps()
  gc.set_threshold(50_000, 20, 20)
  try:
    if not is_front:
      starts(main)
    status = main(sys.argv)
  except KeyboardInterrupt as error:
    status = status_of(error)
  gc.freeze()
  # It ends, in less than a second.
  for number in _SIGNALS:
    signal.signal(number, signal.SIG_IGN)
  sys.exit(status)


def begin() -> None:
  """From now on a signal ends this process at once, with its exit status."""
  global _is_command
  if threading.current_thread() is threading.main_thread():
    _is_command = True
    _answer(lambda number, _: exit_now(number, "interrupted"))


def starts(main: Callable) -> None:
  """Now a signal raises an exception in `main`; if this is a command."""
  global _main
  if _is_command:
    _main = main
    _answer(_raise)


def is_program(main: Callable) -> bool:
  """Whether this process is there for this function alone."""
  return main is _main


def status_of(error: KeyboardInterrupt) -> int:
  """The exit status of a program that was interrupted."""
  return getattr(error, "status", 130)


def exit_now(number: int, line: str) -> NoReturn:
  """Prints a line, and ends the process; only in the main thread.

  Nothing else runs: no exception can be lost in a compiler's callback, and no
  library is taken down while a thread of it works.
  """
  with contextlib.suppress(Exception):
    sys.stdout.flush()
  with contextlib.suppress(OSError):
    os.write(1, f"{line}\n".encode())
  os._exit(128 + number)


def _limit_heaps() -> None:
  """As many heaps as processors, where glibc would have eight times as many.

  Each thread takes one, which stays as large as the thread's largest arrays
  were. A checkpoint is written by a dozen threads: a run of hours would grow
  for as long as all of their heaps do. MALLOC_ARENA_MAX goes before this.
  """
  if "MALLOC_ARENA_MAX" in os.environ:
    return
  with contextlib.suppress(OSError, AttributeError):  # Not glibc.
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, os.cpu_count() or 1)


def _answer(handler: Callable) -> None:
  for number in _SIGNALS:
    # One that the caller ignores, as with nohup, stays so.
    if signal.getsignal(number) is not signal.SIG_IGN:
      signal.signal(number, handler)


def _raise(number: int, _) -> None:
  global _raised
  now = time.monotonic()
  if now >= _raised + _AGAIN:
    _raised = now
    raise Signalled(number)


class Signals:
  """Lets signals end a run where they are neither lost nor do harm.

  An exception that a signal raises within a callback of the garbage collector
  or of the compiler is ignored there, or crashes it. So Ctrl-C is also
  remembered, and raised after the next block of `held`. Of two, one in the
  other, the outer one remembers it too: what was only to be finished may be
  part of something else.

  In a process of its own, SIGTERM is as Ctrl-C, and nothing is raised. Until
  `begun` a signal ends the process; from then on it is only remembered, for the
  run itself ends with the rounds that it computes.

  Attributes:
    pressed: number of the signal that came; 0 if none did.
    where: for the last line of a process that ends, such as "; see FOLDER".
  """

  pressed, where = 0, ""

  def __init__(self, is_program: bool = False):
    """Does nothing yet.

    Args:
      is_program: whether the process is there for this alone.
    """
    self._is_program = self._exits = is_program
    self._held = False

  def __enter__(self) -> Self:
    numbers = _SIGNALS if self._is_program else _SIGNALS[:1]
    # Another thread cannot answer signals: they are the caller's.
    if threading.current_thread() is not threading.main_thread():
      numbers = ()
    self._before = {n: signal.signal(n, self._press) for n in numbers}
    return self

  def __exit__(self, *_) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)
    outer = getattr(self._before.get(signal.SIGINT), "__self__", None)
    if self.pressed and isinstance(outer, Signals):
      outer.pressed = self.pressed

  def begun(self) -> None:
    """There are results, which the run is to complete before it ends."""
    self._exits = False

  @contextlib.contextmanager
  def held(self) -> Iterator[None]:
    """Does what is inside first; then answers any signal until here."""
    self._held = True
    try:
      yield
    finally:
      self._held = False
    if self.pressed and self._exits:
      self._exit()
    if self.pressed:
      raise Signalled(self.pressed)

  def _press(self, number: int, _) -> None:
    self.pressed = self.pressed or number
    if self._held:
      return
    if self._exits:
      self._exit()
    if not self._is_program:
      raise KeyboardInterrupt

  def _exit(self) -> None:
    from fedjax_opt.files import json_files

    json_files.remove_unfinished()
    line = f"interrupted before the first evaluation{self.where}"
    exit_now(self.pressed, line)
