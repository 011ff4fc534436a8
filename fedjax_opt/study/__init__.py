"""Studies, on the host: methods tuned alike, compared and reported.

compare.py          methods compared from Python
arguments.py        its arguments: their checks, and their defaults
problem.py          a method, and the problem on which methods are tuned
tuning.py           the one way to tune a method on a problem
sizes.py            how large the model, the clients and the data are
cells.py            what a method measured under a condition
pairs.py            every two methods: paired tests, adjusted p-values
power.py            the differences that seeds can show, and the seeds needed
variance.py         what the spread of a nested result is made of
verdicts.py         what is said of each cell, and what can be told from chance
statistics.py       intervals over seeds, and comparisons of methods
bootstrap.py        resamples, and intervals made of them
spending.py         tuning curves, and what it costs to reach a target
words.py            metrics, costs and settings in sentences and tables
numbers.py          how values of a metric are written
study_cells.py      all cells of a study, and what can be told of them
report/             the page, sentences, tables and pictures of a study
study.py            a study: its cells, with a report
plots/              figures of runs and of studies
"""
