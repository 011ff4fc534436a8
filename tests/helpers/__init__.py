"""What tests share.

Problems, and what runs on them:
problems.py          small problems, with gradients in NumPy for the loops
jax_problems.py      the same as the package takes them: losses in JAX, data
cases.py             the problem and rounds in which a method meets its loop
rule_referees.py     each rule's referee, and a plain loop that trains with it
each_algorithm.py    the registry's algorithms, each ready for a small problem
cosines.py           losses for which bounds of papers can be computed
schemes.py           partition schemes, each with its parameters
linear.py            a linear classifier of twelve examples
compilations.py      which programs XLA compiles

Data and models in files:
own_arrays.py        arrays for an .npz file of one's own data
prepared_data.py     small data sets as TFDS prepares them
text_data.py         small AG News and DBpedia
text_models.py       small random language models, and plain NumPy for them
file_limits.py       a disk that is full

Results, written by hand:
histories.py         histories, written out or random
studies.py           studies without any run
plans.py             studies that are planned, and not run
artefact_records.py  records that never ran, and what artefacts say of them

Refusals and tables:
refusals.py          the one line of a refusal, and tables of refused calls
tables_of_calls.py   reads text files of calls, and what comes of each
public_names.py      public names of a module, and the arguments they check

The command line, and other processes:
commands.py          the command line as the tests call it
resumed_runs.py      runs that are stopped and go on
worker_cells.py      cells for tests of workers
several_devices.py   the runs of test_sharding.py
extras_alone.py      what an extra lets one do, without other packages
"""
