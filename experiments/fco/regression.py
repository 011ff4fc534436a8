"""Figures 3, 4 and 6 to 11: sparse and low-rank least squares.

The paper gives no strength of the regularizer, so all is shown, and all claims
are decided, as a function of it. It gives two rules by which rates of LASSO are
chosen, F1 in section 5.1 and the recovery error in appendix A.2.1: both are
shown.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.artefacts import drawing, views
from experiments.artefacts.base import (
  Artefact,
  Block,
  Cell,
  Computed,
  Found,
  Key,
  Plan,
  RunOf,
  Table,
)
from experiments.artefacts.record import Record, keep
from experiments.fco import claims, grids, solutions
from experiments.fco.grids import ALGORITHMS, Column, Rule

F1 = Rule("F1", "f1", "max", 10)
ERROR = Rule("error", "recovery_error", "min", 10)
OPTIMUM: Key = ("optimum",)
_RATES = {
  "client_lr": "0.001,0.003,0.01,0.03,0.1,0.3,1",
  "server_lr": "0.01,0.03,0.1,0.3,1,3,10",
}
_SMOKE = {"client_lr": "0.0003,0.001", "server_lr": "1"}
_SEEDS = {"smoke": "0,1,2", "cpu": "0,1,2,3", "paper": "0,1,2,3"}


class Problem(NamedTuple):
  """One of the two families of problems.

  Attributes:
    task: its name.
    title: in captions.
    rules: by which rates are chosen.
    panels: metrics of the pictures.
    columns: of the tables, by their heads.
    strengths: of its grids.
    wide: strengths at which the optimum is looked at.
  """

  task: str
  title: str
  rules: tuple[Rule, ...]
  panels: tuple[str, ...]
  columns: Mapping[str, Column]
  strengths: str
  wide: tuple[float, ...]


def _columns(
  metric: str, name: str, others: Mapping[str, str]
) -> dict[str, Column]:
  rounds = {
    f"{name} at {r}": Column(metric, grids.at(metric, r), r)
    for r in (50, 100, 200, 500)
  }
  last = {h: Column(m, views.final(m)) for h, m in others.items()}
  return rounds | last


LASSO = Problem(
  "lasso",
  "Sparse least squares",
  (F1, ERROR),
  ("f1", "precision", "recall", "density", "recovery_error"),
  _columns("f1", "F1", {"density": "density", "error": "recovery_error"}),
  "0.1,0.2,0.5",
  (0.05, 0.1, 0.2, 0.5, 1.0),
)
LOW_RANK = Problem(
  "low_rank",
  "Low-rank least squares",
  (ERROR,),
  ("regularized_train_loss", "validation_loss", "rank", "recovery_error"),
  _columns(
    "rank",
    "rank",
    {"error": "recovery_error", "loss": "regularized_train_loss",
     "validation error": "validation_loss"},
  ),
  "0.2,0.5,1",
  (0.1, 0.2, 0.5, 1.0, 2.0),
)  # fmt: skip
# Where a CPU looks for rates. Features are not scaled, so all rates of clients
# above 0.001 diverge (`fco/rates`), and smaller ones are needed. On matrices a
# step costs twenty times as much where clients threshold singular values: there
# are only those rates of which one was best on the whole grid at strength 0.5.
_CPU = {
  ("lasso", None): ("0.0001,0.0003,0.001", "0.3,1,3,10"),
  ("low_rank", None): ("0.0001,0.0003,0.001", "10"),
  ("low_rank", "fed_dual_avg_osp"): ("0.0001,0.0003", "0.3,1,3"),
}


def _rates(plan: Plan, problem: Problem, algorithm: str) -> dict[str, str]:
  if plan.size == "smoke":
    return _SMOKE
  if plan.size == "paper":
    return _RATES
  default = _CPU[problem.task, None]
  client, server = _CPU.get((problem.task, algorithm), default)
  return {"client_lr": client, "server_lr": server}


def grid(plan: Plan, problem: Problem, variant: str, method: str) -> RunOf:
  """An algorithm at all strengths, rates and seeds."""
  algorithm = ALGORITHMS[method]
  rates = _rates(plan, problem, algorithm)
  smoke = plan.size == "smoke"
  strengths = problem.strengths
  return RunOf(
    (
      f"--flagfile=experiments/fco/{problem.task}.flags",
      f"--variant={'I' if smoke else variant}",
      f"--algorithm={algorithm}",
      f"--strength={strengths.rsplit(',', 1)[0] if smoke else strengths}",
      *(f"--{name}={value}" for name, value in rates.items()),
      f"--seed={_SEEDS[plan.size]}",
      *(("--rounds=2", "--eval_every=1") if smoke else ()),
    )
  )


def optimum(plan: Plan, problem: Problem, variant: str) -> Computed:
  """The minimizers, at all strengths that are looked at."""
  options = {"task": problem.task, "variant": variant}
  if plan.size == "smoke":
    strengths = [float(s) for s in problem.strengths.split(",")][:1]
    return Computed(
      solutions.optima,
      options | {"variant": "I", "strengths": strengths, "max_iterations": 5},
    )
  return Computed(solutions.optima, options | {"strengths": problem.wide})


def _methods(plan: Plan, problem: Problem) -> Sequence[str]:
  if plan.size != "smoke":
    return [*ALGORITHMS]
  return ("FedMiD", "FedDualAvg") if problem is LASSO else ("FedDualAvg",)


def _cells(problem: Problem, variant: str, plan: Plan) -> dict[Key, Cell]:
  cells: dict[Key, Cell] = {
    (method,): grid(plan, problem, variant, method)
    for method in _methods(plan, problem)
  }
  if problem is LASSO and variant in ("II", "III", "IV"):
    # The paper compares with I.
    for method in claims.OF_BOTH:
      if method in _methods(plan, problem):
        cells[method, "I"] = grid(plan, problem, "I", method)
  if plan.size != "smoke" or problem is LASSO:
    cells[OPTIMUM] = optimum(plan, problem, variant)
  return cells


def _blocks(
  problem: Problem,
  of_paper: claims.Claims,
  found: Found,
) -> list[Block]:
  table = grids.results(
    found,
    [*ALGORITHMS],
    problem.rules,
    problem.columns,
    _optima(found, problem),
  )
  pictures = [_picture(found, problem, rule) for rule in problem.rules]
  drawn = [each for each in pictures if each is not None]
  return [
    table._replace(
      title="; ".join(
        filter(None, ["Mean over the seeds that are reported", table.title])
      )
    ),
    *drawn,
    *grids.verdicts(found, problem.rules, of_paper),
  ]


def _optima(found: Found, problem: Problem) -> dict[float, dict[str, str]]:
  """strength -> head of a column -> what the optimum has there."""
  heights = _lines(found)
  numbers = {
    head: column.metric
    for head, column in problem.columns.items()
    if column.round in (0, 500)
  }
  return {
    strength: {
      head: f"{of_metric[metric]:.4g}"
      for head, metric in numbers.items()
      if metric in of_metric
    }
    for strength, of_metric in heights.items()
  }


def _lines(found: Found) -> dict[float, dict[str, float]]:
  """strength -> metric -> its value at the optimum."""
  if OPTIMUM not in found:
    return {}
  record = found[OPTIMUM]
  return {
    point["strength"]: {
      name: float(values[row, -1])
      for name, values in record.history.metrics.items()
    }
    for row, point in enumerate(record.points)
  }


def _picture(found: Found, problem: Problem, rule: Rule):
  lines = _lines(found)
  rows = {}
  for condition in grids.conditions(found, [rule]):
    picked = grids.pick(found, condition)
    of_row = {m: picked[m,] for m in ALGORITHMS if (m,) in picked}
    heights = lines.get(condition.strength, {})
    rows[f"λ = {condition.strength:g}"] = drawing.Row(of_row, heights)
  if not any(row.methods for row in rows.values()):
    return None
  name = f"by_{rule.name.lower()}" if len(problem.rules) > 1 else "curves"
  alt = f"{problem.title}, rates by {rule.name}, one row for each strength"
  return drawing.metrics_by_row(rows, problem.panels, [*ALGORITHMS], name, alt)


# The strengths.


def _strength(plan: Plan) -> dict[Key, Cell]:
  if plan.size == "smoke":
    return {(LASSO.task, "I"): optimum(plan, LASSO, "I")}
  return {
    (problem.task, variant): optimum(plan, problem, variant)
    for problem in (LASSO, LOW_RANK)
    for variant in ("I", "II", "III", "IV")
  }


def _strength_blocks(found: Found) -> list[Block]:
  blocks: list[Block] = []
  for problem, shown in ((LASSO, "f1"), (LOW_RANK, "rank")):
    of_task = {k[1]: r for k, r in found.items() if k[0] == problem.task}
    if not of_task:
      continue
    first = next(iter(of_task.values()))
    strengths = [point["strength"] for point in first.points]
    for metric in (shown, "recovery_error", "validation_loss"):
      rows = [
        [variant, *(f"{value:.4g}" for value in record.final(metric))]
        for variant, record in of_task.items()
      ]
      heads = ["", *(f"λ = {strength:g}" for strength in strengths)]
      title = f"{problem.title}, {metric.replace('_', ' ')} of the optimum"
      blocks.append(Table(heads, rows, title))
  return blocks


# The paper's rates.


def _all_rates(plan: Plan) -> dict[Key, Cell]:
  if plan.size == "smoke":
    return {
      (method,): grid(plan, LASSO, "I", method)
      for method in _methods(plan, LASSO)
    }
  return {
    (method,): RunOf(
      (
        "--flagfile=experiments/fco/lasso.flags",
        "--variant=I",
        f"--algorithm={algorithm}",
        "--strength=0.5",
        *(f"--{name}={value}" for name, value in _RATES.items()),
        "--seed=0",
      )
    )
    for method, algorithm in ALGORITHMS.items()
  }


def _all_rates_blocks(found: Found) -> list[Block]:
  rates = sorted({p["client_lr"] for r in found.values() for p in r.points})
  rows = [
    [key[0], *(_finished(record, rate) for rate in rates)]
    for key, record in found.items()
  ]
  heads = ["algorithm", *(f"η_c = {rate:g}" for rate in rates)]
  title = "Points that did not diverge; of those the best last F1"
  return [Table(heads, rows, title), *claims.paper_rates(found)]


def _finished(record: Record, rate: float) -> str:
  rows = [i for i, p in enumerate(record.points) if p["client_lr"] == rate]
  last = record.final("f1")[rows]
  ok = np.isfinite(last)
  best = f"; {last[ok].max():.3f}" if ok.any() else ""
  return f"{int(ok.sum())} of {len(rows)}{best}"


# All of them.


def _figure(
  number: int,
  problem: Problem,
  variant: str,
  size: str,
  of_paper: claims.Claims,
) -> Artefact:
  noun = "F1" if problem is LASSO else "rank and error"
  return Artefact(
    f"fco/figure{number}",
    f"{problem.title}, data set {variant}: {noun} over the rounds",
    f"{size}; 10 clients a round, one epoch in batches of 10, 500 rounds, 49 "
    "pairs of rates; strength not given",
    functools.partial(_cells, problem, variant),
    functools.partial(_blocks, problem, of_paper),
    grids.keep(*problem.rules, metrics=problem.panels),
  )


_M64, _M256 = "64 clients of 128 examples", "256 clients of 32 examples"
ARTEFACTS = (
  _figure(3, LASSO, "I", f"512 of 1024 are 1, {_M64}", claims.lasso_one),
  _figure(4, LOW_RANK, "I", f"rank 16, {_M64}", claims.low_rank(16, 100)),
  _figure(6, LASSO, "II", f"64 of 1024 are 1, {_M64}", claims.lasso_sparse),
  _figure(7, LASSO, "III", f"8 of 1024 are 1, {_M64}", claims.lasso_sparse),
  _figure(8, LASSO, "IV", f"512 of 1024 are 1, {_M256}", claims.lasso_many),
  _figure(9, LOW_RANK, "II", f"rank 4, {_M64}", claims.low_rank(4, 100)),
  _figure(10, LOW_RANK, "III", f"rank 1, {_M64}", claims.low_rank(1, 100)),
  _figure(11, LOW_RANK, "IV", f"rank 16, {_M256}", claims.low_rank(16, 200)),
  Artefact(
    "fco/strength",
    "What the centralized optimum recovers, over the strength",
    "the strength is chosen so that a centralized solver recovers the truth; "
    "not given",
    _strength,
    _strength_blocks,
  ),
  Artefact(
    "fco/rates",
    "Which of the paper's 49 pairs of rates diverge on LASSO I",
    "best rates 0.01, 1 for FedDualAvg and 0.001, 0.3 for the others",
    _all_rates,
    _all_rates_blocks,
    keep("f1", last=1),
  ),
)
