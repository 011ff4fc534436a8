"""No flipped bit of what was written goes unnoticed."""

import pytest

from tests import bit_flips


@pytest.mark.slow
@pytest.mark.parametrize(
  ("what", "expected"),
  [
    (bit_flips.OfPopulation, {"refused"}),
    (bit_flips.OfCheckpoints, {"same"}),
  ],
)
def test_of_twenty_bits_none_goes_unnoticed(what, expected, tmp_path):
  assert set(bit_flips.outcomes(what(), 20, tmp_path)) == expected
