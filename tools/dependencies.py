"""Runs the quick tests with the lowest and the newest versions of packages.

  python -m tools.dependencies --folder=/tmp/venvs [lowest] [newest]

Makes a virtual environment for each, with the versions that setup.py allows:
in `lowest` every package that it names has its lower bound. What these packages
need in turn is as pip chooses. Prints the versions, and how the tests ended.
"""

import argparse
import pathlib
import re
import subprocess
import sys
from unittest import mock

import setuptools

REPOSITORY = pathlib.Path(__file__).parents[1]
# Not privacy: jax-privacy itself asks for later versions of jax and optax.
EXTRAS = ("run", "tensorboard", "text")


def requirements():
  """What setup.py asks for: a list of lines such as 'pandas>=2.1'."""
  program = (REPOSITORY / "setup.py").read_text()
  with mock.patch.object(setuptools, "setup") as setup:
    names = {"__name__": "__main__", "__file__": str(REPOSITORY / "setup.py")}
    exec(compile(program, "setup.py", "exec"), names)
  arguments = setup.call_args.kwargs
  extras = [line for n in EXTRAS for line in arguments["extras_require"][n]]
  extras += names["test"]  # Without the extras that the tests also have.
  return list(dict.fromkeys([*arguments["install_requires"], *extras]))


def versions(lines, kind):
  """The same lines; for 'lowest' with each lower bound as the version."""
  if kind == "newest":
    return lines
  return [re.sub(r">=([\w.]+).*", r"==\1", line) for line in lines]


def attempt(kind, folder):
  """Installs and tests; returns the exit status of what failed, or 0."""
  home, lines = folder / kind, versions(requirements(), kind)
  python = home / "bin" / "python"
  subprocess.run([sys.executable, "-m", "venv", home], check=True)
  steps = [
    [python, "-m", "pip", "install", "-q", *lines],
    [python, "-m", "pip", "list", "--format=freeze"],
    [
      *(python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"),
      *("-m", "quick", "--ignore=tests/test_privacy.py", "tests/"),
    ],
  ]
  for step in steps:
    process = subprocess.run(step, cwd=REPOSITORY, check=False)
    if process.returncode:
      return process.returncode
  return 0


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("kinds", nargs="*", default=["lowest", "newest"])
  parser.add_argument("--folder", type=pathlib.Path, required=True)
  options = parser.parse_args()
  statuses = {kind: attempt(kind, options.folder) for kind in options.kinds}
  print(statuses)
  return int(any(statuses.values()))


if __name__ == "__main__":
  sys.exit(main())
