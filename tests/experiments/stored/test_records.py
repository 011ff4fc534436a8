"""What is recorded of a run."""

import numpy as np

from tests.helpers.artefact_records import record


def test_parts_of_a_record_have_the_rows_of_their_points():
  points = [{"rate": rate, "seed": seed} for rate in (1, 2) for seed in (0, 1)]
  curves = {"test_accuracy": [[0.1], [0.2], [0.3], [0.4]]}
  arrays = {"steps": np.arange(8).reshape(4, 2)}
  whole = record(curves, points, [1], arrays=arrays)
  part = whole.where(rate=2)
  assert part.points == points[2:]
  np.testing.assert_array_equal(part.final("test_accuracy"), [0.3, 0.4])
  np.testing.assert_array_equal(part.arrays["steps"], [[4, 5], [6, 7]])
