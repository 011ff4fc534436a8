"""Not in the DOMO paper: what decides between explanations of our results."""

from experiments.artefacts import views
from experiments.artefacts.base import Block, Cell, Found, Key, Plan, RunOf
from experiments.artefacts.claims import Claim
from experiments.domo.constants import MU_S
from experiments.domo.methods import (
  PRESETS,
  SEEDS,
  of_points,
  rounds,
  run,
  some,
)

_SERVER = ("FedAvg", "FedAvgSM", "FedAvgSLM-Z", "DOMO")
_MANY = {
  "E = 1": ("--local_epochs=1", 1.0),
  "E = 0.25": ("--local_epochs=0.25", 4.0),
}


def server_momentum_cells(plan: Plan) -> dict[Key, Cell]:
  rates = {"smoke": "0.1,0.05"}.get(plan.size, "0.2,0.1,0.05,0.02,0.01")
  return {
    ("FedAvgSM",): RunOf(
      (
        f"--flagfile={PRESETS[plan.size]}",
        "--algorithm=fed_avg_sm",
        f"--mu_s={','.join(reversed(MU_S))}",
        f"--client_lr={rates}",
        f"--seed={SEEDS[plan.size]}",
      )
    ),
    ("FedAvg",): RunOf(
      (
        f"--flagfile={PRESETS[plan.size]}",
        "--algorithm=fed_avg",
        f"--client_lr={rates}",
        f"--seed={SEEDS[plan.size]}",
      )
    ),
  }


def server_momentum_blocks(found: Found) -> list[Block]:
  rates = sorted(
    {p["client_lr"] for record in found.values() for p in record.points}
  )
  at = lambda key, rate, **others: of_points(
    found, (key,), client_lr=rate, **others
  )
  rows = [
    ["0 (FedAvg)", *(views.with_interval(at("FedAvg", rate)) for rate in rates)]
  ]
  for mu in reversed(MU_S):
    ours = (at("FedAvgSM", rate, mu_s=float(mu)) for rate in rates)
    rows.append([mu, *map(views.with_interval, ours)])
  heads = ["μ_s", *(f"η = {rate:g}" for rate in rates)]
  return [views.Table(heads, rows, "Last test accuracy in percent")]


def more_rounds_cells(plan: Plan) -> dict[Key, Cell]:
  return {
    (method, name): run(plan, method, flag, rounds(plan, factor))
    for name, (flag, factor) in _MANY.items()
    for method in (some(plan) if plan.size == "smoke" else _SERVER)
  }


def more_rounds_blocks(found: Found) -> list[Block]:
  return [
    views.beside_paper(
      found, _SERVER, list(_MANY), {}, title="Last test accuracy in percent"
    ),
    Claim(
      "Server momentum helps where rounds are many: FedAvgSM is above FedAvg, "
      "E = 0.25",
      [
        views.lead(
          found,
          "FedAvgSM over FedAvg",
          ("FedAvgSM", "E = 0.25"),
          ("FedAvg", "E = 0.25"),
        )
      ],
      is_ours=True,
    ),
  ]
