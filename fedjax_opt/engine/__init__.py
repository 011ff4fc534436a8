"""What runs a simulation; `Simulator` in simulator.py is the way through it.

An algorithm calls the verbs of `Cohort` (cohort.py), and in one client those of
`Worker` (worker.py). rounds.py has the loop over rounds.
"""
