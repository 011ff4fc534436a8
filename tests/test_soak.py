"""The tool that watches what goes on for long."""

import pytest

from tests.tools import soak


def test_the_last_third_is_compared_with_the_first():
  megabytes = [500, 100, 100, 104, 105, 106, 110]  # The first is left out.
  speeds = [1, 50, 50, 9, 9, 45, 45]
  parts = [
    soak.Part(m, s, 2 * s) for m, s in zip(megabytes, speeds, strict=True)
  ]
  assert soak.change(parts) == pytest.approx((8, -10, -10))


def test_a_part_is_of_what_was_done_in_it():
  readings = [
    (10, 5.0, 2.0, 90.0),
    (20, 7.0, 3.0, 100.0),
    (40, 9.0, 8.0, 120.0),
  ]
  found = soak.part([soak.Reading(*each) for each in readings])
  assert found == soak.Part(110.0, 30 / 6.0, 30 / 4.0)


def test_whole_rows_alone_are_read(tmp_path):
  path = tmp_path / "metrics.csv"
  assert soak.last_round(path) == 0
  path.write_text("point,round,loss\n")
  assert soak.last_round(path) == 0
  path.write_text("point,round,loss\n0,50,0.5\n0,100,0.4\n0,15")
  assert soak.last_round(path) == 100
