"""Composite optimization: what is chosen and claimed on grids of rates.

What is published is held against its README in test_reproduce.py.
"""

import numpy as np

from experiments import records
from experiments.artefacts import ARTEFACTS
from experiments.fco import grids
from experiments.fco.grids import Condition
from fedjax_opt.results.selection import Criterion
from tests.experiments.artefacts.made_up import record

ROUNDS = [0, 50, 100, 200, 500]
F1, ERROR = (
  ("F1", Criterion("f1", "max", "mean_last_n", 10)),
  ("error", Criterion("recovery_error", "min", "mean_last_n", 10)),
)


def grid(curves, rates=(0.001, 0.003), strengths=(0.1, 0.5)):
  """A record whose first client rate has these curves; the other diverged.

  Args:
    curves: metric -> value at each of `ROUNDS`.
    rates: of the clients.
    strengths: of the regularizer.
  """
  points = [
    {"client_lr": rate, "server_lr": 1.0, "strength": s, "seed": seed}
    for rate in rates
    for s in strengths
    for seed in (0, 1, 2, 3)
  ]
  of_all = {
    name: np.array([
      np.add(values, 1e-6 * point["seed"] * (name != "rank"))
      if point["client_lr"] == rates[0]
      else np.full(len(ROUNDS), np.nan)
      for point in points
    ])
    for name, values in curves.items()
  }  # fmt: skip
  means = {n: np.array([p[n] for p in points], float) for n in points[0]}
  means |= {name: values[:, -1] for name, values in of_all.items()}
  return record(of_all, points, ROUNDS, arrays=means)


FED_MID = grid({
  "f1": [0.5, 0.6, 0.6, 0.7, 0.7],
  "density": [1.0, 0.9, 0.8, 0.8, 0.8],
  "recovery_error": [9.0, 5.0, 4.0, 3.0, 2.0],
})  # fmt: skip


def test_the_first_seed_chooses_and_the_others_are_reported():
  own, condition = FED_MID, Condition(0.5, *F1)
  rates = {"client_lr": 0.001, "server_lr": 1.0}
  assert grids.rates_of(grids.tuning(own.arrays, condition)) == rates
  picked = grids.pick({("FedMiD",): own}, condition)["FedMiD",]
  found = [(point["strength"], point["seed"]) for point in picked.points]
  assert found == [(0.5, 1), (0.5, 2), (0.5, 3)]
  assert picked.history.metrics["f1"].shape == (3, len(ROUNDS))
  # It survives the file.
  again = records.of_json(records.to_json(own)).arrays
  assert grids.rates_of(grids.tuning(again, condition)) == rates
  np.testing.assert_array_equal(np.isnan(again["f1"]), [False] * 8 + [True] * 8)


def test_where_all_rates_diverge():
  nothing = [np.nan] * 5
  lost = grid({n: nothing for n in ("f1", "density", "recovery_error")})
  condition = Condition(0.1, *ERROR)
  assert grids.tuning(lost.arrays, condition).best is None
  picked = grids.pick({("FedMiD",): lost}, condition)["FedMiD",]
  assert np.isnan(picked.final("f1")).all()
  assert len(picked.points) == 3
  table = ARTEFACTS["fco/figure3"].blocks({("FedMiD",): lost})[0]
  assert table.rows[0][3:5] == ["none", "diverged"]
  assert table.rows[0][-1] == "2 of 2"


def test_how_many_rates_are_at_an_edge_of_their_grid():
  rule = {"metric": "f1", "direction": "max", "n": 10}
  about = {"rules": {"F1": rule}, "results": {}}
  points = [{"seed": 0, "client_lr": r, "server_lr": 1.0} for r in (1, 2, 3)]

  def title(f1):
    means = {n: np.array([p[n] for p in points], float) for n in points[0]}
    curves = {"f1": np.array(f1)[:, None]}
    own = record(curves, points, [0], arrays=means | {"f1": np.array(f1)})
    return grids.results(about, {("FedMiD",): own}).title

  # One server rate is no choice.
  text = "; {} of 1 chosen values are at an edge of their grid"
  assert title([0.1, 0.2, 0.3]).endswith(text.format(1))
  assert title([0.1, 0.3, 0.2]).endswith(text.format(0))
