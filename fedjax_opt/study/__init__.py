"""Studies, on the host: methods tuned alike, compared and reported.

compare.py     methods compared from Python
tune.py        the one way to tune a method on a problem
cells.py       a study: methods, conditions, and what was measured
statistics.py  intervals over seeds, and comparisons of methods
bootstrap.py   resamples, and intervals made of them
spending.py    tuning curves, and what it costs to reach a target
verdicts.py    differences, and which can be told from chance
limits.py      what limits a comparison
words.py       numbers, metrics and settings as sentences and tables have them
report/        the page, the tables and the pictures of a study
plots/         figures of runs and of studies
"""
