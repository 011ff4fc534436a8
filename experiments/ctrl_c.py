"""Ctrl-C that is neither lost nor leaves half-written files."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Self

from experiments import command
from fedjax_opt.results import json_files


class CtrlC:
  """Raises KeyboardInterrupt, but not where that would be lost or do harm.

  An exception that a signal raises within a callback of the garbage collector
  or of the compiler is ignored there, or crashes it. So it is also remembered,
  and raised after the next block of `held`. Of two, one in the other, the outer
  one remembers it too: what was only to be finished may be part of something
  else.

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
    numbers = [signal.SIGINT, signal.SIGTERM][: 1 + self._is_program]
    # Another thread cannot answer signals: they are the caller's.
    if threading.current_thread() is not threading.main_thread():
      numbers = []
    self._before = {n: signal.signal(n, self._press) for n in numbers}
    return self

  def __exit__(self, *_) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)
    outer = getattr(self._before.get(signal.SIGINT), "__self__", None)
    if self.pressed and isinstance(outer, CtrlC):
      outer.pressed = self.pressed

  def begun(self) -> None:
    """There are results, which the run is to complete before it ends."""
    self._exits = False

  def _press(self, number: int, _) -> None:
    self.pressed = self.pressed or number
    if self._held:
      return
    if self._exits:
      self._exit()
    if not self._is_program:
      raise KeyboardInterrupt

  def _exit(self) -> None:
    json_files.remove_unfinished()
    line = f"interrupted before the first evaluation{self.where}"
    command.exit_now(self.pressed, line)

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
      raise command.Signalled(self.pressed)
