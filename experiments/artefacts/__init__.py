"""The tables, figures and theorems of the papers, made again.

artefact.py         an artefact: its cells, and what is shown of them
blocks.py           tables, pictures, and claims with their verdicts
definitions.py      artefacts as `PAPER/artefacts.toml` declares them
values.py           values of records, such as 'best train_loss'
declared_claims.py  claims as they are declared
views.py            tables and pictures as they are declared
metric_panels.py    pictures with a panel for each metric
recipe_runner.py    runs the recipes of an artefact, none twice
client_labels.py    who has which labels
captions.py         what ran, said by its flags
listing.py          all artefacts, and what they cost
publishing.py       what is published of an artefact
paper_pages.py      an artefact, and the page of a paper, as Markdown
main_claims.py      the main claims of a paper, for the index of all
"""

from experiments.artefacts import definitions
from experiments.artefacts.artefact import Artefact

# Name -> artefact, paper after paper.
ARTEFACTS: dict[str, Artefact] = {
  artefact.name: artefact
  for paper in ("delta_sgd", "fco", "bvr", "domo")
  for artefact in definitions.of_paper(paper)
}
