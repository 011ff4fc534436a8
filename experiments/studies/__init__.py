"""Studies from the command line; `experiments.compare` is their program.

request   the command line, or a study file: methods, conditions, settings
plan      the cells of a study: for each a specification, checked
cells     runs a cell: its tuning grid, then the chosen setting with new seeds;
          or makes cells of the folders of runs that are there
planning  how many seeds a study needs, by one that is stored
"""
