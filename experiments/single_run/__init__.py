"""One run, or one grid, from its specification to its folder.

loading.py            the data: who trains on what, and what is held out
timetables.py         who works when, if the run has a clock
building.py           the algorithm, and the options of the simulator
job.py                the simulator, and how settings are compared; all checked
resuming.py           what `--resume` finds in a folder
stopping.py           what ends a run before its last round
extra_metrics.py      metrics of clients' own models, and gaps to the optimum
client_tests.py       metrics of each client on its test examples, after a run
run_output.py         what is written, during the run and at its end
clock_results.py      what is written about the clock
execution.py          runs it, and writes the folder
tracking.py           what is logged with a tracker
"""
