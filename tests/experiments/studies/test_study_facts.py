"""What a report says of the methods of a study."""

import types

from experiments.studies.study_facts import difference_notes, privacy_notes
from tests.helpers.plans import FED_AVG, RATES, SCAFFOLD, planned


def test_the_numbers_of_privacy_are_of_the_methods_that_have_it():
  private = "--method=fed_avg client=sgd privacy=gaussian label=private"
  shared = ("--weighting=uniform", "--dp_noise_multiplier=0.5,1", RATES)
  flags = ("--dp_delta=1e-3", "--budget=unequal")
  private_cell, plain_cell = planned(private, FED_AVG, *shared, *flags)
  assert private_cell.grid["dp_noise_multiplier"] == [0.5, 1.0]
  assert private_cell.spec.dp_delta == 1e-3
  assert set(plain_cell.grid) == {"client_lr"}
  (alone,) = planned("--privacy=gaussian", FED_AVG, *shared)
  assert set(alone.grid) == {"client_lr", "dp_noise_multiplier"}
  assert privacy_notes([alone]) == []
  seeded = planned(private, FED_AVG, *shared, *flags, "--dp_seed=0")
  assert [cell.spec.dp_seed for cell in seeded] == [0, None]
  (line,) = privacy_notes(seeded)
  assert line.startswith("NOT private: private, whose noise comes from dp_seed")
  run = types.SimpleNamespace(config={"dp_seed": 3})
  old = types.SimpleNamespace(
    method="old", parts=[types.SimpleNamespace(run=run)]
  )
  (line,) = privacy_notes([plain_cell], [old])
  assert line.startswith("NOT private: old, whose noise")


def test_what_methods_do_not_share_is_told():
  mine = "--method=fed_avg client=sgd cohort_size=50 local_epochs=5 label=Mine"
  cells = planned(SCAFFOLD, mine, RATES, "--alpha=1,0.1")
  assert difference_notes(cells) == [
    "Methods differ in clients per round: 10 for SCAFFOLD; 50 for Mine.",
    "Methods differ in local epochs: 1 for SCAFFOLD; 5 for Mine.",
  ]
  assert difference_notes(planned(SCAFFOLD, FED_AVG, RATES)) == []
