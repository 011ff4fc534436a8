"""The settings of the four papers: flags of the runs at their own size."""

import pathlib
import tomllib

import pytest

from experiments.artefacts import ARTEFACTS, definitions
from experiments.artefacts.artefact import (
  SIZES,
  GridChoices,
  RunOf,
  grid_of,
  spec_of,
)
from tests.helpers.artefact_records import flags_by_key

SETTINGS = tomllib.loads(
  pathlib.Path(__file__).with_name("settings.toml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("paper", SETTINGS["artefacts"])
def test_nothing_of_a_paper_is_missing(paper):
  names = [n.split("/")[1] for n in ARTEFACTS if n.startswith(f"{paper}/")]
  assert names == SETTINGS["artefacts"][paper]


@pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=lambda a: a.name)
def test_every_artefact(artefact):
  """All flags of all sizes can be, and functions have all options."""
  assert set(artefact.sizes) <= set(SIZES)
  assert {"smoke", "paper"} <= set(artefact.sizes)
  for size in artefact.sizes:
    choices = GridChoices(size)
    for cell in artefact.recipes(choices).values():
      if isinstance(cell, RunOf):
        spec_of(cell.arguments)
      else:
        names = cell.function.__code__.co_varnames
        assert set(cell.options) <= set(names)
    assert all(grid_of(grid) for grid in choices.grids)


def has(flags, expected):
  """Asserts that flags have these values."""
  assert {name: flags.get(name) for name in expected} == expected


@pytest.mark.parametrize("name", SETTINGS["cells"])
def test_the_papers_settings(name):
  cells = flags_by_key(name)
  for part, entry in SETTINGS["cells"][name].items():
    common = [SETTINGS["common"][group] for group in entry.get("like", [])]
    expected = definitions.merged(*common, entry)
    number = expected.pop("number")
    expected.pop("like", None)
    part_flags = {k: f for k, f in cells.items() if part == "all" or part in k}
    assert len(part_flags) == number
    for flags in part_flags.values():
      has(flags, expected)
  for key, flags in cells.items():
    for part in key:
      # What is said of this artefact's part counts more.
      own_flags = SETTINGS["cells"][name].get(part, {})
      shared_flags = SETTINGS["parts"].get(part, {})
      has(flags, {n: v for n, v in shared_flags.items() if n not in own_flags})


@pytest.mark.parametrize(
  "name",
  [n for n in ARTEFACTS if n.startswith(("domo", "bvr", *SETTINGS["grids"]))],
)
def test_rates_are_chosen_on_examples_and_seeds_of_their_own(name):
  """And for each network by itself."""
  choices = GridChoices("paper")
  cells = ARTEFACTS[name].recipes(choices).values()
  grids = [spec_of(grid).identity for grid in choices.grids]
  for flags in grids:
    expected = SETTINGS["grids"]
    has(flags, expected.get(name) or expected[name.split("/")[0]])
  if grids:
    reported = [spec_of(cell.arguments).identity for cell in cells]
    tasks = [{flags["task"] for flags in runs} for runs in (grids, reported)]
    assert tasks[0] == tasks[1]


def test_numbers_of_the_papers():
  """A few of each table, against slips of a row or a column."""
  artefacts = {
    paper: ARTEFACTS[f"{paper}/table1"].blocks.args[0]
    for paper in ("delta_sgd", "domo")
  }
  tables = {
    (paper, table): definitions.paper_numbers(entries, table)
    for paper, entries in artefacts.items()
    for table in entries["numbers"]
  }
  for paper, table, row, column, number in SETTINGS["numbers"]:
    assert tables[paper, table][row, column] == number
  # Table 2b says how far the others are from Δ-SGD: 2.5 to 26.9 points.
  table = {k: float(v) for k, v in tables["delta_sgd", "table6"].items()}
  gaps = [
    table["Δ-SGD", column] - number
    for (row, column), number in table.items()
    if row != "Δ-SGD" and column in ("CIFAR-10", "CIFAR-100, ResNet-50")
  ]
  assert (min(gaps), max(gaps)) == pytest.approx((2.5, 26.9))
