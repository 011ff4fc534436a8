"""The tables, figures and theorems of the Delta-SGD paper."""

from experiments.delta_sgd import figures, others, tables

ARTEFACTS = (*tables.ARTEFACTS, *figures.ARTEFACTS, *others.ARTEFACTS)
