"""Methods compared under conditions, each at its best setting, on fresh seeds.

cells.py            a study: its cells, and what each one measured
studies.py          `compare`: tunes and runs all cells of a study from Python
verdicts.py         intervals, differences, and which can be told from chance
limits.py           what limits the comparison
words.py            numbers and metrics as sentences, tables and captions say
tables.py           the table for people: Markdown, LaTeX and the terminal
csv_table.py        the table for programs
pictures.py         one picture for each question, with drawing.py
tuning_pictures.py  those of how settings were chosen
report.py           the folder of a study, and its page
page.py             HTML of the page's parts, with the sections of sections.py
"""
