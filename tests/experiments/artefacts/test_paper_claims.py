"""What the papers claim, decided on records that never ran.

What is published is held against its README in test_reproduce.py.
"""

import numpy as np
import pytest

from experiments.artefacts import ARTEFACTS, definitions
from experiments.artefacts.artefact import Computed, GridChoices
from experiments.artefacts.blocks import VERDICTS, Claim, Table
from fedjax_opt.study.plots import panels
from tests.helpers.artefact_records import (
  claims,
  filled,
  of_points,
)

# All artefacts: some of the cells.

RUNS = [
  name
  for name, artefact in ARTEFACTS.items()
  if not any(
    isinstance(cell, Computed)
    for cell in artefact.recipes(GridChoices("smoke")).values()
  )
]


_METRICS = """
train_loss train_accuracy test_loss f1 precision recall density rank
recovery_error validation_loss regularized_train_loss regularized_test_loss"""


def same_everywhere(cell, _):
  """All metrics, at all points of the cell; and the traces of Figure 7."""
  record = of_points(cell, lambda point: 0.9)
  for metric in _METRICS.split():
    record.history.metrics[metric] = record.history.metrics["test_accuracy"]
  names = ("step_size", "smoothness_step", "growth_step")
  record.arrays.update(
    {name: np.ones((len(record.points), 4, 2)) for name in names}
  )
  return record


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.default_cases("delta_sgd/table1", "bvr/figure2", "domo/figure1")
def test_cells_may_be_missing(name, tmp_path):
  artefact = ARTEFACTS[name]
  for size in artefact.sizes:
    records = filled(name, size, lambda key: None, same_everywhere)
    half = -(-len(records) // 2)
    for keys in ([*records][:1], [*records][:half], [*records][-half:]):
      for block in artefact.blocks({key: records[key] for key in keys}):
        if isinstance(block, Claim):
          assert block.verdict in VERDICTS
          assert block.because(2)
        elif isinstance(block, Table):
          assert {len(row) for row in block.rows} == {len(block.columns)}
        elif size == "paper" and len(keys) == half:
          panels.save(block.draw(), tmp_path / f"{block.name}.png")


@pytest.mark.parametrize("name", RUNS)
def test_all_that_is_compared_is_there(name):
  """No claim names a row or a column that no size has."""
  artefact = ARTEFACTS[name]
  if getattr(artefact.blocks, "func", None) is definitions.blocks:
    records = {}
    for size in artefact.sizes[1:]:
      records |= filled(name, size, lambda key: None, same_everywhere)
    for record in records.values():  # Sizes have other seeds.
      seeds = list(dict.fromkeys(point["seed"] for point in record.points))
      for point in record.points:
        point["seed"] = seeds.index(point["seed"])
    for claim in claims(name, records).values():
      assert all(quantity.values for quantity in claim.quantities)
    entries = artefact.blocks.args[0]
    places = [entry.get("at", [0]) for entry in entries.get("claims", [])]
    num_places = sum(
      len(entries.get(columns, ()) if columns == "columns" else columns)
      for columns in places
    )
    texts = [*claims(name, records)]
    assert len(texts) >= num_places, texts
