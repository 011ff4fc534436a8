"""No damage goes unnoticed, wrong values end in one line; other seeds."""

import numpy as np
import pytest

from experiments.artefacts.artefact import Computed, RunOf, spec_of
from experiments.artefacts.blocks import Claim, Quantity
from tools import bit_flips, second_seeds, wrong_values

_slow = lambda *case: pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
  ("kind", "number", "expected"),
  [
    # Spaces of digests.json may be lost.
    ("run", 60, {"refused", "same"}),
    # Rows that a kill left behind the digest are not read.
    ("stopped run", 60, {"refused", "same"}),
    ("records", 60, {"refused"}),
    # The index has bits that nothing depends on, such as the time of writing.
    _slow("population", 20, {"refused", "same"}),
    _slow("converted", 10, {"refused", "same"}),
    _slow("checkpoints", 20, {"same"}),
    _slow("killed run", 10, {"refused", "same"}),
    _slow("study", 5, {"refused", "same"}),
    _slow("compilation cache", 3, {"same"}),
  ],
)
def test_no_damage_goes_unnoticed(kind, number, expected, tmp_path):
  write, _ = bit_flips.KINDS[kind]
  outcomes = bit_flips.outcomes(write, number, tmp_path)
  assert outcomes
  assert set(outcomes) <= expected


# Wrong values of some public functions; all are in `wrong_values`.


@pytest.mark.slow
@pytest.mark.parametrize("names", ["fed_*", "prox.l*"])
def test_ends_in_one_clear_line(names, monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)  # And back, from the folder of the table.
  table = wrong_values.run(tmp_path / "table", [names])
  assert table
  assert not wrong_values.unclear(table)


def test_what_is_public_has_examples():
  for name, function in wrong_values.public().items():
    assert wrong_values.arguments(name, function) is not None


# Designs again, with other seeds.


def test_as_many_other_seeds():
  run = second_seeds.with_other_seeds(RunOf(("--seed=1,2",)))
  assert spec_of(run.arguments).seed == [1001, 1002]
  call = second_seeds.with_other_seeds(Computed(len, {"seeds": [0], "b": 1}))
  assert call.options == {"seeds": [1000], "b": 1}


def test_what_agrees():
  near, far, same = (1.0, 2.0, 3.0), (30.0, 31.0, 29.0), (2.0, 2.0)
  for first, second, expected in (
    (near, (1.1, 2.2, 2.9), True), (near, far, False), (same, same, True),
    (same, (1.0, 1.0), False), ((1.0, np.inf), same, None),
  ):  # fmt: skip
    a, b = Quantity("a", first), Quantity("b", second)
    assert second_seeds.agrees(a, b) is expected
    comparison = second_seeds.compared([Claim("c", [a])], [Claim("c", [b])])
    assert comparison["agree"] == (expected is True)
