"""From a study to its report.

sentences.py        the answer of a study, and what limits it
study_tables.py     what the tables say to people
formats.py          tables as HTML, Markdown, LaTeX, CSV and terminal lines
templates.py        templates, and how each format escapes
templates/          the words, the page and the tables
pictures.py         one picture for each question
drawing.py          what pictures share: labels, panels, captions
page.py             the folder of a study, and its page
"""
