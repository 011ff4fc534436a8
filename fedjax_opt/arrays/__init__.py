"""What the compiled program does to arrays and trees, whatever the method.

trees.py               small helpers for pytrees that optax does not have
norms.py               reductions of whole trees, as XLA:CPU computes them fast
counters.py            counters that are exact at any length
draws.py               random orders, of counts known as the program runs
frozen.py              leaves of a model that no round changes
running_statistics.py  the statistics of batch normalization, as leaves
"""
