"""Entry point of the command `fedjax-opt`; the commands are in experiments/.

A module of its own: `fedjax_opt` imports JAX, which the help need not wait for.
"""

import pathlib
import sys

_HERE = pathlib.Path(__file__).resolve().parent
_INSTALLED = _HERE / "fedjax_opt" / "_commands"  # As setup.py says.


def script() -> None:
  """Runs the command that was given, and exits with its status.

  `experiments` is the folder that belongs to this file, in a checkout beside
  it, and no other of that name. Processes that this one starts take over its
  path, and find it too.
  """
  folder = _INSTALLED if _INSTALLED.is_dir() else _HERE
  sys.path.insert(0, str(folder))
  from experiments import cli

  cli.script()
