"""Signals that are to end a run: Ctrl-C, or a request to end the process."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

# Windows has no SIGHUP.
_SIGNALS = [
  getattr(signal, name)
  for name in ("SIGINT", "SIGTERM", "SIGHUP")
  if hasattr(signal, name)
]


class StopSignals:
  """Which signals came that are to end the run: Ctrl-C, a request to end.

  No signal raises an exception at once: a segment that runs cannot be stopped,
  and the state it started from is overwritten; a checkpoint is to be written to
  its end; and an exception within a callback of the garbage collector would be
  lost. Within `on_evaluation` the second Ctrl-C does what Ctrl-C did before the
  run. The run then ends after it, as with one that came before.

  Attributes:
    first_signal: number of the first one; 0 if none came.
  """

  def __init__(self):
    self.first_signal = 0
    self._numbers: list[int] = []
    self._before: dict[int, Any] = {}
    self._may_raise = False

  @contextlib.contextmanager
  def heeded(self, also_unhandled: bool) -> Iterator[None]:
    """Notes the signals that come inside, but for those that are ignored.

    Args:
      also_unhandled: whether also those that would end the process at once.
    """
    is_main = threading.current_thread() is threading.main_thread()
    for number in _SIGNALS if is_main else ():
      action = signal.getsignal(number)
      if callable(action) or (also_unhandled and action == signal.SIG_DFL):
        self._before[number] = signal.signal(number, self._handle)
    try:
      yield
    finally:
      for number, handler in self._before.items():
        signal.signal(number, handler)

  def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns; None if KeyboardInterrupt ends it."""
    try:
      self._may_raise = True
      return function(*arguments)
    except KeyboardInterrupt as error:
      self._note(getattr(error, "number", signal.SIGINT))
    finally:
      self._may_raise = False

  def _handle(self, number: int, frame: Any) -> None:
    is_second = number in self._numbers
    self._note(number)
    if is_second and self._may_raise and callable(self._before[number]):
      self._may_raise = False  # One is enough.
      self._before[number](number, frame)

  def _note(self, number: int) -> None:
    self.first_signal = self.first_signal or int(number)
    self._numbers.append(number)
