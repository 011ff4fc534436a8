"""No flipped bit of what was written goes unnoticed."""

import pytest

from tests.tools import bit_flips


@pytest.mark.parametrize(
  ("write", "number", "expected"),
  [
    (bit_flips.run, 60, {"refused"}),
    # Rows that a kill left behind the digest are not read.
    (bit_flips.stopped_run, 60, {"refused", "same"}),
    (bit_flips.reproduced, 60, {"refused"}),
    # The index has bits that nothing depends on, such as the time of writing.
    pytest.param(
      bit_flips.population, 20, {"refused", "same"}, marks=pytest.mark.slow
    ),
    pytest.param(bit_flips.checkpoints, 20, {"same"}, marks=pytest.mark.slow),
  ],
)
def test_no_bit_goes_unnoticed(write, number, expected, tmp_path):
  assert set(bit_flips.outcomes(write, number, tmp_path)) == expected
