"""Experiments of the papers, from the command line: see run.py."""
