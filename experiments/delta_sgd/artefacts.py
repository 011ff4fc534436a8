"""The tables, figures and theorems of the Delta-SGD paper."""

from experiments.delta_sgd import figures, inside, others, tables, theorems

ARTEFACTS = (
  *tables.ARTEFACTS,
  *figures.ARTEFACTS,
  *inside.ARTEFACTS,
  *others.ARTEFACTS,
  *theorems.ARTEFACTS,
)
