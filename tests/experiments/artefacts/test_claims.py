"""Verdicts on claims, by hand-made numbers."""

import numpy as np
import pytest

from experiments.artefacts.claims import Claim, Quantity, above

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
  ("values", "verdict"),
  [
    ((1.0, 1.1, 0.9), "held"),
    ((-1.0, -1.1, -0.9), "not held"),
    ((1.0, -1.0, 0.5), "undecided"),
    ((5.0,), "undecided"),  # One seed decides nothing.
    ((INF,), "undecided"),
    ((), "undecided"),
    ((INF, INF), "held"),  # What it is compared with diverged, always.
    ((-INF, -INF), "not held"),
    ((INF, 1.0), "undecided"),
    ((NAN, 1.0), "undecided"),
  ],
)
def test_one_quantity(values, verdict):
  assert Quantity("it", values).verdict == verdict


def test_the_interval_decides_not_the_mean():
  """A mean of 1 with a deviation of 1 over 3 seeds: 1 -+ 2.48."""
  assert Quantity("it", (0.0, 1.0, 2.0)).verdict == "undecided"
  # The same with 20 seeds: about 1 -+ 0.4.
  assert Quantity("it", (0.0, 1.0, 2.0) * 7).verdict == "held"


def test_where_no_chance_is_involved_the_values_decide():
  exact = lambda *values: Quantity("it", values, is_exact=True).verdict
  assert exact(0.1) == "held"
  assert exact(0.1, -0.1) == "not held"


def test_of_what_is_exact_the_least_value_is_shown_and_sorted_by():
  low = Quantity("low", (0.01, 9.0), is_exact=True)
  even = Quantity("even", (1.0, 1.0), is_exact=True)
  assert Claim("text", [even, low]).reason == (
    "low: 0.01 (the least of 2); even: 1 (the least of 2)"
  )
  assert str(Quantity("one", (0.5,), is_exact=True)) == "one: 0.5"


def test_what_is_lost_says_whose_and_how():
  slow = above("K", [NAN, 1, 2], [1, 2, 3], sides=("A", "B"), lost="is late")
  assert str(slow) == "K: A is late at 1 of 3 seeds"
  both = above("K", [NAN, 1], [NAN, NAN], sides=("A", "B"))
  assert str(both) == (
    "K: A diverged at 1 of 2 seeds and B diverged at 2 of 2 seeds"
  )
  assert str(Quantity("distance", (1.0, NAN))) == (
    "distance: no number at 1 of 2 seeds"
  )


HELD, LOST = Quantity("a", (1.0, 1.1)), Quantity("b", (-1.0, -1.1))
OPEN = Quantity("c", (1.0, -1.0))


@pytest.mark.parametrize(
  ("quantities", "verdict", "reason"),
  [
    ([HELD, HELD], "held", "a: 1.05"),
    ([HELD, OPEN], "undecided", "c: 0 "),
    ([HELD, OPEN, LOST], "not held", "b: -1.05"),
    ([], "undecided", "not run"),
  ],
)
def test_claims(quantities, verdict, reason):
  claim = Claim("text", quantities)
  assert claim.verdict == verdict
  assert claim.reason.startswith(reason)


def test_the_reason_begins_with_the_closest_call():
  near, far = Quantity("near", (1.0, 1.1)), Quantity("far", (9.0, 9.1))
  reason = Claim("text", [far, near, far, far]).reason
  assert reason.startswith("near: ")
  assert reason.endswith("and 1 more")


def test_the_reason_counts_what_is_held():
  assert Claim("text", [HELD, OPEN]).reason.endswith("1 of 2 are held")


def test_above():
  assert above("it", [0.5, 0.6], [0.4, 0.4], scale=100).values == (
    pytest.approx(10),
    pytest.approx(20),
  )
  # What diverged is worse, whatever the direction.
  for scale in (1, -1):
    assert above("it", [NAN, 1], [1, NAN], scale=scale).values == (-INF, INF)
  assert np.isnan(above("it", [NAN], [NAN]).values).all()
  assert above("it", None, [1.0]).values == ()
