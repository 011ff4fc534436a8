"""Holds and shows the results of a run, on the host.

metric_names.py    what the name of a metric says: its direction, range, cost
history.py         what a run measured: metrics by grid point and round
result.py          what a run reports after each evaluation, and its result
client_metrics.py  metrics of every client, and statistics of them
selection.py       which grid point is the best one
outcome.py         what a tuning grid says: its best setting, edges, divergence
checkpoint.py      saves and restores the state of a run
run_writer.py      writes the output folder of a run
event_files.py     its TensorBoard events
metrics_file.py    its metrics.csv
model_file.py      its params.safetensors
load.py            reads the folder of a run
folder_digests.py  its digests.json, by which damage is noticed
environment.py     the versions and the device with which a run ran
names.py           names for people: of choices, hyperparameters and metrics
closing_table.py   the table that closes a run in the terminal
text_tables.py     tables as lines of a terminal, and in HTML
progress.py        the bar that shows how far a run, or a study, has come
"""
