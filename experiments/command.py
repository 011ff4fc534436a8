"""How a command starts and ends."""

import gc
import pathlib
import signal
import sys
from collections.abc import Callable, Sequence

# In a checkout programs are called as modules; from a wheel by the command.
_IS_INSTALLED = pathlib.Path(__file__).parents[1].name == "_commands"


def as_called_here(text: str) -> str:
  """A text whose commands can be called where this program is installed."""
  if not _IS_INSTALLED:
    return text
  return text.replace("python -m experiments.", "fedjax-opt ")


def run(main: Callable[[Sequence[str]], int]) -> None:
  """Runs a command and exits with its status.

  A command lives for seconds and keeps nearly all that it makes: jaxprs, graphs
  of modules. So cyclic garbage is looked for less often, and not once more in
  all objects at the end, which together takes most of a second.
  """
  gc.set_threshold(50_000, 20, 20)
  status = main(sys.argv)
  gc.freeze()
  # It ends, in less than a second.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  sys.exit(status)
