"""Methods compared under conditions, each at its best setting, on fresh seeds.

cells.py     a study: its cells, and what each one measured
studies.py   `compare`: tunes and runs all cells of a study from Python
budgets.py   how many settings each method may try

What is said of a study, and its report: `fedjax_opt.study`.
"""
