"""Methods compared under conditions, each at its best setting, on fresh seeds.

cells.py     a study: its cells, and what each one measured
studies.py   `compare`: tunes and runs all cells of a study from Python
verdicts.py  intervals, differences, and which of them can be told from chance
tables.py    the study as Markdown, LaTeX and CSV
pictures.py  one picture per question
report.py    the folder of a study, and its page
"""
