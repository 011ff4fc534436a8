"""Composite optimization: what is chosen and claimed on grids of rates.

What is published is held against its README in test_reproduce.py.
"""

import numpy as np

from experiments.artefacts import ARTEFACTS
from experiments.artefacts import record as records
from experiments.artefacts.artefact import Picture
from experiments.artefacts.claims import HELD, NOT_HELD, UNDECIDED, Claim
from experiments.fco import grids
from experiments.fco.grids import Condition
from fedjax_opt.metrics import Criterion
from tests.experiments.artefacts.made_up import of, record, verdicts

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


def scans(loss, accuracy, density):
  curve = lambda last: [*np.linspace(0.9, last, 4), last]
  ends = {
    "regularized_test_loss": loss, "test_accuracy": accuracy,
    "density": density,
  }  # fmt: skip
  curves = {name: curve(end) for name, end in ends.items()}
  return grid(curves, (0.003, 0.01))  # Their products are in Figure 12.


def test_claims_of_scans(tmp_path):
  found = {
    ("FedDualAvg",): scans(0.3, 0.9, 0.1),
    ("FedMiD",): scans(0.4, 0.85, 0.9),
    ("FedMiD-OSP",): scans(0.4, 0.85, 0.9),
    ("FedDualAvg-OSP",): scans(0.5, 0.7, 0.1),
    ("FedAvg(∂)",): scans(0.5, 0.7, 1.0),
    ("centralized",): scans(0.3, 0.91, 0.1),
    ("local",): scans(0.6, 0.6, 0.1),
  }
  for name in ("fco/figure1", "fco/figure5"):
    assert set(verdicts(name, found).values()) == {HELD}
  dense = found | {("FedMiD",): scans(0.4, 0.95, 0.9)}
  lost = [v for t, v in verdicts("fco/figure5", dense).items() if "denser" in t]
  assert lost == [NOT_HELD, NOT_HELD]
  four = {
    key: found[key] for key in found if key[0].startswith(("FedD", "FedM"))
  }
  blocks = ARTEFACTS["fco/figure12"].blocks(four)
  assert blocks[0].rows[0] == ["FedDualAvg", "50", "50"]  # The others diverged.
  for picture in of(blocks, Picture):
    picture.draw(tmp_path / f"{picture.name}.png")
  assert len(list(tmp_path.iterdir())) == 2
  for claim in of(blocks, Claim):
    assert claim.verdict == UNDECIDED  # It shows one seed.
    assert all(q.margin > 0 for q in claim.quantities)


def test_figures_of_scans_keep_the_same_of_a_run():
  """They share runs, and a record is taken for each of them."""
  run = scans(0.3, 0.9, 0.1)
  kept = [ARTEFACTS[f"fco/figure{i}"].keep(run) for i in (1, 5, 12)]
  assert [each.points for each in kept] == [kept[0].points] * 3
  assert [each.metrics for each in kept] == [kept[0].metrics] * 3
  assert {0, 1, 2, 3} < {*kept[0].points}  # Chosen, and all of the first seed.


def test_claims_of_images():
  def of_end(loss, accuracy):
    curves = {
      "train_loss": [9.0, 5.0, 4.0, 3.0, loss],
      "train_accuracy": [0.1, 0.2, 0.3, 0.4, accuracy],
      "test_accuracy": [0.1, 0.2, 0.3, 0.4, accuracy],
    }
    own = grid(curves, strengths=(None,))
    del own.arrays["strength"]
    return own

  found = {
    ("FedDualAvg",): of_end(1.0, 0.8),
    ("FedDualAvg-OSP",): of_end(3.0, 0.9),
    ("FedMiD",): of_end(2.0, 0.7),
    ("FedMiD-OSP",): of_end(2.0, 0.7),
  }
  assert [*verdicts("fco/figure14", found).values()] == [HELD] * 3
  assert [*verdicts("fco/figure13", found).values()] == [NOT_HELD] * 2
  far = found | {("FedDualAvg-OSP",): of_end(3.0, 0.6)}
  assert [*verdicts("fco/figure15", far).values()] == [HELD] * 3
  near = found | {("FedDualAvg-OSP",): of_end(3.0, 0.75)}
  assert [*verdicts("fco/figure15", near).values()] == [HELD, HELD, NOT_HELD]
