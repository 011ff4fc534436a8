"""Studies from the command line; `experiments.compare` is their program.

request.py        the command line, or a study file: methods, conditions, flags
planned_cells.py  the cells of a study: for each a specification, checked
cell_runs.py      runs a cell: its tuning grid, then the chosen setting with new
                  seeds; or makes cells of the folders of runs that are there
store.py          each run runs once, and is found again by its digest
records.py        what is kept of a run, for tables, pictures and claims
seeds_needed.py   how many seeds a study needs, by one that is stored
"""
