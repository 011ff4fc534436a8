"""Studies from the command line; `experiments.compare` is their program.

request.py       the command line, or a study file: methods, conditions, flags
plan.py          the cells of a study: for each a specification, checked
running.py       runs a cell: its tuning grid, then the chosen setting with new
                 seeds; or makes cells of the folders of runs that are there
seeds_needed.py  how many seeds a study needs, by one that is stored
"""
