"""Ctrl-C that is neither lost nor leaves half-written files."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Self


class CtrlC:
  """Raises KeyboardInterrupt, but not where that would be lost or do harm.

  An exception that a signal raises within a callback of the garbage collector
  or of the compiler is ignored there. So it is also remembered, and raised
  after the next block of `held`. Of two, one in the other, the outer one
  remembers it too: what was only to be finished may be part of something else.

  Attributes:
    pressed: whether it was pressed.
  """

  pressed = False

  def __enter__(self) -> Self:
    self.pressed = self._held = False
    self._before = signal.signal(signal.SIGINT, self._press)
    return self

  def __exit__(self, *_) -> None:
    signal.signal(signal.SIGINT, self._before)
    outer = getattr(self._before, "__self__", None)
    if self.pressed and isinstance(outer, CtrlC):
      outer.pressed = True

  def _press(self, *_) -> None:
    self.pressed = True
    if not self._held:
      raise KeyboardInterrupt

  @contextlib.contextmanager
  def held(self) -> Iterator[None]:
    """Does what is inside first; then answers any Ctrl-C until here."""
    self._held = True
    try:
      yield
    finally:
      self._held = False
    if self.pressed:
      raise KeyboardInterrupt
