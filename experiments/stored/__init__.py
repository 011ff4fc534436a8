"""Runs that are kept, for studies, artefacts and the reference comparison.

store.py      each run runs once, and is found again by its digest
records.py    what is kept of a run, for tables, pictures and claims
same_data.py  whether runs that are compared ran on the same data
"""
