"""No damage goes unnoticed, and wrong values end in one line."""

import pytest

from tools import bit_flips, wrong_values

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
  found = bit_flips.outcomes(write, number, tmp_path)
  assert found
  assert set(found) <= expected


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
