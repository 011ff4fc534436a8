"""Processes: how they start, work together and end.

command.py    how a command starts and ends, also by a signal
workers.py    several cells at a time, each in a process of its own
failures.py   which errors are refusals, in one line, and which are defects
executors.py  cells on other machines
hosts.py      several processes that do one run
"""
