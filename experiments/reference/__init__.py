"""A reference comparison: many methods under many conditions, tuned alike.

`NAME.toml` in this folder says what runs; see `field.toml` for the rules. What
ran is kept as records in `NAME/CONDITION/`, one file for each cell.

definition.py  conditions and methods, and the cells of both
joining.py     runs the cells that are missing, or methods that join
cells.py       runs a cell: its grid, extended where the best is at an edge
standing.py    who stands where: places, verdicts, aggregates
regrets.py     how far settings carry from one condition to another
page.py        the page of all of that
"""
