"""How a command starts and ends."""

import gc
import signal
import sys
from collections.abc import Callable, Sequence


def run(main: Callable[[Sequence[str]], int]) -> None:
  """Runs a command and exits with its status.

  A command lives for seconds and keeps nearly all that it makes: jaxprs, graphs
  of modules. So cyclic garbage is looked for less often, and not once more in
  all objects at the end, which together takes most of a second.
  """
  gc.set_threshold(50_000, 20, 20)
  status = main(sys.argv)
  gc.freeze()
  signal.signal(
    signal.SIGINT, signal.SIG_IGN
  )  # It ends, in less than a second.
  sys.exit(status)
