"""The artefacts of the composite optimization paper."""

import numpy as np
import pytest

from experiments import store
from experiments.artefacts import record as records
from experiments.artefacts import views
from experiments.artefacts.base import Computed, Picture, Plan, RunOf, spec_of
from experiments.artefacts.claims import HELD, NOT_HELD, UNDECIDED, Claim
from experiments.artefacts.record import Record
from experiments.fco import artefacts, claims, convex, grids, regression
from experiments.fco.grids import Condition
from fedjax_opt.metrics import History

BY_NAME = {each.name.split("/")[1]: each for each in artefacts.ARTEFACTS}
CLIENT = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
SERVER = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]
ROUNDS = [0, 50, 100, 200, 500]


def flags_of(name, key, size="paper"):
  cell = BY_NAME[name].cells(Plan(size, {}))[key]
  assert isinstance(cell, RunOf)
  return store.identity(spec_of(cell.arguments))


def test_all_figures_and_theorems_are_there():
  figures = [f"figure{i}" for i in range(1, 16)]
  theorems = [f"theorem4.{i}" for i in (1, 2, 3)]
  assert list(BY_NAME) == [*figures, "rates", "strength", *theorems]


@pytest.mark.parametrize(
  ("figure", "task", "variant"),
  [(3, "lasso", "I"), (6, "lasso", "II"), (7, "lasso", "III"),
   (8, "lasso", "IV"), (4, "low_rank", "I"), (9, "low_rank", "II"),
   (10, "low_rank", "III"), (11, "low_rank", "IV")],
)  # fmt: skip
@pytest.mark.parametrize("method", grids.ALGORITHMS)
def test_regression_is_the_papers(figure, task, variant, method):
  flags = flags_of(f"figure{figure}", (method,))
  paper = {
    "task": task,
    "variant": variant,
    "algorithm": grids.ALGORITHMS[method],
    "client_lr": CLIENT,
    "server_lr": SERVER,
    "cohort_size": 10,
    "batch_size": 10,
    "local_epochs": 1.0,
    "rounds": 500,
    "zero_threshold": 0.01,
    "select_on": "truth",
  }
  assert {name: flags[name] for name in paper} == paper


@pytest.mark.parametrize("figure", [1, 5, 12])
def test_fmri_is_the_papers(figure):
  flags = flags_of(f"figure{figure}", ("FedDualAvg",))
  paper = {
    "task": "fmri",
    "regularizer": "l1",
    "client_lr": CLIENT,
    "server_lr": SERVER,
    "cohort_size": 20,
    "batch_size": 1,
    "local_epochs": 1.0,
    "rounds": 300,
    "zero_threshold": 1e-4,
  }
  assert {name: flags[name] for name in paper} == paper
  cells = BY_NAME["figure1"].cells(Plan("paper", {}))
  baseline = store.identity(spec_of(cells["centralized",].arguments))
  assert baseline["client_lr"] == [1e-4, 3e-4, *CLIENT]
  assert baseline["rounds"] == 300


@pytest.mark.parametrize(
  ("figure", "task", "regularizer", "radius"),
  [(13, "femnist10", "l1_ball", 1000.0), (14, "femnist10", "l2_ball", 10.0),
   (15, "femnist62", "l1_ball", 1000.0)],
)  # fmt: skip
def test_femnist_is_the_papers(figure, task, regularizer, radius):
  flags = flags_of(f"figure{figure}", ("FedMiD-OSP",))
  paper = {
    "task": task,
    "regularizer": regularizer,
    "radius": radius,
    "client_lr": CLIENT[:5],
    "server_lr": SERVER[:5],
    "cohort_size": 10,
    "batch_size": 10,
    "local_epochs": 10.0,
    "rounds": 5000,
    "eval_every": 100,
  }
  assert {name: flags[name] for name in paper} == paper


# Made-up records of a grid.


def made_up(curves, rates=(0.001, 0.003), strengths=(0.1, 0.5)):
  """A record whose first pair of rates has these curves; the other diverged.

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
  ok = [point["client_lr"] == rates[0] for point in points]
  jitter = [1e-6 * point["seed"] for point in points]
  of_all = {
    name: [
      [v + j * (name != "rank") if good else np.nan for v in values]
      for good, j in zip(ok, jitter, strict=True)
    ]
    for name, values in curves.items()
  }
  last = {name: [row[-1] for row in rows] for name, rows in of_all.items()}
  table = {n: [p[n] for p in points] for n in points[0]} | last
  history = History(ROUNDS, {n: np.array(v) for n, v in of_all.items()})
  about = {"date": "2000-01-01", "seconds": 1.0}
  return Record(
    ("--task=lasso",), {}, about, points, history, of_all_points(table)
  )


def of_all_points(table):
  return {name: np.array(values, float) for name, values in table.items()}


FAST = {"f1": [0.5, 0.9, 1.0, 1.0, 1.0], "density": [1.0, 0.6, 0.5, 0.5, 0.5]}
SLOW = {"f1": [0.5, 0.6, 0.6, 0.7, 0.7], "density": [1.0, 0.9, 0.8, 0.8, 0.8]}
OTHERS = {"recovery_error": [9.0, 5.0, 4.0, 3.0, 2.0]}
FOUND = {
  ("FedDualAvg",): made_up(FAST | OTHERS, rates=(0.01, 0.03)),
  ("FedDualAvg-OSP",): made_up(
    {"f1": [0.5, 0.8, 0.9, 0.95, 1], "density": [1, 0.7, 0.6, 0.6, 0.6]}
    | OTHERS
  ),
  ("FedMiD",): made_up(SLOW | OTHERS),
  ("FedMiD-OSP",): made_up(SLOW | OTHERS | {"density": [1, 1, 0.7, 0.7, 0.7]}),
}


def by_text(name, found):
  blocks = BY_NAME[name].blocks(found)
  return {b.text: b.verdict for b in blocks if isinstance(b, Claim)}


def test_claims_of_figure3():
  verdicts = by_text("figure3", FOUND)
  assert len(verdicts) == 4 * 2 * 2  # Claims, strengths, rules.
  where = "(λ = 0.1, by F1)"
  assert verdicts[f"FedDualAvg is fastest {where}"] == HELD
  assert verdicts[f"FedMiD is the least sparse {where}"] == HELD
  rates = next(v for text, v in verdicts.items() if "best rates" in text)
  assert rates == NOT_HELD  # Ten times the client rate, the same server rate.
  swapped = FOUND | {
    ("FedDualAvg",): FOUND["FedMiD",],
    ("FedMiD",): FOUND["FedDualAvg",],
  }
  verdicts = by_text("figure3", swapped)
  assert verdicts[f"FedDualAvg is fastest {where}"] == NOT_HELD
  assert verdicts[f"FedMiD is the least sparse {where}"] == NOT_HELD


def test_perfect_f1_must_come_before_the_limit():
  name = "FedDualAvg has perfect F1 in less than {} rounds (λ = 0.5, by error)"
  assert by_text("figure6", FOUND)[name.format(100)] == UNDECIDED  # At 100.
  assert by_text("figure8", FOUND)[name.format(200)] == HELD
  slow = FOUND | {("FedDualAvg",): FOUND["FedMiD",]}
  assert by_text("figure8", slow)[name.format(200)] == NOT_HELD


def test_claims_of_low_rank():
  of = lambda ranks, error: made_up({
    "rank": ranks,
    "recovery_error": [9.0, 5.0, 4.0, 3.0, error],
    "regularized_train_loss": [9.0, 8.0, 7.0 + error, 6.0, 5.0],
  })  # fmt: skip
  found = {
    ("FedDualAvg",): of([32, 16, 16, 16, 16], 1.0),
    ("FedDualAvg-OSP",): of([32, 30, 28, 20, 16], 2.0),
    ("FedMiD",): of([32, 30, 28, 20, 16], 3.0),
    ("FedMiD-OSP",): of([32, 30, 28, 20, 18], 3.0),
  }
  condition = Condition(0.1, regression.ERROR)
  picked = grids.pick(found, condition)
  assert [
    claim.verdict for claim in claims.low_rank(16, 100)(picked, condition)
  ] == [HELD, HELD, HELD]
  of_four = claims.low_rank(4, 100)(picked, condition)
  assert of_four[0].verdict == NOT_HELD  # Never of rank 4.


def test_the_first_seed_chooses_and_the_others_are_reported():
  record = FOUND["FedMiD",]
  condition = Condition(0.5, regression.F1)
  assert grids.choose(record.arrays, condition) == {
    "client_lr": 0.001,
    "server_lr": 1.0,
  }
  rows = grids.reported(record.arrays, record.points, condition)
  seeds = [
    (record.points[r]["strength"], record.points[r]["seed"]) for r in rows
  ]
  assert seeds == [(0.5, 1), (0.5, 2), (0.5, 3)]
  picked = grids.pick({("FedMiD",): record}, condition)["FedMiD",]
  assert picked.history.metrics["f1"].shape == (3, len(ROUNDS))


def test_where_all_rates_diverge():
  nothing = [np.nan] * 5
  lost = made_up({n: nothing for n in ("f1", "density", "recovery_error")})
  condition = Condition(0.1, regression.F1)
  assert grids.choose(lost.arrays, condition) is None
  picked = grids.pick({("FedMiD",): lost}, condition)["FedMiD",]
  assert np.isnan(picked.final("f1")).all()
  assert len(picked.points) == 3
  table = BY_NAME["figure3"].blocks({("FedMiD",): lost})[0]
  assert table.rows[0][3:5] == ["none", "diverged"]
  assert table.rows[0][-1] == "2 of 2"


def test_what_chooses_survives_the_file():
  record = FOUND["FedMiD",]
  again = records.of_json(records.to_json(record))
  condition = Condition(0.1, regression.F1)
  assert grids.choose(again.arrays, condition) == grids.choose(
    record.arrays, condition
  )
  scores = again.arrays["f1"]
  np.testing.assert_array_equal(np.isnan(scores), [False] * 8 + [True] * 8)


@pytest.mark.parametrize("name", BY_NAME)
def test_cells_may_be_missing(name):
  """Nothing crashes, and nothing is decided of what is not there."""
  artefact = BY_NAME[name]
  keys = list(artefact.cells(Plan("paper", {})))
  for key in keys[:1] if name in ("figure3", "figure6", "figure8") else []:
    blocks = artefact.blocks({key: FOUND["FedMiD",]})
    decided = [b for b in blocks if isinstance(b, Claim)]
    assert decided
    assert all(b.verdict in (UNDECIDED, NOT_HELD) for b in decided)
  assert keys


def test_pictures_are_drawn(tmp_path):
  for block in BY_NAME["figure3"].blocks(FOUND):
    if isinstance(block, Picture):
      block.draw(tmp_path / f"{block.name}.png")
  assert len(list(tmp_path.iterdir())) == 2


# The theorems.


@pytest.mark.parametrize(
  ("theorem", "kind"), [("4.1", "l1"), ("4.2", "ball"), ("4.3", "l1")]
)
def test_the_problem_is_what_the_bounds_assume(theorem, kind):
  of = convex.problem(kind, sigma=0.5, zeta=0.3)
  np.testing.assert_allclose(of.spread.sum(axis=0), 0, atol=1e-12)
  np.testing.assert_allclose(np.linalg.norm(of.spread, axis=1), 0.3)
  rng = np.random.default_rng(1)
  for _ in range(50):  # No point near the minimizer is better.
    w = of.minimizer + 0.1 * rng.standard_normal(convex.DIM)
    value = (of.q * w**2).sum() / 2 + of.c @ w + float(of.psi.value(w))
    assert value > of.value
  bounds = [convex.bound(theorem, of, 0.01, r) for r in (10, 100)]
  assert bounds[0] > bounds[1] > 0


def test_gaps_are_below_the_bound_and_fall():
  history, points = convex.gaps("4.3", "fed_dual_avg", [0.03, 0.1], 32, [0])
  assert [point["rate"] for point in points] == [0.03, 0.1]
  gap, bound = history.metrics["gap"], history.metrics["bound"]
  assert (gap > 0).all()
  assert (gap < bound).all()
  assert (gap[:, -1] < gap[:, 0] / 4).all()


def test_computed_cells_are_called_with_what_they_take():
  for artefact in artefacts.ARTEFACTS:
    for size in artefact.sizes:
      for cell in artefact.cells(Plan(size, {})).values():
        if isinstance(cell, Computed):
          names = cell.function.__code__.co_varnames
          assert set(cell.options) <= set(names)


# What has no data here.


def scans(loss, accuracy, density):
  curve = lambda last: [*np.linspace(0.9, last, 4), last]
  return made_up(
    {
      "regularized_test_loss": curve(loss),
      "test_accuracy": curve(accuracy),
      "density": curve(density),
    },
    rates=(0.003, 0.01),  # With products in the range of Figure 12.
  )


def test_claims_of_fmri(tmp_path):
  found = {
    ("FedDualAvg",): scans(0.3, 0.9, 0.1),
    ("FedMiD",): scans(0.4, 0.85, 0.9),
    ("FedMiD-OSP",): scans(0.4, 0.85, 0.9),
    ("FedDualAvg-OSP",): scans(0.5, 0.7, 0.1),
    ("FedAvg(∂)",): scans(0.5, 0.7, 1.0),
    ("centralized",): scans(0.3, 0.91, 0.1),
    ("local",): scans(0.6, 0.6, 0.1),
  }
  for name in ("figure1", "figure5"):
    verdicts = by_text(name, found)
    assert set(verdicts.values()) == {HELD}
  dense = found | {("FedMiD",): scans(0.4, 0.95, 0.9)}
  verdicts = by_text("figure5", dense)
  assert [v for t, v in verdicts.items() if "denser and less" in t] == [
    NOT_HELD,
    NOT_HELD,
  ]
  four = {key: record for key, record in found.items() if "Fed" in key[0]}
  del four["FedAvg(∂)",]
  blocks = BY_NAME["figure12"].blocks(four)
  assert blocks[0].rows[0] == ["FedDualAvg", "50", "50"]  # The others diverged.
  for block in blocks:
    if isinstance(block, Picture):
      block.draw(tmp_path / f"{block.name}.png")
    if isinstance(block, Claim):
      assert block.verdict == UNDECIDED  # It shows one seed.
      assert all(q.margin > 0 for q in block.quantities)
  assert len(list(tmp_path.iterdir())) == 2


def test_figures_of_scans_keep_the_same_of_a_run():
  """They share runs, and a record is taken for each of them."""
  keeps = {BY_NAME[f"figure{i}"].keep for i in (1, 5, 12)}
  assert len(keeps) == 1


def test_claims_of_femnist():
  of = lambda loss, accuracy: made_up(
    {
      "train_loss": [9.0, 5.0, 4.0, 3.0, loss],
      "train_accuracy": [0.1, 0.2, 0.3, 0.4, accuracy],
      "test_accuracy": [0.1, 0.2, 0.3, 0.4, accuracy],
    },
    strengths=(None,),
  )
  found = {
    ("FedDualAvg",): of(1.0, 0.8),
    ("FedDualAvg-OSP",): of(3.0, 0.9),
    ("FedMiD",): of(2.0, 0.7),
    ("FedMiD-OSP",): of(2.0, 0.7),
  }
  for record in found.values():
    del record.arrays["strength"]
  assert list(by_text("figure14", found).values()) == [HELD, HELD, HELD]
  assert list(by_text("figure13", found).values()) == [NOT_HELD, NOT_HELD]
  far = found | {("FedDualAvg-OSP",): found["FedMiD",]}
  assert by_text("figure15", far)[
    "FedDualAvg is best in all three metrics"
  ] == (HELD)


@pytest.mark.parametrize("metric", ["f1", "precision", "recall", "density"])
def test_shares_have_intervals_from_0_to_1(metric):
  assert views.with_interval(np.array([0.1, 1.0, 0.9]), metric).endswith(
    "(0.000 to 1.000)"
  )


def test_how_many_rates_are_at_an_edge_of_their_grid():
  rates = np.array([0.1, 0.2, 0.3])
  means = {"seed": np.zeros(3), "client_lr": rates, "server_lr": np.ones(3)}
  found = lambda f1: {
    ("FedMiD",): Record(
      (), {}, {}, [{"seed": 0, "client_lr": r, "server_lr": 1} for r in rates],
      History([0], {"f1": np.array(f1)[:, None]}), means | {"f1": np.array(f1)},
    )
  }  # fmt: skip
  title = lambda f1: (
    grids.results(found(f1), ["FedMiD"], [regression.F1], {}).title
  )
  # One server rate is no choice.
  text = "{} of 1 chosen values are at an edge of their grid"
  assert title([0.1, 0.2, 0.3]) == text.format(1)
  assert title([0.1, 0.3, 0.2]) == text.format(0)
