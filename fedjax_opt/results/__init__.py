"""Holds and shows the results of a run, on the host.

history.py      what a run measured: metrics by grid point and round
selection.py    which grid point is the best one
checkpoint.py   saves and restores the state of a run
writers.py      the output folder: config.json, metrics.csv, summary.json
tensorboard.py  the output folder's TensorBoard events
names.py        names for people: of choices, hyperparameters and metrics
tables.py       the table that closes a run in the terminal
plots/          figures
"""
