"""Experiments of the papers, from the command line: see run.py."""

import time

# Before anything that takes long to import.
STARTED = time.monotonic()
