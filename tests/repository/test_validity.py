"""docs/validity_table.md says what is: each method is run again."""

import pathlib

import jax
import pytest
import validity_table as table

from fedjax_opt.algorithms import ALGORITHMS

WRITTEN = table.TABLE.read_text().removeprefix(table.head()).splitlines()
LINES = dict(zip([*ALGORITHMS, *table.FORMS], WRITTEN, strict=True))
# What of the table is computed again here, one of each kind: where a method is
# FedAvg, where it reaches the optimum, and where it does not.
REDUCTIONS = (
  "fed_prox", "moon", "fed_mid", "fed_mid_osp", "fed_dual_avg",
  "fed_dual_avg_osp", "centralized", "scaffold", "fed_nova", "fed_avg_slm",
  "prox_skip", "p_fed_me", "fed_async",
)  # fmt: skip
CORRECTED = ("scaffold", "fed_dyn", "fed_dc", "prox_skip")
STALLED = ("fed_avg", "mime_lite")


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


def test_every_method_has_a_line_and_a_loop():
  assert set(table.METHODS) == set(ALGORITHMS)
  assert table.TABLE.read_text().startswith(table.head())
  for name, method in table.ROWS.items():
    loop = (pathlib.Path(__file__).parents[1] / method.loop).read_text()
    assert name.split(",")[0] in loop or ALGORITHMS[name].server_rule


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.default_cases("fed_nova")
def test_is_fed_avg_where_the_table_says_so(name):
  reduction = table.METHODS[name].fed_avg
  assert table.off_fed_avg(reduction) <= table.EQUAL
  assert f"| {reduction.text} |" in LINES[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CORRECTED, *STALLED])
def test_ends_where_the_table_says(name):
  """If it fails: `PYTHONPATH=. python docs/make/validity_table.py`; look."""
  row = table.try_method(name)
  assert table.line(row) == LINES[name]
  ends = [row.all_clients]
  if row.few_clients is not None:
    ends.append(row.few_clients)
  for distance in ends:
    if name in CORRECTED:
      assert distance <= table.REACHED
    else:
      assert distance >= table.STALLED


@pytest.mark.parametrize("name", ["minibatch_sgd", *STALLED])
@pytest.mark.default_cases("mime_lite")
def test_what_stops_before_the_optimum_leaves_it(name):
  """In the first round already; one step on all examples stays."""
  result = table.run(table.METHODS[name].make(), 1, from_optimum=True)
  distance = result.history.metrics["distance"][0, -1]
  assert (distance <= table.REACHED) == (name == "minibatch_sgd")
  assert not table.REACHED < distance < table.STALLED
