"""From runs to a report, on the host.

statistics.py  intervals over seeds, and comparisons of methods
bootstrap.py   resamples, and intervals made of them
spending.py    tuning curves, and what it costs to reach a target
verdicts.py    differences, and which can be told from chance
limits.py      what limits a comparison
words.py       numbers, metrics and settings as sentences and tables have them
report/        the page, the tables and the pictures of a study
plots/         figures of runs and of studies
"""
