"""How often the clients of a study are made."""

import collections

import fedjax_opt as fo
from tests.helpers import linear


def test_methods_share_the_clients_of_a_seed_and_condition():
  """They are made once for all checks, and once for all runs."""
  made = collections.Counter()

  def clients(seed, alpha):
    made[seed, alpha] += 1
    return linear.DATA

  study = fo.compare(
    dict.fromkeys(["one", "other"], fo.Method(lambda: linear.ALGORITHM)),
    linear.PARAMS,
    clients,
    conditions=[{"alpha": 1.0}, {"alpha": 0.1}],
    report_seeds=[3, 4],
    test=linear.TEST,
    evaluate=linear.evaluate,
    rounds=1,
    batch_size=2,
  )
  methods = [cell.method for cell in study.cells]
  assert methods == ["one", "one", "other", "other"]
  assert made == dict.fromkeys(
    [(seed, alpha) for seed in (3, 4) for alpha in (1.0, 0.1)], 2
  )
