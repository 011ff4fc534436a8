"""`python -m experiments COMMAND` is `fedjax-opt COMMAND`; see cli.py."""

from experiments import cli

if __name__ == "__main__":
  cli.script()
