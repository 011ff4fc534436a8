"""Figure 2 and Table 1 of the DOMO paper: the constants of DOMO."""

import numpy as np

from experiments.artefacts import views
from experiments.artefacts.base import Block, Cell, Found, Key, Picture, Plan
from experiments.artefacts.claims import Claim
from experiments.domo.methods import SIMILARITIES, of_points, run
from fedjax_opt import plots
from fedjax_opt.study.plots.heat_maps import Grid

# 0 is a method without that momentum.
MU_S, MU_L = ("0.9", "0.6", "0.3"), ("0.9", "0.8", "0.6", "0.4", "0.2")
ALL_MU_S, ALL_MU_L = (*MU_S, "0"), (*MU_L, "0")
BEST = ("0.9", "0.6")
CONSTANTS = ("1.0", "0.9", "0.8", "0.6", "0.4", "0.2")


# Figure 2: the momenta.


def figure2_cells(plan: Plan) -> dict[Key, Cell]:
  """DOMO over both momenta, and the methods that have one or none of them.

  The sizes other than the paper's have one similarity, and of the methods with
  one momentum the runs of Figure 1.
  """
  whole = plan.size == "paper"
  mu_s, mu_l = f"--mu_s={','.join(MU_S)}", f"--mu_l={','.join(MU_L)}"
  flags = {
    "DOMO": (mu_s, mu_l),
    "FedAvgSM": (mu_s,) if whole else (),
    "FedAvgLM": (mu_l,) if whole else (),
    "FedAvg": (),
  }
  methods = ("DOMO", "FedAvg") if plan.size == "smoke" else tuple(flags)
  return {
    (method, s): run(plan, method, f"--similarity={s}", *flags[method])
    for s in (SIMILARITIES if whole else ("0.1",))
    for method in methods
  }


def at_momenta(found: Found, s: str, mu_s: str, mu_l: str) -> np.ndarray | None:
  """The accuracies by seed at two momenta, of the method that has these."""
  local, server = float(mu_l) > 0, float(mu_s) > 0
  method = {
    (True, True): "DOMO",
    (True, False): "FedAvgSM",
    (False, True): "FedAvgLM",
    (False, False): "FedAvg",
  }[server, local]
  wanted = {"mu_s": float(mu_s)} if server else {}
  wanted |= {"mu_l": float(mu_l)} if local else {}
  return of_points(found, (method, s), **wanted)


def figure2_blocks(found: Found) -> list[Block]:
  """A table and a claim for each similarity, and a panel for each."""
  shown = [s for s in SIMILARITIES if ("DOMO", s) in found]
  tables = [
    views.Table(
      ["", *(f"μ_l = {each}" for each in ALL_MU_L)],
      [
        [
          f"μ_s = {mu_s}",
          *(
            views.with_interval(at_momenta(found, s, mu_s, mu_l))
            for mu_l in ALL_MU_L
          ),
        ]
        for mu_s in ALL_MU_S
      ],
      f"Last test accuracy in percent, {SIMILARITIES[s]}",
    )
    for s in shown
  ]
  draw = lambda path: plots.heat_maps(
    {SIMILARITIES[s]: _grid(found, s) for s in shown},
    path,
    metric=views.ACCURACY,
  )
  pictures = [Picture("momenta", draw, "Test accuracy over both momenta")]
  return [
    *tables,
    *(pictures if shown else []),
    *(_best(found, s) for s in shown or SIMILARITIES),
  ]


def _grid(found: Found, s: str) -> Grid:
  """The panel of a similarity: 0 is there if all of its cells are."""
  at = lambda mu_s, mu_l: at_momenta(found, s, mu_s, mu_l)
  is_whole = all(at(a, b) is not None for a in ALL_MU_S for b in ALL_MU_L)
  rows, columns = (ALL_MU_S, ALL_MU_L) if is_whole else (MU_S, MU_L)
  nothing = np.array([np.nan])
  mean = lambda values: float(np.mean(nothing if values is None else values))
  values = np.array([[mean(at(a, b)) for b in columns] for a in rows])
  return Grid(values, ("mu_s", rows), ("mu_l", columns))


def _best(found: Found, s: str) -> Claim:
  """That the paper's momenta are above all others that have run."""
  quantities = [
    views.above(
      f"over μ_s = {mu_s}, μ_l = {mu_l}",
      at_momenta(found, s, *BEST),
      at_momenta(found, s, mu_s, mu_l),
      "points",
      100,
      ("the best", f"μ_s = {mu_s}, μ_l = {mu_l}"),
    )
    for mu_s in ALL_MU_S
    for mu_l in ALL_MU_L
    if (mu_s, mu_l) != BEST and at_momenta(found, s, mu_s, mu_l) is not None
  ]
  return Claim(
    f"μ_s = 0.9 and μ_l = 0.6 are best, {SIMILARITIES[s]}", quantities
  )


# Table 1: the fusion and the server's rate.

# Row -> the paper's mean and deviation, at each of `CONSTANTS`.
_TABLE1 = {
  "β, with α = 1": (
    "81.89 ± 0.40", "85.54 ± 0.11", "83.84 ± 0.56", "81.60 ± 0.40",
    "77.80 ± 0.88", "74.54 ± 0.49",
  ),
  "α, with β = 0.9": (
    "85.54 ± 0.11", "84.63 ± 0.64", "84.83 ± 0.56", "83.76 ± 0.28",
    "82.08 ± 0.50", "77.58 ± 0.62",
  ),
}  # fmt: skip
_CONSTANTS = {"β, with α = 1": "beta", "α, with β = 0.9": "server_lr"}


def table1_cells(plan: Plan) -> dict[Key, Cell]:
  """DOMO over both constants; β down to 0, which the paper does not have."""
  cells = {}
  for row, flag in _CONSTANTS.items():
    values = (*CONSTANTS, "0") if flag == "beta" else CONSTANTS
    cells[(row,)] = run(plan, "DOMO", f"--{flag}={','.join(values)}")
  return cells


def table1_blocks(found: Found) -> list[Block]:
  """The paper's numbers and ours, and what is best."""
  at = lambda row, value: of_points(
    found, (row,), **{_CONSTANTS[row]: float(value)}
  )
  rows = []
  for row, paper in _TABLE1.items():
    rows.append([f"{row}, paper", *paper, views.NOT_RUN])
    ours = (views.with_interval(at(row, value)) for value in (*CONSTANTS, "0"))
    rows.append([f"{row}, ours", *ours])
  claims = {"β, with α = 1": "0.9", "α, with β = 0.9": "1.0"}
  return [
    views.Table(["", *CONSTANTS, "0"], rows, "Last test accuracy in percent"),
    *(
      Claim(
        f"{row[0]} = {best} is best",
        [
          views.above(
            f"{best} over {v}",
            at(row, best),
            at(row, v),
            "points",
            100,
            (best, v),
          )
          for v in CONSTANTS
          if v != best
        ],
      )
      for row, best in claims.items()
    ),
    Claim(
      "The fusion helps: β = 0.9 is above β = 0 (FedAvgSLM-Z at DOMO's rate)",
      [
        views.above(
          "0.9 over 0",
          at("β, with α = 1", "0.9"),
          at("β, with α = 1", "0"),
          "points",
          100,
          ("0.9", "0"),
        )
      ],
      is_ours=True,
    ),
  ]
