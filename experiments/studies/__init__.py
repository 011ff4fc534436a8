"""Studies from the command line; `experiments.compare` is their program.

request   the command line, or a study file: methods, conditions, settings
plan      the cells of a study: for each a command line of the runner, checked
cells     runs a cell: its tuning grid, then the chosen setting with new seeds
collect   from the folders of runs to a `fedjax_opt.Study`
"""
