"""Studies from the command line; `experiments.compare` is their program.

How `--method=fed_avg --method=scaffold --alpha=1,0.1` becomes a report:

1. `request.read_request` makes a `Request`: the flags of each method, and those
   that all share.
2. `planned_cells.plan` makes a `PlannedCell` for each method under each
   condition, here each alpha. Its `Spec` is that of `experiments.run`.
3. `cell_runs.run_cell` lets `fedjax_opt.study.tuning` decide what runs: the
   grid, then the best setting with fresh seeds. `stored.store.Store.run`
   returns a run that is stored, or runs it by `single_run.execution.perform`.
   If another cell runs it at the same time, it waits for that.
4. `study_facts.study_of` joins the cells to a `Study`, which tests the
   differences and writes the report.

request.py        the command line, or a study file: methods, conditions, flags
planned_cells.py  the cells of a study: for each a specification, checked
cell_runs.py      runs a cell: its tuning grid, then the chosen setting with new
                  seeds
existing_runs.py  cells made of the folders of runs that are there
labels.py         the labels of methods, of planned cells and of existing runs
study_facts.py    what a report says of a whole study
seeds_needed.py   how many seeds a study needs, by one that is stored
"""
