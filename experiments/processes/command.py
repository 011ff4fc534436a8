"""How a command starts and ends, also by Ctrl-C, SIGTERM and SIGHUP.

When a signal comes, its handler removes half-written files, ends the workers,
prints where the command was, and exits. It raises nothing: an exception may be
lost in a callback of the compiler, or become another one in an import. Only a
run that has results completes them first, see `Signals`.

A command does not end because it cannot print: its files are what counts.
"""

import contextlib
import ctypes
import gc
import io
import multiprocessing
import os
import pathlib
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn, Self

# In a checkout, programs are called as modules; installed from a wheel, by the
# command `fedjax-opt`.
_IS_INSTALLED = pathlib.Path(__file__).parents[2].name == "_commands"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_M_ARENA_MAX = -8  # Of glibc's malloc.h.

_is_command = False
_last_words: tuple[Callable[[], str], int] | None = None  # See `set_last_line`.
_ends: list[Callable[[], None]] = []  # See `calling_on_signal`.


class RunFailed(Exception):
  """A run failed; the message is its own."""


def line_of(error: Exception) -> str:
  """The message of an error, in one line; most MemoryErrors have none."""
  return " ".join(str(error).split()) or "out of memory"


class Signalled(KeyboardInterrupt):
  """A signal asks the program to end.

  Attributes:
    number: the signal's number.
    status: the exit status.
  """

  def __init__(self, number: int):
    super().__init__(number)
    self.number, self.status = number, 128 + number


def as_called_here(text: str) -> str:
  """A text with its commands as they are called in this installation."""
  if not _IS_INSTALLED:
    return text
  return text.replace("python -m experiments.", "fedjax-opt ")


def line(program: str, arguments: Iterable[str]) -> str:
  """A command line of a program of `experiments`, as called here."""
  # A method may be written over several lines.
  words = shlex.join(" ".join(a.split()) if "\n" in a else a for a in arguments)
  return as_called_here(f"python -m experiments.{program} {words}")


def run(main: Callable[[Sequence[str]], int]) -> None:
  """Runs a command and exits with its status.

  A command lives for seconds and keeps nearly all objects that it makes, such
  as jaxprs and graphs of modules. So Python collects cyclic garbage less often,
  and not at the end. Together this saves most of a second.

  Args:
    main: argv -> status.
  """
  begin()
  gc.set_threshold(50_000, 20, 20)
  try:
    status = main(sys.argv)
  except KeyboardInterrupt as error:
    status = status_of(error)
  gc.freeze()
  # It ends, in less than a second.
  _ignore_signals()
  sys.exit(status)


def begin() -> None:
  """Makes this process a command, which a signal ends as said above."""
  global _is_command
  if _is_command or threading.current_thread() is not threading.main_thread():
    return
  _is_command = True
  _limit_heaps()
  _speak_utf8()
  _keep_streams()
  # One line, without the place in the code and the code there.
  warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
  set_last_line("interrupted while it started")
  for number in _heeded(_SIGNALS):
    signal.signal(number, lambda number, _: exit_now(number))


def is_command() -> bool:
  """Whether this process is there for one command alone."""
  return _is_command


def set_last_line(line: str | Callable[[], str], stream: int = 1) -> None:
  """Sets the last line of a command that a signal ends.

  Args:
    line: the line, or a function that returns it then.
    stream: 1 for stdout, 2 for stderr.
  """
  global _last_words
  _last_words = (line if callable(line) else lambda: line), stream


def clear_last_line() -> None:
  """A command that a signal ends has no last line."""
  global _last_words
  _last_words = None


@contextlib.contextmanager
def calling_on_signal(end: Callable[[], None]) -> Iterator[None]:
  """Inside, a signal that ends the command calls `end` first."""
  _ends.append(end)
  try:
    yield
  finally:
    _ends.remove(end)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
  """Delays signals: the code inside ends first, then a signal is handled."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  numbers: list[int] = []
  note = lambda number, _: numbers.append(number)
  handlers = {n: signal.signal(n, note) for n in _heeded(_SIGNALS)}
  try:
    yield
  finally:
    for number, handler in handlers.items():
      signal.signal(number, handler)
    if numbers:
      signal.raise_signal(numbers[0])


def status_of(error: KeyboardInterrupt) -> int:
  """The exit status of a program that was interrupted."""
  return getattr(error, "status", 130)


def exit_now(number: int) -> NoReturn:
  """Ends the process by a signal; only in the main thread.

  Nothing else runs: no exception can be lost in a compiler's callback, and no
  library is taken down while a thread of it works.
  """
  _ignore_signals()
  for end in [*reversed(_ends), _remove_unfinished]:
    with contextlib.suppress(Exception):
      end()
  with contextlib.suppress(Exception):
    sys.stdout.flush()
  if _last_words is not None:
    line, stream = _last_words
    with contextlib.suppress(OSError):
      os.write(stream, f"{line()}\n".encode(errors="backslashreplace"))
  os._exit(128 + number)


def _remove_unfinished() -> None:
  files = sys.modules.get("fedjax_opt.files.json_files")
  if files is not None:  # If not, nothing was begun.
    files.remove_unfinished()


def _heeded(numbers: Sequence[int]) -> list[int]:
  """These signals, without those that the caller ignores (nohup)."""
  return [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]


def _ignore_signals() -> None:
  for number in _SIGNALS:
    signal.signal(number, signal.SIG_IGN)


def _limit_heaps() -> None:
  """Limits glibc to one heap for each processor, instead of eight.

  Each thread takes a heap, which stays as large as the thread's largest arrays
  were. So with many heaps, the memory of a run of hours would keep growing.
  MALLOC_ARENA_MAX takes precedence over this.
  """
  if "MALLOC_ARENA_MAX" in os.environ:
    return
  with contextlib.suppress(OSError, AttributeError):  # Not glibc.
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, os.cpu_count() or 1)


# Text.


def _speak_utf8() -> None:
  """Starts Python again if names of files are not UTF-8, as in some locales."""
  is_set = os.environ.get("PYTHONUTF8") == "1"
  is_worker = multiprocessing.parent_process() is not None
  if sys.getfilesystemencoding() != "utf-8" and not is_set and not is_worker:
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, sys.orig_argv)


class _Stream(io.FileIO):
  """A terminal, file or pipe that may become full or be closed."""

  def write(self, content: bytes) -> int | None:
    """Writes the text, or leaves it out if it cannot be written."""
    try:
      return super().write(content)
    except OSError:
      return len(content)


def _keep_streams() -> None:
  """Makes writing to stdout and stderr never fail, also if they are closed."""
  for number, name in enumerate(("stdin", "stdout", "stderr")):
    try:
      os.fstat(number)
    except OSError:  # Otherwise a file of the run would get this number.
      os.open(os.devnull, os.O_RDWR)
      os.set_inheritable(number, True)
    if number:
      old_stream, raw = getattr(sys, name), _Stream(number, "w", closefd=False)
      text_stream = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=old_stream.encoding if old_stream else "utf-8",
        errors="backslashreplace",
        line_buffering=number == 2 or raw.isatty(),
      )
      setattr(sys, name, text_stream)


class Signals:
  """Lets signals end a run where they are neither lost nor do harm.

  An exception that a signal raises within a callback of the garbage collector
  or of the compiler is ignored there, or crashes it. So Ctrl-C is also
  remembered, and raised after the next block of `held`. If blocks are nested,
  the outer one remembers it too: the work that the inner one had to finish may
  be part of other work.

  In a command SIGTERM and SIGHUP are handled as Ctrl-C, and nothing is raised.
  Until `begun` a signal ends the process. From then on it is only remembered,
  because the run itself ends after the rounds that it computes.

  Attributes:
    pressed: number of the signal that came; 0 if none did.
    phase: what the run does now, for the last line of a process that ends.
    where: its folder, for the same line, such as "; see FOLDER".
  """

  pressed, phase, where = 0, "while flags were read", ""

  def __init__(self):
    """Does nothing yet."""
    self._exits, self._held = _is_command, False

  @property
  def line(self) -> str:
    """The line that the run was interrupted, and where."""
    return f"interrupted {self.phase}{self.where}"

  def __enter__(self) -> Self:
    numbers = _heeded(_SIGNALS if _is_command else _SIGNALS[:1])
    # In another thread Python cannot handle signals: they are the caller's.
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
    """Says that there are results, which the run completes before it ends."""
    self._exits = False

  @contextlib.contextmanager
  def held(self) -> Iterator[None]:
    """Runs the code inside first, then handles a signal that came meanwhile."""
    self._held = True
    try:
      yield
    finally:
      self._held = False
    if self.pressed and self._exits:
      exit_now(self.pressed)
    if self.pressed:
      raise Signalled(self.pressed)

  def _press(self, number: int, _) -> None:
    self.pressed = self.pressed or number
    if self._held:
      return
    if self._exits:
      exit_now(number)
    if not _is_command:
      raise KeyboardInterrupt
