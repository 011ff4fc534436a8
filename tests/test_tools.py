"""No damage goes unnoticed."""

import pytest

from tests.tools import bit_flips

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
