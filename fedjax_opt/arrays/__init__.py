"""Arrays and trees of the compiled program, and the devices they lie on.

trees.py               small helpers for pytrees that optax does not have
counters.py            counters that are exact at any length
norms.py               norms of whole trees
frozen.py              leaves of a model that no round changes
draws.py               random orders, of counts known as the program runs
running_statistics.py  the statistics of batch normalization, as leaves
target.py              the devices that programs are compiled for
sharding.py            how arrays are divided over devices
"""
