"""Holds and shows the results of a run, on the host.

history.py      what a run measured: metrics by grid point and round
selection.py    which grid point is the best one
checkpoint.py   saves and restores the state of a run
writers.py      the output folder of a run
metrics_file.py its metrics.csv
model_file.py   its params.safetensors
load.py         reads the folder of a run
folder_digests.py  its digests.json, by which damage is noticed
names.py        names for people: of choices, hyperparameters and metrics
tables.py       the table that closes a run in the terminal
"""
