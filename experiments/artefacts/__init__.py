"""The tables, figures and theorems of the papers, made again.

base.py      an artefact: its cells, and what is shown of them
record.py    what is kept of a run
running.py   runs the cells of an artefact, none twice
claims.py    verdicts on what a paper claims
captions.py  what ran, said by its flags
report.py    an artefact as Markdown

`experiments/<paper>/artefacts.py` has those of a paper.
"""

from experiments.artefacts.base import Artefact
from experiments.bvr import artefacts as bvr
from experiments.delta_sgd import artefacts as delta_sgd
from experiments.domo import artefacts as domo
from experiments.fco import artefacts as fco

# Name -> artefact, paper after paper.
ARTEFACTS: dict[str, Artefact] = {
  each.name: each
  for paper in (delta_sgd, fco, bvr, domo)
  for each in paper.ARTEFACTS
}
